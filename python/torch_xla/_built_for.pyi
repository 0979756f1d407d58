"""What the libraries beside it were built from and for: `cmake/built_for.py.in`."""

VERSION: str
"""That of torch_xla."""

TORCH: str
"""The minor version of torch whose classes the libraries share."""

SUPPORTED: tuple[str, str]
"""The oldest minor version of torch that the sources are for, and the first that they are not."""
