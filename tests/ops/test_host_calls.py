"""Operators that StableHLO cannot express: on the CPU, programs call PyTorch's kernels for them, so
that the graph is not cut and nothing is read."""

from __future__ import annotations

import counts
import pytest
import torch
from with_settings import calls_in

import torch_xla
import torch_xla.debug.metrics as metrics
import torch_xla.runtime as xr

pytestmark = pytest.mark.skipif(
    xr.device_type() != "CPU", reason="programs call the host on the CPU alone"
)

_CALLS = {
    "svd": lambda a: torch.linalg.svd(a).S,
    "eigh": lambda a: torch.linalg.eigh(a + a.mT.conj()).eigenvalues,
    "eig": lambda a: torch.linalg.eig(a).eigenvalues.abs().sort().values,
    "pinv": lambda a: torch.linalg.pinv(a),
    "lstsq": lambda a: torch.linalg.lstsq(a, a[..., :2]).solution,
    "gels": lambda a: torch.linalg.lstsq(a[..., :2], a, driver="gels").residuals,
    "gels of vectors": lambda a: (
        torch.linalg.lstsq(a[..., :2], a[..., 0].contiguous(), driver="gels").residuals
    ),
    "gelsy": lambda a: torch.linalg.lstsq(a[..., :2], a, driver="gelsy").solution,
    "gelsd": lambda a: torch.linalg.lstsq(a, a, driver="gelsd").singular_values,
    "ldl_solve": lambda a: torch.linalg.ldl_solve(*torch.linalg.ldl_factor_ex(a + a.mT)[:2], a),
    "matrix_exp": lambda a: torch.linalg.matrix_exp(a),
    "ormqr": lambda a: torch.ormqr(*torch.geqrf(a), a),
}
_DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


@pytest.mark.parametrize("dtype", _DTYPES, ids=str)
@pytest.mark.parametrize("name", _CALLS)
def test_host_call_is_part_of_one_program(name, dtype):
    a = torch.randn(2, 4, 4, dtype=dtype) + 2 * torch.eye(4, dtype=dtype)
    on_device = a.to("xla")
    metrics.clear_counters()
    with counts.counted() as work:
        result = _CALLS[name](on_device * 1.5) + 1
        torch_xla.sync(wait=True)
    assert work.executed == 1
    assert not counts.left_the_device()
    torch.testing.assert_close(result.cpu(), _CALLS[name](a * 1.5) + 1, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_exponential_of_half_precision_is_part_of_the_program(dtype):
    a = torch.linspace(-1, 1, 18).reshape(2, 3, 3).to(dtype)
    on_device = a.to("xla")
    metrics.clear_counters()
    result = torch.linalg.matrix_exp(on_device)
    assert metrics.counter_value("aten::linalg_matrix_exp") is None
    torch.testing.assert_close(result.cpu(), torch.linalg.matrix_exp(a))


_TRANSFORMS = {
    "fft": torch.fft.fft,
    "fft, by the root": lambda x: torch.fft.fft(x, norm="ortho"),
    "ifft": lambda x: torch.fft.ifft(x, norm="backward"),
    "ifft, undivided": lambda x: torch.fft.ifft(x, norm="forward"),
    "fft2": torch.fft.fft2,
    "fftn of all": lambda x: torch.fft.fftn(x, dim=(0, 1, 2)),
    "fft of the first": lambda x: torch.fft.fft(x, dim=0),
    "ifft of the middle": lambda x: torch.fft.ifft(x, dim=1),
    "fft of a transposed": lambda x: torch.fft.fft(x.mT),
    "rfft": lambda x: torch.fft.rfft(x.real.contiguous()),
    "rfft2": lambda x: torch.fft.rfft2(x.real.contiguous(), norm="ortho"),
    "fft of reals": lambda x: torch.fft.fft(x.real.contiguous()),
    "irfft": lambda x: torch.fft.irfft(x),
}


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
@pytest.mark.parametrize("sizes", [(7, 31, 250), (5, 64, 128), (1, 3, 20001)], ids=str)
@pytest.mark.parametrize("name", _TRANSFORMS)
def test_transforms_in_blocks(name, sizes, dtype):
    """Sizes that are no power of two, and more arrays than threads share evenly."""
    torch.manual_seed(0)
    x = torch.randn(sizes, dtype=dtype)
    on_device = x.to("xla")
    got, expected = _TRANSFORMS[name](on_device), _TRANSFORMS[name](x)
    assert {call for call in calls_in([got]) if "fft" in call}
    tolerance = 1e-12 if dtype == torch.complex128 else 1e-5
    scale = expected.abs().max().item()
    torch.testing.assert_close(got.cpu(), expected, rtol=tolerance, atol=tolerance * scale)
    assert torch.equal(_TRANSFORMS[name](on_device).cpu(), got.cpu())


def test_gradient_passes_through_a_host_call():
    a = torch.randn(5, 3)
    grads = []
    for device in ("cpu", "xla"):
        x = a.to(device).detach().requires_grad_()
        torch.linalg.svdvals(x).square().sum().backward()
        grads.append(x.grad.cpu())
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-4, atol=1e-4)


