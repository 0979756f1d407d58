"""PyTorch's meshes in one program over all devices: under SPMD a mesh of xla devices has no process
groups, and this process is all of it. Next: annotated_modules.py, for what is split over them."""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as dist


def _is_annotated(mesh: Any) -> bool:
    from torch_xla._spmd import placements  # seldom needed, and slow to import

    return placements.is_annotated(mesh)


class _NoPlace:
    """This process's place on a mesh that has not been told one, as those of process groups are."""

    def __get__(self, mesh: Any, owner: Any) -> Any:
        if mesh is None:
            return self
        if not _is_annotated(mesh):
            raise AttributeError(f"{owner.__name__} object has no attribute '_coordinate_on_dim'")
        raise NotImplementedError(
            f"under SPMD this process is all of {mesh} and has no place of its own on it, which "
            "DTensor.from_local and its kin (zeros, rand) ask for: distribute_tensor takes the "
            "whole tensor"
        )


def change(module: Any) -> None:
    """Teach the module of PyTorch's meshes.

    A part of a mesh asks which rank this process is. Under SPMD it is all of them, and takes the
    part that begins with the first.
    """
    original = module.DeviceMesh._get_mesh_tensor_from_full_mesh

    @functools.wraps(original)
    def _get_mesh_tensor_from_full_mesh(full_mesh: Any, current_rank: int | None = None) -> Any:
        if current_rank is None and not dist.is_initialized():
            current_rank = 0
        return original(full_mesh, current_rank)

    module.DeviceMesh._get_mesh_tensor_from_full_mesh = staticmethod(
        _get_mesh_tensor_from_full_mesh
    )
    take_part = module.DeviceMesh._create_sub_mesh

    @functools.wraps(take_part)
    def _create_sub_mesh(self: Any, *args: Any) -> Any:
        if not _is_annotated(self):
            return take_part(self, *args)
        self._dim_group_names = []
        part = take_part(self, *args)
        del self._dim_group_names, part._dim_group_names  # neither has process groups
        return part

    module.DeviceMesh._create_sub_mesh = _create_sub_mesh
    module.DeviceMesh._coordinate_on_dim = _NoPlace()
