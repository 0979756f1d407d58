"""`scan`: a Python loop over the slices of tensors as one loop of the program."""

from torch_xla._capture.scan import default_partition as default_partition, scan as scan
