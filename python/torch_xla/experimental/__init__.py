"""What may still change: eager mode, loops, pure functions."""

from typing import TYPE_CHECKING

from torch_xla import _submodules
from torch_xla.experimental.eager import eager_mode, eager_mode_context, is_eager_mode

__all__ = ["eager_mode", "eager_mode_context", "is_eager_mode"]

if TYPE_CHECKING:
    from torch_xla.experimental import assume_pure as assume_pure
    from torch_xla.experimental import callback as callback
    from torch_xla.experimental import custom_kernel as custom_kernel
    from torch_xla.experimental import distributed_checkpoint as distributed_checkpoint
    from torch_xla.experimental import eager as eager
    from torch_xla.experimental import fori_loop as fori_loop
    from torch_xla.experimental import gradient_accumulation as gradient_accumulation
    from torch_xla.experimental import gru as gru
    from torch_xla.experimental import mark_pattern_utils as mark_pattern_utils
    from torch_xla.experimental import plugins as plugins
    from torch_xla.experimental import scan as scan
    from torch_xla.experimental import scan_layers as scan_layers
    from torch_xla.experimental import (
        spmd_fully_sharded_data_parallel as spmd_fully_sharded_data_parallel,
    )
    from torch_xla.experimental import stablehlo_custom_call as stablehlo_custom_call
    from torch_xla.experimental import xla_marker as xla_marker
    from torch_xla.experimental import xla_mlir_debuginfo as xla_mlir_debuginfo
    from torch_xla.experimental import xla_quantized_matmul as xla_quantized_matmul


__getattr__ = _submodules.importing(__name__)
