"""Small things that programs import as `torch_xla.utils.<name>`."""

from typing import TYPE_CHECKING

from torch_xla import _submodules

if TYPE_CHECKING:
    from torch_xla.utils import (
        buffer_donor_context as buffer_donor_context,
        checkpoint as checkpoint,
        closures as closures,
        dlpack as dlpack,
        gcsfs as gcsfs,
        keyd_queue as keyd_queue,
        serialization as serialization,
        utils as utils,
    )


__getattr__ = _submodules.importing(__name__)
