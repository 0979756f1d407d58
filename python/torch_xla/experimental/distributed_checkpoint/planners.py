"""Planners of torch.distributed.checkpoint for tensors on a mesh. On one device every tensor
is whole, and one process has it: the plans are the default ones.
"""

from __future__ import annotations

from typing import Any

from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner

from torch_xla import _saving


class SPMDSavePlanner(DefaultSavePlanner):
    """Saves xla tensors, read together in one transfer."""

    def set_up_planner(self, state_dict: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        super().set_up_planner(_saving.on_cpu(state_dict), *args, **kwargs)


class SPMDLoadPlanner(DefaultLoadPlanner):
    """Loads into xla tensors."""
