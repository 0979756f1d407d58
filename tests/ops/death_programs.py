"""The programs of tests/ops/deaths.txt, as `test_deaths.py` has them run in a child process."""

from __future__ import annotations

import pathlib
from typing import Any

import torch

import torch_xla  # noqa: F401 (the device)

_LIST = pathlib.Path(__file__).with_name("deaths.txt")
_INTEGERS = "uint8,int8,int16,int32,int64,uint16,uint32,uint64"


def programs() -> list[tuple[str, str, str]]:
    """The dtype, the program and what it gives."""
    lines = (line.strip() for line in _LIST.read_text().splitlines())
    found = [line.split(" | ") for line in lines if line and not line.startswith("#")]
    return [
        (dtype, program, outcome)
        for dtypes, program, outcome in found
        for dtype in dtypes.replace("integers", _INTEGERS).split(",")
    ]


def run(dtype_name: str, program: str, outcome: str) -> str:
    """What is wrong with what the program gives, or nothing."""
    dtype = getattr(torch, dtype_name)

    def data(*sizes: int) -> torch.Tensor:
        return (torch.arange(torch.Size(sizes).numel()) % 2 + 1).to(dtype).view(sizes).to("xla")

    def zero(*sizes: int) -> torch.Tensor:
        return torch.zeros(sizes, device="xla", dtype=dtype)

    def pool_gradient(pool: Any, size: int) -> int:
        x = data(1, 1, 3, 3).requires_grad_()
        pool(x, (1, size)).sum().backward()
        assert x.grad is not None
        return round(float(x.grad.double().sum()))

    names = {"torch": torch, "d": "xla", "dtype": dtype, "data": data, "zero": zero}
    names["pool_gradient"] = pool_gradient
    names["ones"] = torch.tensor(-1).to(dtype).item() if not dtype.is_complex else None
    try:
        value = eval(program, names)
        value = value.tolist() if isinstance(value, torch.Tensor) else value
    except Exception as error:
        value = error
    if outcome.endswith("Error"):
        return "" if type(value).__name__ in outcome.split(",") else f"{type(value)}: {value}"
    expected = eval(outcome, names)
    return "" if value == expected else f"{value}, expected {expected}"
