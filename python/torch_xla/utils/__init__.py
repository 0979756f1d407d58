"""Small things that programs import as `torch_xla.utils.<name>`."""

from typing import TYPE_CHECKING

from torch_xla import _submodules

if TYPE_CHECKING:
    from torch_xla.utils import buffer_donor_context as buffer_donor_context
    from torch_xla.utils import checkpoint as checkpoint
    from torch_xla.utils import closures as closures
    from torch_xla.utils import dlpack as dlpack
    from torch_xla.utils import gcsfs as gcsfs
    from torch_xla.utils import keyd_queue as keyd_queue
    from torch_xla.utils import serialization as serialization
    from torch_xla.utils import utils as utils


__getattr__ = _submodules.importing(__name__)
