"""One program over a mesh of devices: what is said of how tensors lie on it."""

from typing import TYPE_CHECKING

import torch_xla.distributed.spmd.operators  # noqa: F401 (registers torch.ops.xla.*)
from torch_xla import _other_names, _submodules
from torch_xla._spmd.mesh import (
    HybridMesh,
    Mesh,
    get_1d_mesh,
    get_global_mesh,
    set_global_mesh,
)
from torch_xla._spmd.sharding import (
    MarkShardingFunction,
    PartitionSpec,
    ShardingSpec,
    ShardingType,
    XLAShard,
    clear_sharding,
    local_shards,
    mark_sharding_with_gradients,
    shard_as,
    sharding_of,
    sharding_text,
    sharding_type,
)
from torch_xla.distributed.spmd.dtensor import (
    auto_policy,
    convert_to_xla_mesh,
    convert_to_xla_partition_spec,
    xla_distribute_module,
    xla_distribute_tensor,
)
from torch_xla.distributed.spmd.linear import (
    EinsumLinear,
    XLAPatchedLinear,
    apply_backward_optimization_barrier,
    apply_xla_patch_to_nn_linear,
    xla_patched_nn_linear_forward,
)
from torch_xla.distributed.spmd.sharded_tensor import (
    XLAShardedTensor,
    annotate_custom_sharding,
    disable_manual_sharding,
    enable_manual_sharding,
    mark_sharding,
    unwrap_sharded_tensor,
    wrap_as_sharded_tensor,
    wrap_if_sharded,
)

__all__ = [
    "EinsumLinear",
    "HybridMesh",
    "MarkShardingFunction",
    "Mesh",
    "PartitionSpec",
    "ShardingSpec",
    "ShardingType",
    "XLAPatchedLinear",
    "XLAShard",
    "XLAShardedTensor",
    "annotate_custom_sharding",
    "apply_backward_optimization_barrier",
    "apply_xla_patch_to_nn_linear",
    "auto_policy",
    "clear_sharding",
    "convert_to_xla_mesh",
    "convert_to_xla_partition_spec",
    "disable_manual_sharding",
    "enable_manual_sharding",
    "get_1d_mesh",
    "get_global_mesh",
    "local_shards",
    "mark_sharding",
    "mark_sharding_with_gradients",
    "set_global_mesh",
    "shard_as",
    "sharding_of",
    "sharding_text",
    "sharding_type",
    "unwrap_sharded_tensor",
    "wrap_as_sharded_tensor",
    "wrap_if_sharded",
    "xla_distribute_module",
    "xla_distribute_tensor",
    "xla_patched_nn_linear_forward",
]

if TYPE_CHECKING:
    from torch_xla.distributed.spmd import (
        debugging as debugging,
        dtensor as dtensor,
        linear as linear,
        operators as operators,
        sharded_tensor as sharded_tensor,
    )


__getattr__ = _other_names.refusing(__name__, _submodules.importing(__name__))
