"""Backends of `torch.compile` under the names of torch_xla."""

from torch_xla import _submodules

__getattr__ = _submodules.importing(__name__)
