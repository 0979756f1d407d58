"""Checkpoints of training, numbered by step, in the format of torch.distributed.checkpoint."""

from typing import TYPE_CHECKING

from torch_xla import _submodules
from torch_xla.experimental.distributed_checkpoint.manager import CheckpointManager
from torch_xla.experimental.distributed_checkpoint.optimizer_state import prime_optimizer
from torch_xla.experimental.distributed_checkpoint.planners import SPMDLoadPlanner, SPMDSavePlanner

__all__ = ["CheckpointManager", "SPMDLoadPlanner", "SPMDSavePlanner", "prime_optimizer"]

if TYPE_CHECKING:
    from torch_xla.experimental.distributed_checkpoint import (
        manager as manager,
        optimizer_state as optimizer_state,
        parts as parts,
        planners as planners,
    )


__getattr__ = _submodules.importing(__name__)
