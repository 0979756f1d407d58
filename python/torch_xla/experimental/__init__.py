"""What may still change: eager mode, loops, pure functions."""

from typing import TYPE_CHECKING

from torch_xla import _submodules
from torch_xla.experimental.eager import eager_mode, eager_mode_context, is_eager_mode

__all__ = ["eager_mode", "eager_mode_context", "is_eager_mode"]

if TYPE_CHECKING:
    from torch_xla.experimental import (
        assume_pure as assume_pure,
        callback as callback,
        custom_kernel as custom_kernel,
        distributed_checkpoint as distributed_checkpoint,
        eager as eager,
        fori_loop as fori_loop,
        gradient_accumulation as gradient_accumulation,
        gru as gru,
        mark_pattern_utils as mark_pattern_utils,
        plugins as plugins,
        quantized as quantized,
        scan as scan,
        scan_layers as scan_layers,
        spmd_fully_sharded_data_parallel as spmd_fully_sharded_data_parallel,
        stablehlo_custom_call as stablehlo_custom_call,
        xla_marker as xla_marker,
        xla_mlir_debuginfo as xla_mlir_debuginfo,
        xla_quantized_matmul as xla_quantized_matmul,
    )


__getattr__ = _submodules.importing(__name__)
