"""Starting replicas, under the name that a few programs import."""

from torch_xla._replicas.launch import spawn as spawn
