"""What a few programs import although it is not public."""

from torch_xla import _submodules

__getattr__ = _submodules.importing(__name__)
