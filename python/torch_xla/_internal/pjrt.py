"""Starting replicas, under the name that a few programs import."""

from torch_xla.distributed.xla_multiprocessing import spawn as spawn
