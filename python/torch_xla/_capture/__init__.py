"""Functions that are recorded once and then stand as one node in the graph.

`regions` captures a function, `closed_over` finds what it takes from elsewhere, `halves` divides it
into its forward and its backward pass. `scan`, `loops` and `optimization_barrier` stand on these.
"""

from torch_xla import _submodules

__getattr__ = _submodules.importing(__name__)
