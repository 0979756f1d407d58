"""Says clearly when this build does not fit the installed torch: C++ classes are shared between the
two, so a build serves one minor version of torch."""

import torch

BUILT_FOR = "2.13"


def check() -> None:
    """Raise ImportError unless torch has the version that this build was made for."""
    installed = ".".join(torch.__version__.split("+")[0].split(".")[:2])
    if installed != BUILT_FOR:
        raise ImportError(
            f"this build of torch_xla is for torch {BUILT_FOR}, but torch {torch.__version__} is "
            f"installed; install torch=={BUILT_FOR}.*, or the torch_xla of version {installed}"
        )


check()
