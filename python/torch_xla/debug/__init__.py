"""What shows what happened."""

from typing import TYPE_CHECKING

from torch_xla import _submodules

if TYPE_CHECKING:
    from torch_xla.debug import graph_saver as graph_saver
    from torch_xla.debug import guards as guards
    from torch_xla.debug import memory as memory
    from torch_xla.debug import metrics as metrics
    from torch_xla.debug import metrics_compare_utils as metrics_compare_utils
    from torch_xla.debug import metrics_saver as metrics_saver
    from torch_xla.debug import model_comparator as model_comparator
    from torch_xla.debug import profiler as profiler


__getattr__ = _submodules.importing(__name__)