def test_histograms_are_computed_inside_the_program():
    x = torch.rand(50, 2)
    metrics.clear_counters()
    for expected, actual in zip(
        (*torch.histogram(x, 5), *torch.histogram(x, torch.linspace(0, 1, 4), weight=x)),
        (
            *torch.histogram(x.to("xla"), 5),
            *torch.histogram(x.to("xla"), torch.linspace(0, 1, 4).to("xla"), weight=x.to("xla")),
        ),
        strict=True,
    ):
        torch.testing.assert_close(actual.cpu(), expected)
    assert metrics.counter_value("aten::histogram.bin_ct") is None


def test_what_the_kernel_refuses_is_raised_where_the_result_is_read():
    x = torch.full((3, 3), float("nan"), device="xla")
    values = torch.linalg.eigvals(x)
    with pytest.raises(RuntimeError, match="should not contain infs or NaNs"):
        values.cpu()


@pytest.mark.parametrize(
    "pivots", [[0, 1, 1], [1, 4, 1], [1, -4, -4], [1, 1, -1], [-2, -1, 1]], ids=str
)
def test_made_up_pivots_never_reach_lapack(pivots):
    """Which writes to the rows that they name, wherever these lie."""
    factors, found, _ = torch.linalg.ldl_factor_ex(torch.eye(3, device="xla").expand(2, 3, 3))
    b = torch.ones(2, 3, 2, device="xla")
    assert torch.linalg.ldl_solve(factors, found, b).cpu().eq(1).all()
    made_up = torch.tensor([found[0].tolist(), pivots], dtype=torch.int32)
    solved = torch.linalg.ldl_solve(factors, made_up.to("xla"), b)
    with pytest.raises(RuntimeError, match=r"pivots must be what ldl_factor returned, got .* of 3"):
        solved.cpu()


def test_pivots_of_two_rows_are_taken():
    a = torch.tensor([[0.0, 1, 2], [1, 0, 3], [2, 3, 0]])
    factors, pivots, _ = torch.linalg.ldl_factor_ex(a)
    assert (pivots < 0).any()
    b = torch.randn(3, 2)
    solved = torch.linalg.ldl_solve(factors.to("xla"), pivots.to("xla"), b.to("xla"))
    torch.testing.assert_close(solved.cpu(), torch.linalg.ldl_solve(factors, pivots, b))


@pytest.mark.filterwarnings("ignore:aten::_linalg_eigvals has no lowering")
def test_values_that_end_the_process_do_not_reach_the_cpu_by_a_fallback():
    # Of halves, which programs do not call it for.
    x = torch.full((3, 3), float("nan"), dtype=torch.float16, device="xla")
    with pytest.raises(RuntimeError, match="should not contain infs or NaNs"):
        torch.ops.aten._linalg_eigvals(x)


def test_what_types_tell_is_raised_at_the_call():
    for call in (
        lambda d: torch.linalg.eig(torch.ones(3, 4, device=d)),
        lambda d: torch.linalg.svd(torch.ones(3, device=d)),
        lambda d: torch.linalg.svd(torch.ones(3, 3, dtype=torch.float16, device=d)),
        lambda d: torch.linalg.matrix_exp(torch.ones(3, 4, device=d)),
        lambda d: torch.linalg.lstsq(torch.ones(3, 4, device=d), torch.ones(4, device=d)),
    ):
        with pytest.raises(Exception) as expected:
            call("cpu")
        with pytest.raises(expected.type) as actual:
            call("xla")
        assert str(expected.value).splitlines()[0] in str(actual.value)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_large_functions_of_one_element(dtype):
    """Of bfloat16 they are PyTorch's kernels where the processor has instructions for it."""
    x = torch.linspace(-4, 4, 512 * 513).to(dtype)
    names = ("exp", "erf", "log", "sigmoid", "silu", "gelu")
    functions = [getattr(torch, name, getattr(torch.nn.functional, name, None)) for name in names]

    def values_and_gradients(leaf):
        results = [function(leaf) for function in functions]
        total = sum(result.where(result.isfinite(), 0).sum() for result in results)
        return [*results, *torch.autograd.grad(total, leaf)]

    theirs = values_and_gradients(x.clone().requires_grad_())
    mine = values_and_gradients(x.to("xla").requires_grad_())
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    for actual, expected in zip(mine, theirs, strict=True):
        torch.testing.assert_close(
            actual.cpu(), expected, rtol=tolerance, atol=tolerance, equal_nan=True
        )
