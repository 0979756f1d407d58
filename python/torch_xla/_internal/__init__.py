"""What a few programs import although it is not public."""

from typing import TYPE_CHECKING

from torch_xla import _submodules

if TYPE_CHECKING:
    from torch_xla._internal import pjrt as pjrt, tpu as tpu

__getattr__ = _submodules.importing(__name__)
