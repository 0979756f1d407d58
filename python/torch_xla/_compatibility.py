"""Says clearly when this build does not fit the installed torch: C++ classes are shared between the
two, so a build serves one minor version of torch. And when another torch_xla is installed."""

import os
import sys

import torch

BUILT_FOR = "2.13"


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


def installed_beside() -> str | None:
    """What to do about another torch_xla, if one is installed: its files and ours have the same
    names."""
    for version, folder in _distributions():
        if not version.startswith(f"{BUILT_FOR}."):
            return (
                f"torch_xla {version}, another distribution of that name, is in {folder}, "
                "beside this one, and each overwrites the other's files: run `pip uninstall "
                "torch_xla` until it finds none, then install this one again"
            )
    return None


def check() -> None:
    """Raise ImportError unless torch has the version that this build was made for, and no other
    torch_xla is installed."""
    beside = installed_beside()
    if beside is not None:
        raise ImportError(beside)
    installed = ".".join(torch.__version__.split("+")[0].split(".")[:2])
    if installed != BUILT_FOR:
        raise ImportError(
            f"this build of torch_xla is for torch {BUILT_FOR}, but torch {torch.__version__} is "
            f"installed; install torch=={BUILT_FOR}.*, or the torch_xla of version {installed}"
        )


check()
