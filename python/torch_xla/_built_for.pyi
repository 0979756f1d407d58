"""What the package's libraries were built from and for: `cmake/built_for.py.in`."""

VERSION: str
"""That of torch_xla."""

SUPPORTED: tuple[str, str]
"""The oldest minor version of torch that the sources are for, and the first that they are not."""
