"""What shows what happened."""

from typing import TYPE_CHECKING

from torch_xla import _submodules

if TYPE_CHECKING:
    from torch_xla.debug import (
        frame_parser_util as frame_parser_util,
        graph_saver as graph_saver,
        guards as guards,
        memory as memory,
        metrics as metrics,
        metrics_compare_utils as metrics_compare_utils,
        metrics_saver as metrics_saver,
        model_comparator as model_comparator,
        profiler as profiler,
    )


__getattr__ = _submodules.importing(__name__)
