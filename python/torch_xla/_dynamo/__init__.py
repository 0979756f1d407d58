"""Backends of `torch.compile` under the names of torch_xla."""

from typing import TYPE_CHECKING

from torch_xla import _submodules

if TYPE_CHECKING:
    from torch_xla._dynamo import dynamo_backend2 as dynamo_backend2

__getattr__ = _submodules.importing(__name__)
