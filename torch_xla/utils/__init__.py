"""Small things that programs import as `torch_xla.utils.<name>`."""
