"""Options of XLA's compiler for the CPU with which it takes a third to a fifth of the time, for
slower programs that may round otherwise: for what compiles much and is judged by its values. As a
program it prints them as `XLA_FLAGS`."""

from __future__ import annotations

import torch_xla

_OPTIONS: dict[str, bool | int] = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
}

XLA_FLAGS = " ".join(f"--{name}={str(value).lower()}" for name, value in _OPTIONS.items())

# Of processes that start.
COMPILING_QUICKLY = {"XLA_FLAGS": XLA_FLAGS}


def quick_compile_options() -> dict[str, bool | int]:
    """Of this process's platform; other platforms' compilers know no such options."""
    return _OPTIONS if torch_xla.runtime.device_type() == "CPU" else {}


if __name__ == "__main__":
    print(XLA_FLAGS)
