"""Functions far from where they are usually asked: of large numbers, and of high orders."""

from __future__ import annotations

import mpmath
import pytest
import torch


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["sinh", "cosh"])
def test_large_hyperbolic_functions_lose_nothing(name: str, dtype: torch.dtype):
    x = torch.tensor([0.0, 1e-20, 0.5, 0.9999999, 1.0, 5.0, 33.0, 60.5, 88.0, 89.2], dtype=dtype)
    x = torch.cat([x, -x])
    expected = getattr(torch, name)(x.double())
    actual = getattr(torch, name)(x.to("xla")).cpu()
    torch.testing.assert_close(actual.double(), expected, rtol=6 * torch.finfo(dtype).eps, atol=0)


def test_hyperbolic_functions_beyond_the_range_are_infinite():
    x = torch.tensor([90.0, -90.0, torch.inf, -torch.inf, torch.nan], device="xla")
    inf = torch.inf
    expected = torch.tensor([inf, -inf, inf, -inf, torch.nan])
    torch.testing.assert_close(x.sinh().cpu(), expected, equal_nan=True)
    torch.testing.assert_close(x.cosh().cpu(), expected.abs(), equal_nan=True)


@pytest.mark.parametrize(
    ("order", "q"), [(1.5, 12.0), (33.0, 10.0), (100.0, 10.0), (100.0, 33.0), (12.0, 0.3)]
)
def test_zeta_of_high_orders(order: float, q: float):
    x = torch.tensor([order], dtype=torch.float64, device="xla")
    actual = torch.special.zeta(x, torch.full_like(x, q)).item()
    assert actual == pytest.approx(float(mpmath.zeta(order, q)), rel=1e-12, abs=0)


def test_zeta_far_below_zero():
    """It takes as many steps as there are numbers on the way."""
    q = torch.tensor([-20000.5, -0.5])
    actual = torch.special.zeta(torch.tensor([2.0], device="xla"), q.to("xla")).cpu()
    torch.testing.assert_close(actual, torch.special.zeta(torch.tensor([2.0]), q))


def test_polygamma_of_a_high_order():
    actual = torch.polygamma(40, torch.tensor([12.5], dtype=torch.float64, device="xla")).item()
    assert actual == pytest.approx(float(mpmath.polygamma(40, 12.5)), rel=1e-12, abs=0)


@pytest.mark.parametrize("a", [100.0, 999.0, 1001.0, 5000.0, 1e5])
@pytest.mark.parametrize("deviations", [-6.0, -1.0, -0.1, 0.0, 1.0, 6.0])
def test_incomplete_gamma_functions(a: float, deviations: float):
    x = a + deviations * a**0.5
    on_xla = [torch.tensor([v], dtype=torch.float64, device="xla") for v in (a, x)]
    for function, ends in ((torch.special.gammainc, (0, x)), (torch.special.gammaincc, (x, "inf"))):
        with mpmath.workdps(30):
            expected = float(mpmath.gammainc(a, *ends, regularized=True))
        assert function(*on_xla).item() == pytest.approx(expected, rel=2e-12, abs=0)


def test_incomplete_gamma_functions_of_huge_numbers():
    """Near a normal distribution of mean and variance `a`."""
    a = torch.tensor([1e8, 1e10, 1e12], dtype=torch.float64)
    for deviations in (-2.0, 0.0, 2.0):
        x = a + deviations * a.sqrt()
        actual = torch.special.gammainc(a.to("xla"), x.to("xla")).cpu()
        torch.testing.assert_close(actual, torch.special.gammainc(a, x), rtol=1e-9, atol=0)


def test_polynomials_of_degrees_beyond_counting_are_nan():
    x = torch.tensor([0.3, 1.0], device="xla")
    assert torch.special.chebyshev_polynomial_t(x, 2**24).isnan().all()
    expected = torch.special.chebyshev_polynomial_t(torch.tensor([1.0]), 2000000)
    assert torch.equal(torch.special.chebyshev_polynomial_t(x, 2000000).cpu()[1:], expected)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
def test_least_common_multiples_beyond_the_dtype(dtype: torch.dtype):
    top = torch.iinfo(dtype).max
    numbers = torch.tensor([0, 1, 2, 7, 100, top, top - 1, -3, -100, -top], dtype=dtype)
    a, b = torch.cartesian_prod(numbers, numbers).t().contiguous()
    assert torch.equal(torch.lcm(a.to("xla"), b.to("xla")).cpu(), torch.lcm(a, b))


@pytest.mark.parametrize("eps", [0.2, 0.5, 0.7, 1.0])
def test_logit_whose_limits_may_have_changed_places(eps: float):
    x = torch.tensor([-1.0, 0.0, 0.2, 0.5, 0.8, 1.0, 1.5, torch.nan])
    torch.testing.assert_close(x.to("xla").logit(eps).cpu(), x.logit(eps), equal_nan=True)
    on_xla = x.to("xla").requires_grad_()
    on_cpu = x.clone().requires_grad_()
    on_xla.logit(eps).sum().backward()
    on_cpu.logit(eps).sum().backward()
    assert on_xla.grad is not None
    torch.testing.assert_close(on_xla.grad.cpu(), on_cpu.grad, equal_nan=True)
