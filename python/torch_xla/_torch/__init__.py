"""What torch is told of the device: `integration` installs the rest of the folder when the package
is imported."""

from torch_xla import _submodules

__getattr__ = _submodules.importing(__name__)
