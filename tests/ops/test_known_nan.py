"""NaN that the compiler knows before the program runs, as a mean of nothing, stays NaN in whatever
is fused with it (docs/dev/known_nan.md)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from processes import run_in_process
from torch import Tensor
from torch.nn import functional

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "sigmoid": torch.sigmoid,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "tanh": torch.tanh,
    "erfc": torch.erfc,
    "pow": lambda x: 2**x,
    "elu": functional.elu,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "softplus": functional.softplus,
    "logsigmoid": functional.logsigmoid,
    "softmax": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(0),
    "logsumexp": lambda x: x.logsumexp(0),
    "logcumsumexp": lambda x: x.logcumsumexp(0),
    "relu": torch.relu,
    "clamp": lambda x: x.clamp(-1, 1),
    "maximum": lambda x: torch.maximum(torch.zeros_like(x), x),
    "minimum": lambda x: torch.minimum(x, torch.ones_like(x)),
    "hardsigmoid": functional.hardsigmoid,
    "i0e": torch.special.i0e,
    "i1e": torch.special.i1e,
    "log_ndtr": torch.special.log_ndtr,
    "exp of rsqrt": lambda x: x.rsqrt().exp(),
    "exp of one of two": lambda x: torch.where(x > 0.4, torch.ones_like(x), x).exp(),
    "complex exp": lambda x: torch.view_as_real(torch.complex(x, x).exp()),
    "complex exp of a real number": lambda x: torch.complex(x, x * 0 + 0).exp().real,
    "complex sinh": lambda x: torch.complex(x, x).sinh().real,
}
HALVES = [torch.bfloat16, torch.float16]
# The CPU's functions take no complex numbers of halves, and `log_ndtr` no halves.
CASES = [
    (name, dtype)
    for name in FUNCTIONS
    for dtype in [torch.float32, torch.float64]
    + ([] if "complex" in name or name == "log_ndtr" else HALVES)
]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_nan_that_is_known_stays_nan(device: torch.device, name: str, dtype: torch.dtype):
    x = torch.tensor([0.25, 0.5, 0.75], dtype=dtype)
    nothing = torch.zeros(0, 3, dtype=dtype)

    def of(x: Tensor, nothing: Tensor) -> list[Tensor]:
        nan = nothing.mean(0)
        chosen = torch.where(x > 0.6, torch.ones_like(x), nan)
        # What of these is data makes no difference.
        places = (x * 3).long()
        zeros = (places - places).to(x.dtype)
        alike = [torch.where(x > 0.6, nan, nan), nan[places], zeros / zeros]
        return [FUNCTIONS[name](value) for value in (x + nan, nan, chosen, *alike)]

    results = of(x.to(device), nothing.to(device))
    for got, expected in zip(results, of(x, nothing), strict=True):
        torch.testing.assert_close(got.cpu(), expected, equal_nan=True, rtol=2e-2, atol=2e-2)


SPMD = """
import numpy as np, torch, torch_xla
import torch_xla.distributed.spmd as xs, torch_xla.runtime as xr
xr.use_spmd()
x, nothing = torch.rand(4).to("xla"), torch.zeros(0, 4).to("xla")
xs.mark_sharding(x, xs.Mesh(np.arange(2), (2,), ("data",)), ("data",))
torch_xla.sync()
print((x + nothing.mean(0)).exp().isnan().all().item())
"""


def test_in_a_program_for_several_devices():
    assert run_in_process(SPMD, CPU_NUM_DEVICES="2").split() == ["True"]
