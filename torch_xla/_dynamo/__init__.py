"""Backends of `torch.compile` under the names of torch_xla."""
