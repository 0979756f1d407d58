"""Chooses the libraries for the installed torch: C++ classes are shared between the two, so that
each serves one minor version of torch. Says clearly when there are none for it, and when another
torch_xla is installed."""

import os
import sys

import torch

from torch_xla import _built_for, _presence


def _distributions() -> list[tuple[str, str]]:
    """The versions of the distributions called torch_xla on the path, and where they are.

    By the names of their folders: importlib.metadata takes as long to import as all of this.
    """
    found = []
    for folder in sys.path:
        try:
            entries = os.listdir(folder or ".")
        except OSError:
            continue
        for entry in entries:
            name, _, rest = entry.partition("-")
            if name.lower() == "torch_xla" and rest.endswith((".dist-info", ".egg-info")):
                found.append((rest.rpartition(".")[0], folder))
    return found


def _minor(version: str) -> str:
    return ".".join(version.partition("+")[0].split(".")[:2])


def installed_beside() -> str | None:
    """What to do about another torch_xla, if one is installed: its files and ours have the same
    names."""
    for version, folder in _distributions():
        if _minor(version) != _minor(_built_for.VERSION):
            return (
                f"torch_xla {version}, another distribution of that name, is in {folder}, "
                "beside this one, and each overwrites the other's files: run `pip uninstall "
                "torch_xla` until it finds none, then install this one again"
            )
    return None


def _mismatch(installed: str) -> str:
    """What to do about a torch of another version than there are libraries for."""
    built = _presence.versions_of_torch()
    oldest, untested = (tuple(map(int, each.split("."))) for each in _built_for.SUPPORTED)
    numbers = tuple(map(int, _minor(installed).split(".")))
    last = f"{untested[0]}.{untested[1] - 1}"
    build = (
        "in a copy of its sources, run `pip install --no-build-isolation --no-deps "
        "--force-reinstall .`, which builds for the torch that is installed"
    )
    if numbers < oldest:
        build = f"torch_xla needs torch {_built_for.SUPPORTED[0]} or newer"
    elif numbers >= untested:
        build += (
            f"; torch_xla supports torch {_built_for.SUPPORTED[0]} to {last} "
            "(docs/dev/new_torch.md)"
        )
    return (
        f"this build of torch_xla is for torch {' and '.join(built)}, but torch {installed} is "
        f"installed: {build}; or install torch=={built[-1]}.*"
    )


def choose() -> None:
    """Let the package's libraries be those for the installed torch.

    Raises:
        ImportError: there are none for it, or another torch_xla is installed.
    """
    beside = installed_beside()
    if beside is not None:
        raise ImportError(beside)
    if _minor(torch.__version__) not in _presence.versions_of_torch():
        raise ImportError(_mismatch(torch.__version__))
    _presence.choose(_minor(torch.__version__))


choose()
