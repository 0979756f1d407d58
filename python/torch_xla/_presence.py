"""Where the package's libraries are: those that share classes with torch lie in a folder for each
minor version of it, `lib/torch-2.13`. Says clearly when there are none, in a folder of sources, or
none for this Python; before anything that needs them is imported."""

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import MutableSequence

_FOR_TORCH = "torch-"


def _search_path() -> MutableSequence[str]:
    """Where Python looks for the package's modules; it may be changed."""
    return sys.modules["torch_xla"].__path__


def _folders() -> dict[str, str]:
    """The folders for a torch, with or without a library for this Python, by its minor version."""
    found = {}
    for package in _search_path():
        lib = os.path.join(package, "lib")
        for name in os.listdir(lib) if os.path.isdir(lib) else ():
            if name.startswith(_FOR_TORCH):
                found[name.removeprefix(_FOR_TORCH)] = os.path.join(lib, name)
    return found


def _extensions(folder: str) -> list[str]:
    return [e for e in os.listdir(folder) if e.startswith("_XLAC.") and e.endswith(".so")]


def versions_of_torch() -> list[str]:
    """The minor versions of torch that there are libraries for, the oldest first."""
    return sorted(_folders(), key=lambda version: [*map(int, version.split("."))])


def choose(torch: str) -> None:
    """Let the package's `_XLAC` be the one for a minor version of torch, which there must be."""
    _search_path().append(_folders()[torch])


def _absent() -> str | None:
    """What to do where no library is for this Python."""
    package = os.path.dirname(__file__)
    found = [name for folder in _folders().values() for name in _extensions(folder)]
    if not found or importlib.util.find_spec("torch_xla._built_for") is None:
        return (
            f"torch_xla in {package} is a folder of sources, without the libraries that are built "
            "of them: take it off the path to import what is installed, or run `pip install "
            "--no-build-isolation .` where its pyproject.toml is"
        )
    if not any(f"_XLAC{suffix}" in found for suffix in importlib.machinery.EXTENSION_SUFFIXES):
        python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
        return (
            f"torch_xla in {package} is built for another Python than this one, {python}: its "
            f"library is {min(found)}; install it with this Python's pip"
        )
    return None


def check() -> None:
    """Raise ImportError unless there is a library for this Python."""
    absent = _absent()
    if absent is not None:
        raise ImportError(absent)


check()
