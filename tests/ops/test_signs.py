"""What is promised of signs, NaN, infinities and subnormal numbers (docs/errors.md) holds in every
fusion."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

NAN, INF = float("nan"), float("inf")
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def edges(dtype):
    """NaNs of both signs, zeros, subnormal numbers, infinities."""
    tiny = torch.finfo(dtype).tiny
    values = [NAN, 0.0, tiny / 4, tiny, 1.0, torch.finfo(dtype).max, INF]
    x = torch.tensor(values, dtype=dtype)
    return torch.cat([x, bits(bits(x) ^ bits(torch.tensor(-0.0, dtype=dtype)), dtype)])


def bits(x, dtype=None):
    size = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    return x.view(size) if dtype is None else x.view(dtype)


def assert_same_bits(want, got):
    got = got.cpu()
    assert (want.dtype, want.shape) == (got.dtype, got.shape)
    if want.dtype.is_floating_point:
        want, got = bits(want), bits(got)
    assert torch.equal(want, got), f"{want.tolist()} on cpu, {got.tolist()} on xla"


EXACT = {
    "sign": torch.sign,
    "sgn": torch.sgn,
    "signbit": torch.signbit,
    "copysign": lambda x: torch.copysign(x, x.flip(0)),
    "copysign of number": lambda x: torch.copysign(x, -2),
    "copysign of number then more": lambda x: -torch.copysign(x.nan_to_num(), -2),
    "sign of sign": lambda x: torch.sign(x) * 2 + torch.sign(x.flip(0)),
    "abs": torch.abs,
    "nan_to_num": torch.nan_to_num,
    "isnan": torch.isnan,
    "isfinite": torch.isfinite,
    "moved": lambda x: torch.cat([x.flip(0), x])[1:-1].reshape(2, -1).t(),
    "where": lambda x: torch.where(torch.signbit(x), x, x.flip(0)),
    "mantissa": lambda x: torch.frexp(x)[0].nan_to_num(7),
    "exponent": lambda x: torch.frexp(x)[1],
    "sign then more": lambda x: torch.signbit(torch.copysign(x.flip(0), x)).to(x.dtype) - 0.5,
}


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("dtype", FLOATS)
def test_bits_are_those_of_the_cpu(name, dtype):
    x = edges(dtype)
    assert_same_bits(EXACT[name](x), EXACT[name](x.to("xla")))


@pytest.mark.parametrize("dtype", FLOATS)
def test_signs_of_what_was_computed(dtype):
    """Where the sign is that of a number: arithmetic makes NaNs of any sign."""

    def program(x):
        product = x * torch.tensor([2.0, -1.0], dtype=dtype, device=x.device).repeat(4)
        return torch.sign(product), torch.copysign(product + 1, product), torch.signbit(-product)

    x = torch.tensor([0.0, -0.0, 1.0, -1.0, INF, -INF, 2.0, -0.25], dtype=dtype)
    for want, got in zip(program(x), program(x.to("xla")), strict=True):
        assert_same_bits(want, got)
    has_none = torch.tensor([NAN, 0.0], dtype=dtype).to("xla")
    assert torch.sign(has_none * 2 + has_none).tolist() == [0, 0]


MASKED = {
    "bool tensor": lambda x: torch.tensor([True, False], device=x.device).repeat(7) * x,
    "comparison": lambda x: x * (x > 0),
    "converted": lambda x: (x > 0).to(x.dtype) * x,
    "number": lambda x: (x > 0) * INF,
    "in place": lambda x: (x > 0).to(x.dtype).mul_(x),
    "twice": lambda x: (x > 0) * (x < 1) * x,
    "addcmul": lambda x: torch.addcmul(x, (x > 0).to(x.dtype), x.flip(0)),
    "quotient": lambda x: (x > 0) / torch.isnan(x),
    "0-dim": lambda x: x * (x[0] > 0),
}


@pytest.mark.parametrize("name", MASKED)
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_boolean_factor_hides_nothing(name, dtype):
    x = edges(dtype)
    x = x[(x == 0) | (x.abs() >= torch.finfo(dtype).tiny) | x.isnan()].repeat(2)[:14]
    want, got = MASKED[name](x), MASKED[name](x.to("xla")).cpu()
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    numbers = ~want.isnan() & ((want != 0) | (name != "addcmul"))
    assert torch.equal(torch.signbit(got)[numbers], torch.signbit(want)[numbers])


@pytest.mark.optimized
@pytest.mark.parametrize("dtype", FLOATS)
def test_limits_of_functions(dtype):
    x = torch.tensor([-INF, INF, NAN, 1.0, 2.0, -10.0, 10.0, 100.0, -100.0], dtype=dtype)
    functions = [functional.gelu, torch.erf, torch.lgamma, functional.silu, functional.mish]
    for f in functions:
        want = f(x)
        if f is functional.gelu:
            want[1] = INF  # the CPU's is NaN where it uses AVX-512
        torch.testing.assert_close(f(x.to("xla")).cpu(), want, equal_nan=True)
    assert torch.lgamma(x[3:5].to("xla")).tolist() == [0, 0]
    assert functional.gelu(x[:1].to("xla")).isnan().item()
    if dtype is torch.float32:
        assert torch.erf(x[6:8].to("xla")).tolist() == [1, 1]


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.complex64])
@pytest.mark.parametrize("exponent", [torch.int64, torch.uint8, torch.float32])
def test_ldexp_has_the_dtype_of_its_mantissa(dtype, exponent):
    x = torch.tensor([1, 2, 3]).to(dtype)
    n = torch.tensor([0, 3, 5]).to(exponent)
    # The CPU warns of its own result where the mantissa alone is 0-dim.
    for mantissa, power in ((x, n), (x[1], n[1]), (x, n[1])):
        want = torch.ldexp(mantissa, power)
        got = torch.ldexp(mantissa.to("xla"), power.to("xla"))
        assert got.dtype == want.dtype
        torch.testing.assert_close(got.cpu(), want)


def test_ldexp_has_room_where_the_power_has_none():
    x, n = torch.tensor([1e-30, 1e30, 1.0, 1.0]), torch.tensor([200, -200, 1000, -1000])
    torch.testing.assert_close(torch.ldexp(x.to("xla"), n.to("xla")).cpu(), torch.ldexp(x, n))
    # Zero times any power of two is zero; of integers PyTorch multiplies by what may be infinite.
    for zero in (torch.zeros(4), torch.zeros(4).double(), torch.zeros(4).half(), n * 0):
        exponents = torch.tensor([255, 900, 3000, -3000])
        got = torch.ldexp(zero.to("xla"), exponents.to("xla")).cpu()
        torch.testing.assert_close(got, torch.ldexp(zero, exponents), equal_nan=True)
    with pytest.raises(NotImplementedError, match="ldexp_cpu_exp"):
        torch.ldexp(x.to("xla"), n.bool().to("xla"))
    powers = [torch.ldexp(m.to("xla"), n.bool().to("xla")).cpu() for m in (n, n.bool())]
    assert all(map(torch.equal, powers, [torch.ldexp(m, n.bool()) for m in (n, n.bool())]))


def test_an_operand_is_not_resized_as_out():
    for device in ("cpu", "xla"):
        x, y = torch.ones(5, device=device), torch.tensor(3.0, device=device)
        for f in (torch.add, torch.atan2, torch.eq):
            with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
                f(x, y, out=y)
        assert y.tolist() == 3
