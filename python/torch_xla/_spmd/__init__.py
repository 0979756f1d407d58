"""One program over a mesh of devices: whether it is so, what a mesh is, and which part of a tensor
is where."""

from torch_xla import _submodules

__getattr__ = _submodules.importing(__name__)
