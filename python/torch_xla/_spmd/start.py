"""The beginning of one program over all devices."""

from __future__ import annotations

from torch_xla import _XLAC
from torch_xla._spmd.mesh import get_1d_mesh
from torch_xla._spmd.mode import runtime_device_count
from torch_xla._spmd.sharding import ShardingSpec, text_of_spec

# Tensors of more are split along one of their first dimensions.
_MOST_DIMENSIONS = 8


def use_spmd(auto: bool = False) -> None:
    """As `torch_xla.runtime.use_spmd`."""
    _XLAC._use_spmd()
    if auto and runtime_device_count() > 1:
        mesh = get_1d_mesh("devices")
        specs = [(*[None] * d, "devices") for d in range(_MOST_DIMENSIONS)]
        _XLAC._split_automatically([text_of_spec(ShardingSpec(mesh, spec)) for spec in specs])
