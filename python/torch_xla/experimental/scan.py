"""`scan`: a Python loop over the slices of tensors as one loop of the program."""

from torch_xla import _other_names
from torch_xla._capture.scan import (
    Carry as Carry,
    X as X,
    Y as Y,
    default_partition as default_partition,
    scan as scan,
)

__getattr__ = _other_names.refusing(__name__)
