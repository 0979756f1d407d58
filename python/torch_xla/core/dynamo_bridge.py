"""`torch.compile(backend="openxla")`: PyTorch's backend of that name calls this module with the
graphs that Dynamo and AOTAutograd made."""

from torch_xla import _other_names
from torch_xla._torch.dynamo_graphs import (
    GraphInputMatcher as GraphInputMatcher,
    extract_compiled_graph as extract_compiled_graph,
)
from torch_xla.core.xla_model import is_xla_tensor as is_xla_tensor

extract_compiled_graph_helper = extract_compiled_graph

__all__ = [
    "GraphInputMatcher",
    "extract_compiled_graph",
    "extract_compiled_graph_helper",
    "is_xla_tensor",
]

__getattr__ = _other_names.refusing(__name__)
