"""The modules that programs import as `torch_xla.core.<name>`."""
