"""Several replicas: starting them, feeding them, letting them talk. This process is one of one."""

from typing import TYPE_CHECKING

from torch_xla import _submodules
from torch_xla.distributed.zero_redundancy_optimizer import (
    ZeroRedundancyOptimizer as ZeroRedundancyOptimizer,
)

if TYPE_CHECKING:
    from torch_xla.distributed import (
        data_parallel as data_parallel,
        fsdp as fsdp,
        parallel_loader as parallel_loader,
        spmd as spmd,
        xla_backend as xla_backend,
        xla_dist as xla_dist,
        xla_multiprocessing as xla_multiprocessing,
        zero_redundancy_optimizer as zero_redundancy_optimizer,
    )


__getattr__ = _submodules.importing(__name__)
