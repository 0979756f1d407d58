"""Says clearly when the package's libraries are not there: in a folder of sources, or for another
Python. Before anything that needs them is imported."""

import importlib.util
import os
import sys


def _absent(folder: str) -> str:
    """What to do where `folder`, the package, has no library for this Python."""
    python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    others = [e for e in os.listdir(folder) if e.startswith("_XLAC.") and e.endswith(".so")]
    if others:
        return (
            f"torch_xla in {folder} is built for another Python than this one, {python}: its "
            f"library is {min(others)}; install it with this Python's pip"
        )
    return (
        f"torch_xla in {folder} is a folder of sources, without the libraries that are built of "
        "them: take it off the path to import what is installed, or run `pip install "
        "--no-build-isolation .` where its pyproject.toml is"
    )


def check() -> None:
    """Raise ImportError unless there is a library for this Python."""
    if any(importlib.util.find_spec(f"torch_xla.{n}") is None for n in ("_built_for", "_XLAC")):
        raise ImportError(_absent(os.path.dirname(__file__)))


check()
