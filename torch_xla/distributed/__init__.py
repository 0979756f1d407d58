"""Several replicas: starting them, feeding them, letting them talk. This process is one of one."""

from torch_xla.distributed.zero_redundancy_optimizer import (
    ZeroRedundancyOptimizer as ZeroRedundancyOptimizer,
)
