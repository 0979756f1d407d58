"""Calls of PyTorch's kernels for integers: which operators become calls, and what they give."""

from __future__ import annotations

import itertools

import pytest
import torch
from with_settings import calls_in

import torch_xla.runtime as xr

pytestmark = pytest.mark.skipif(
    xr.device_type() != "CPU", reason="programs call the host on the CPU alone"
)

_OF_INTEGERS = {
    "amax": lambda x: x.amax(1),
    "aminmax": lambda x: torch.aminmax(x).max,
    "argmax": lambda x: x.argmax(1),
    "count_nonzero": torch.count_nonzero,
    "cummax": lambda x: x.cummax(1).indices,
    "cumprod": lambda x: x.cumprod(1),
    "cumsum": lambda x: x.cumsum(1),
    "kthvalue": lambda x: x.kthvalue(9, 1).values,
    "max": torch.max,
    "max.dim": lambda x: x.max(1).values,
    "median.dim": lambda x: x.median(1).values,
    "min": torch.min,
    "searchsorted.Tensor": lambda x: torch.searchsorted(x[0].sort()[0], x),
    "sort.stable": lambda x: x.sort(stable=True, dim=1).indices,
    "topk": lambda x: x.topk(9, 1).values,
}


# Of booleans, scans alone are called.
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *itertools.product(_OF_INTEGERS, ("int8", "uint8", "int16", "int32", "int64")),
        ("cumprod", "bool"),
        ("cumsum", "bool"),
    ],
)
def test_the_same_values_of_integers(name, dtype):
    torch.manual_seed(0)
    x = torch.randint(0, 2 if dtype == "bool" else 99, (90, 80)).to(getattr(torch, dtype))
    got = _OF_INTEGERS[name](x.to("xla"))
    assert name in calls_in([got])
    assert torch.equal(got.cpu(), _OF_INTEGERS[name](x))


_FUNCTIONS_OF_INTEGERS = {
    "acos": torch.acos,
    "asin": torch.asin,
    "atan": torch.atan,
    "atan2": lambda x: torch.atan2(x, x + 1),
    "atanh": torch.atanh,
    "cos": torch.cos,
    "exp2": torch.exp2,
    "lgamma": torch.lgamma,
    "log1p": torch.log1p,
    "sin": torch.sin,
    "special_ndtri": torch.special.ndtri,
    "special_zeta.other_scalar": lambda x: torch.special.zeta(x, 2.0),
    "special_zeta.self_scalar": lambda x: torch.special.zeta(3, x),
    "special_zeta": lambda x: torch.special.zeta(x, x.double() + 1),
    "tan": torch.tan,
}


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
@pytest.mark.parametrize(
    ("name", "default"),
    [
        *itertools.product(_FUNCTIONS_OF_INTEGERS, (torch.float32, torch.float64)),
        ("cos", torch.bfloat16),
    ],
)
def test_the_same_functions_of_integers(name, dtype, default):
    """Whatever the default dtype is when the program runs."""
    function = _FUNCTIONS_OF_INTEGERS[name]
    x = torch.arange(40000).remainder(7).to(dtype)
    torch.set_default_dtype(default)
    try:
        got = function(x.to("xla"))
        expected = function(x)
    finally:
        torch.set_default_dtype(torch.float32)
    assert name in calls_in([got])
    tolerance = 1e-2 if default == torch.bfloat16 else 1e-6
    torch.testing.assert_close(got.cpu(), expected, rtol=tolerance, atol=tolerance, equal_nan=True)
