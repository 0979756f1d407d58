"""`torch.compile(backend="openxla")`: PyTorch's backend of that name calls this module with the
graphs that Dynamo and AOTAutograd made."""

from torch_xla._torch.dynamo_graphs import (
    GraphInputMatcher as GraphInputMatcher,
    extract_compiled_graph as extract_compiled_graph,
)
