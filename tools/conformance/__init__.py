"""Runs PyTorch's own op database on the xla device and compares with the CPU."""
