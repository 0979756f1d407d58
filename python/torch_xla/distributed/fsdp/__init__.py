"""Parameters spread over replicas. With one replica each has all of its parameters; the wrapper's
other duties, such as computing in another type, are the same."""

from typing import TYPE_CHECKING

from torch_xla import _submodules
from torch_xla.distributed.fsdp.state_dict_utils import (
    consolidate_sharded_model_checkpoints,
    consolidate_sharded_state_dicts,
)
from torch_xla.distributed.fsdp.utils import checkpoint_module
from torch_xla.distributed.fsdp.xla_fully_sharded_data_parallel import (
    XlaFullyShardedDataParallel,
)

__all__ = [
    "XlaFullyShardedDataParallel",
    "checkpoint_module",
    "consolidate_sharded_model_checkpoints",
    "consolidate_sharded_state_dicts",
]

if TYPE_CHECKING:
    from torch_xla.distributed.fsdp import (
        consolidate_sharded_ckpts as consolidate_sharded_ckpts,
        state_dict_utils as state_dict_utils,
        utils as utils,
        wrap as wrap,
        xla_fully_sharded_data_parallel as xla_fully_sharded_data_parallel,
    )


__getattr__ = _submodules.importing(__name__)
