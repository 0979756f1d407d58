"""On the CPU, programs call PyTorch's kernels where those are faster than what XLA makes: the same
values and gradients in every dtype, by the kernels that were chosen, with nothing read."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import counts
import pytest
import torch
from pinned_torch import IS_OLDER
from torch import nn
from torch.nn import functional as nnf
from with_settings import calls_in, optimized_hlo

import torch_xla
import torch_xla.debug.metrics as metrics
import torch_xla.runtime as xr

pytestmark = pytest.mark.skipif(
    xr.device_type() != "CPU", reason="programs call the host on the CPU alone"
)

_ALL = ("float32", "bfloat16", "float16", "float64")
_HALVES = ("bfloat16", "float16")
_SOME = ("bfloat16", "float64")
_FEW = ("float32", "bfloat16")
# Where the processor has no instructions for them, half precision is multiplied in float32.
_INSTRUCTIONS = {"avx512_bf16": "bfloat16", "avx512_fp16": "float16"}
_PRODUCTS = (
    "float32",
    "float64",
    *(
        half
        for name, half in _INSTRUCTIONS.items()
        if re.search(rf"^flags\b.*\b{name}\b", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    ),
)
_TOLERANCES = {"float32": 1e-4, "bfloat16": 4e-2, "float16": 6e-3, "float64": 1e-9}


@dataclasses.dataclass(frozen=True)
class Case:
    function: Callable[..., torch.Tensor]
    shapes: Sequence[tuple[int, ...]]
    calls: tuple[str, ...]  # what programs with and without gradients call, in the dtypes `called`
    called: tuple[str, ...] = _ALL
    asked: tuple[str, ...] = _ALL  # the dtypes that are tried


_CONVOLUTION = ("correlate", "correlate_adjoint_input", "correlate_adjoint_weight")
_CASES = {
    "conv1d": Case(lambda x, w: nnf.conv1d(x, w, padding=2), [(2, 3, 9), (4, 3, 5)], _CONVOLUTION),
    "conv2d": Case(
        lambda x, w, b: nnf.conv2d(x, w, b, stride=2, dilation=2, padding=3),
        [(2, 4, 9, 7), (6, 4, 3, 3), (6,)],
        (),
    ),
    "conv2d 1x1": Case(
        lambda x, w, b: nnf.conv2d(x, w, b), [(3, 4, 6, 5), (6, 4, 1, 1), (6,)], _CONVOLUTION
    ),
    "transposed conv1d of one": Case(
        lambda x, w: nnf.conv_transpose1d(x, w), [(2, 4, 9), (4, 3, 1)], _CONVOLUTION
    ),
    "depthwise conv2d": Case(
        lambda x, w: nnf.conv2d(x, w, padding=1, groups=4),
        [(2, 4, 6, 5), (4, 1, 3, 3)],
        _CONVOLUTION,
        asked=("float32", "bfloat16", "float16"),
    ),
    "causal conv1d": Case(
        lambda x, w: nnf.conv1d(nnf.pad(x, (3, 0)), w, groups=4),
        [(2, 4, 9), (4, 1, 4)],
        ("correlate", "correlate_adjoint_input", "depthwise_adjoint_weight"),
        asked=("bfloat16", "float16"),
    ),
    "grouped conv2d": Case(
        lambda x, w, b: nnf.conv2d(x, w, b, groups=2),
        [(2, 4, 6, 5), (6, 2, 3, 3), (6,)],
        _CONVOLUTION,
    ),
    "conv3d": Case(lambda x, w: nnf.conv3d(x, w), [(1, 2, 4, 5, 4), (3, 2, 2, 3, 2)], _CONVOLUTION),
    "transposed conv2d": Case(
        lambda x, w: nnf.conv_transpose2d(x, w, stride=2, padding=1),
        [(2, 3, 4, 5), (3, 2, 4, 4)],
        _CONVOLUTION,
    ),
    "max_pool2d": Case(
        lambda x: nnf.max_pool2d(x, 3, 2, 1),
        [(2, 3, 9, 8)],
        ("max_pool2d_with_indices", "max_pool2d_with_indices_backward"),
    ),
    "max_pool2d without overlap": Case(
        lambda x: nnf.max_pool2d(x, 2),
        [(3, 9, 8)],
        ("max_pool2d_with_indices", "max_pool2d_with_indices_backward"),
        _HALVES,
    ),
    "max_pool3d": Case(
        lambda x: nnf.max_pool3d(x, 2),
        [(2, 3, 4, 5, 6)],
        ("max_pool3d_with_indices", "max_pool3d_with_indices_backward"),
    ),
    "adaptive_max_pool2d": Case(
        lambda x: nnf.adaptive_max_pool2d(x, 3),
        [(2, 3, 8, 7)],
        ("adaptive_max_pool2d", "adaptive_max_pool2d_backward"),
    ),
    "avg_pool2d": Case(
        lambda x: nnf.avg_pool2d(x, 3, 2, 1), [(2, 4, 41, 40)], ("avg_pool2d_backward",)
    ),
    "adaptive_max_pool2d of blocks": Case(
        lambda x: nnf.adaptive_max_pool2d(x, 4),
        [(2, 3, 8, 12)],
        ("adaptive_max_pool2d", "adaptive_max_pool2d_backward"),
    ),
    "roll": Case(
        lambda x: x.roll(3, 1) * x.roll((-70, 5), (0, 2)) * x.roll(1234),
        [(40, 30, 30)],
        ("roll",),
        asked=_SOME,
    ),
    "group_norm": Case(
        lambda x, w, b: nnf.group_norm(x, 2, w, b),
        [(4, 8, 16, 16), (8,), (8,)],
        ("native_group_norm", "native_group_norm_backward"),
        _HALVES,
        _HALVES,
    ),
    "group_norm of floats": Case(
        lambda x, w, b: nnf.group_norm(x, 2, w, b),
        [(4, 8, 15, 17), (8,), (8,)],
        ("group_norm", "native_group_norm_backward"),
        asked=("float32", "float64"),
    ),
    "layer_norm": Case(
        lambda x, w, b: nnf.layer_norm(x, (64,), w, b),
        [(2, 64, 64), (64,), (64,)],
        ("native_layer_norm", "native_layer_norm_backward"),
        _HALVES,
        (*_HALVES, "float32"),
    ),
    "batch_norm": Case(
        lambda x, w, b: nnf.batch_norm(x, None, None, w, b, training=True),
        [(4, 8, 16, 16), (8,), (8,)],
        ("native_batch_norm", "native_batch_norm_backward"),
        _HALVES,
        (*_HALVES, "float32"),
    ),
    "instance_norm": Case(
        lambda x: nnf.instance_norm(x),
        [(4, 8, 16, 16)],
        ("native_batch_norm", "native_batch_norm_backward"),
        _HALVES,
        _HALVES,
    ),
    "layer_norm of doubles": Case(
        lambda x, w, b: nnf.layer_norm(x, (7, 9), w, b),
        [(10, 31, 7, 9), (7, 9), (7, 9)],
        ("layer_norm", "layer_norm_backward"),
        ("float64",),
        ("float64",),
    ),
    "layer_norm of many rows": Case(
        lambda x, w: nnf.layer_norm(x, (257,), w),
        [(2400, 257), (257,)],
        ("layer_norm", "layer_norm_backward"),
        asked=("float32", "float64"),
    ),
    "grid_sample": Case(
        lambda x, g: nnf.grid_sample(x, g.tanh(), align_corners=False),
        [(2, 3, 5, 4), (2, 6, 7, 2)],
        ("grid_sampler_2d", "grid_sampler_2d_backward"),
    ),
    "mm": Case(torch.mm, [(64, 70), (70, 66)], ("mm",), _PRODUCTS),
    "bmm": Case(torch.bmm, [(8, 30, 20), (8, 20, 25)], ("bmm",), _PRODUCTS),
    "addmm": Case(
        lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2.0),
        [(66,), (64, 70), (70, 66)],
        ("addmm", "mm"),
        _PRODUCTS,
    ),
    "transposed matrices": Case(
        lambda x, y: torch.mm(x.t(), y.t()) + (y @ x).t(),
        [(70, 64), (66, 70)],
        ("mm",),
        _PRODUCTS,
    ),
    "transposed batches": Case(
        lambda x, y: torch.baddbmm(x.mT[:, :1, :1], x.mT, y.mT, beta=2),
        [(8, 20, 30), (8, 25, 20)],
        ("baddbmm", "bmm"),
        _PRODUCTS,
    ),
    "linear": Case(nnf.linear, [(4, 20, 70), (66, 70), (66,)], ("linear",)),
    "linear of few rows": Case(nnf.linear, [(2, 3, 70), (66, 70), (66,)], ("linear",)),
    "attention": Case(
        lambda q, k, v: nnf.scaled_dot_product_attention(q, k, v, is_causal=True),
        [(2, 4, 17, 32)] * 3,
        (),
        (*_PRODUCTS, "bfloat16"),
    ),
    "attention with a mask of booleans": Case(
        lambda q, k, v: nnf.scaled_dot_product_attention(
            q, k, v, attn_mask=torch.arange(17, device=q.device)[None] < 9
        ),
        [(2, 4, 17, 32)] * 3,
        (),
        (*_PRODUCTS, "bfloat16"),
    ),
    "bilinear": Case(
        lambda x: nnf.interpolate(x, scale_factor=2.0, mode="bilinear"),
        [(2, 3, 20, 21)],
        ("upsample_bilinear2d_backward",),
        ("float64",),
    ),
    "sum": Case(lambda x: x.sum() + x.sum(0), [(70, 70)], (), (*_HALVES, "float64")),
    "sum of a product": Case(lambda x, y: (x * y).sum(), [(260, 260)] * 2, ("sum",)),
    "mean of all": Case(lambda x: x.abs().mean(), [(260, 260)], ("mean",)),
    "mse_loss": Case(nnf.mse_loss, [(260, 260)] * 2, ("sum",)),
    "smooth_l1_loss": Case(nnf.smooth_l1_loss, [(260, 260)] * 2, ("sum",)),
    "mean": Case(lambda x: x.mean((0, 2)), [(20, 30, 40)], ("mean.dim",), (*_HALVES, "float64")),
    "norm": Case(lambda x: torch.linalg.vector_norm(x, dim=1), [(70, 70)], ("linalg_vector_norm",)),
    "prod": Case(lambda x: (1 + x / 64).prod(1), [(70, 70)], ("prod.dim_int",)),
    "cumsum": Case(lambda x: (x / 8).cumsum(-1), [(70, 70)], ("cumsum",)),
    "cumsum of columns": Case(lambda x: (x / 8).cumsum(0), [(70, 70)], ("cumsum",)),
    "cumprod": Case(lambda x: (1 + x / 64).cumprod(1), [(70, 70)], ("cumprod", "cumprod_backward")),
    "cumprod of zeros": Case(
        lambda x: ((1 + x / 64) * (x.abs() > 0.02)).cumprod(0),
        [(70, 70)],
        ("cumprod_backward",),
        asked=_SOME,
    ),
    "cummax": Case(lambda x: x.cummax(1).values, [(70, 70)], ("cummax",)),
    "logsumexp": Case(lambda x: x.logsumexp((0, 2)), [(20, 30, 40)], ("logsumexp",), _HALVES),
    "logcumsumexp": Case(lambda x: x.logcumsumexp(1), [(70, 70)], ("logcumsumexp",)),
    "topk": Case(lambda x: x.topk(3, -1).values, [(20, 30)], ("topk",)),
    "cummin": Case(lambda x: x.cummin(0).values, [(70,)], ("cummin",), asked=_SOME),
    "norm, in PyTorch's older form": Case(lambda x: x.norm(dim=1), [(70, 70)], (), asked=_SOME),
    "sort": Case(lambda x: x.sort(1).values, [(70, 70)], ("sort",), asked=_SOME),
    "sort of few doubles": Case(
        lambda x: x.sort(1).values, [(20, 30)], ("sort",), ("float64",), ("float64", "float32")
    ),
    "max": Case(lambda x: x.max(1).values, [(70, 70)], ("max.dim",), asked=_FEW),
    "min": Case(lambda x: x.min(0).values, [(70, 70)], ("min.dim",), asked=_FEW),
    "argmax": Case(lambda x: x + x.argmax(1), [(70, 70)], ("argmax",), asked=_SOME),
    "amax": Case(lambda x: x.amax(1) * x.amin(0), [(70, 70)], ("amax", "amin"), asked=_FEW),
    "amax of few columns": Case(lambda x: x.amax(1), [(700, 7)], ("amax",), _HALVES, _FEW),
    "amax of all": Case(lambda x: x.amax((0, 1)), [(700, 7)], ("amax",), asked=_FEW),
    "max of all": Case(lambda x: x.max() * x.min(), [(70, 70)], ("max", "min")),
    "aminmax": Case(lambda x: sum(torch.aminmax(x)), [(70, 70)], ("aminmax",)),
    "prod of all": Case(lambda x: (1 + x / 64).prod(), [(70, 70)], ("prod",)),
    "nansum": Case(lambda x: x.nansum(1), [(70, 70)], ("nansum",)),
    "power": Case(
        lambda x: (x.abs() + 0.5) ** 1.7, [(400, 100)], ("pow.Tensor_Scalar",), asked=_FEW
    ),
    "sort of columns": Case(
        lambda x: x.sort(dim=0, stable=True).values, [(70, 70)], ("sort.stable",), asked=_SOME
    ),
    "kthvalue": Case(lambda x: x.kthvalue(5, 0).values, [(70, 70)], ("kthvalue",), asked=_SOME),
    "median": Case(lambda x: x.median(1).values, [(70, 70)], ("median.dim",), asked=_SOME),
    "nanmedian": Case(lambda x: x.nanmedian(1).values, [(70, 70)], ("nanmedian.dim",), asked=_SOME),
    "softmax": Case(
        lambda x: x.softmax(0) ** 2,
        [(70, 70)],
        ("_softmax", "_softmax_backward_data"),
        asked=_SOME,
    ),
    "log_softmax": Case(
        lambda x: x.log_softmax(1),
        [(70, 70)],
        ("_log_softmax", "_log_softmax_backward_data"),
        asked=_SOME,
    ),
    "softplus": Case(
        nnf.softplus, [(400, 100)], ("softplus", "softplus_backward"), asked=(*_FEW, "float64")
    ),
    "sigmoid": Case(torch.sigmoid, [(400, 100)], ("sigmoid",), ("float64",), asked=_SOME),
    "gelu": Case(
        nnf.gelu, [(400, 100)], ("gelu", "gelu_backward"), ("float64",), ("float64", "float32")
    ),
    "silu": Case(nnf.silu, [(400, 100)], ("silu",), ("float64",), ("float64", "float32")),
    "binary cross entropy": Case(
        lambda x, y: nnf.binary_cross_entropy_with_logits(
            x, y.sigmoid(), pos_weight=y[0].detach().abs() + 1, reduction="sum"
        ),
        [(400, 100)] * 2,
        ("binary_cross_entropy_with_logits",),
        asked=_SOME,
    ),
    "transposition": Case(
        lambda x: (x.mT.contiguous() * 2).permute(2, 0, 1).contiguous(),
        [(20, 50, 40)],
        ("transpose",),
    ),
    "pow": Case(
        lambda x, y: (x.abs() + 0.5).pow(y), [(400, 100)] * 2, ("pow.Tensor_Tensor",), asked=_SOME
    ),
    "remainder of tensors": Case(
        lambda x, y: torch.remainder(x, y.abs() + 1),
        [(400, 100)] * 2,
        ("remainder.Tensor", "div.Tensor_mode"),
        asked=_FEW,
    ),
    "fft": Case(
        lambda x: (
            torch.fft.ifft2(
                torch.fft.rfft(x).abs()[:, :1] + torch.fft.irfft(x + 1j * x, 138)[:, :70]
            ).imag
        ),
        [(70, 70)],
        ("_fft_r2c", "_fft_c2c", "_fft_c2r"),
        asked=("float32", "float64"),
    ),
    "exp of doubles": Case(torch.exp, [(400, 100)], ("exp",), ("float64",), asked=_SOME),
    "sin": Case(torch.sin, [(400, 100)], ("sin", "cos"), asked=_FEW),
    "acos": Case(lambda x: torch.acos(x.tanh() * 0.5), [(400, 100)], ("acos",), asked=_FEW),
    "asin": Case(lambda x: torch.asin(x.tanh() * 0.5), [(400, 100)], ("asin",), asked=_FEW),
    "atan": Case(torch.atan, [(400, 100)], ("atan",), asked=_FEW),
    "atan2": Case(
        lambda x, y: torch.atan2(x, y.abs() + 1), [(400, 100)] * 2, ("atan2",), asked=_FEW
    ),
    "erfinv": Case(lambda x: torch.erfinv(x.tanh() * 0.5), [(400, 100)], ("erfinv",), asked=_FEW),
    **{
        name: Case(function, [(400, 100)], (name,), asked=_FEW)
        for name, function in (
            ("atanh", lambda x: torch.atanh(x.tanh() * 0.5)),
            ("celu", nnf.celu),
            ("elu", nnf.elu),
            ("exp2", torch.exp2),
            ("log1p", lambda x: torch.log1p(x.abs())),
            ("tan", lambda x: torch.tan(x / 4)),
        )
    },
    "logcumsumexp of columns": Case(lambda x: x.logcumsumexp(0), [(70, 30)], ("logcumsumexp",)),
    "cummax of columns": Case(lambda x: x.cummax(0).values, [(70, 70)], ("cummax",)),
    "lgamma": Case(lambda x: torch.lgamma(x.abs() + 1), [(400, 100)], ("lgamma",), asked=_FEW),
    "remainder": Case(lambda x: x % 3.5, [(400, 100)], ("remainder.Scalar",), asked=_FEW),
    "fmod": Case(
        lambda x, y: torch.fmod(x, y.detach().abs() + 4) + 0 * y,
        [(400, 100)] * 2,
        ("fmod.Tensor",),
        asked=_FEW,
    ),
    "log of doubles": Case(
        lambda x: (x.abs() + 1).log(), [(400, 100)], ("log",), ("float64",), asked=_SOME
    ),
    **{
        name: Case(
            lambda x, f=function: f(x + 9 * torch.eye(6, dtype=x.dtype, device=x.device)),
            [(3, 6, 6)],
            calls,
            ("float32", "float64"),
            ("float32",),
        )
        for name, function, calls in (
            ("inverse", lambda x: torch.linalg.inv_ex(x)[0], ("linalg_inv_ex",)),
            ("LU", lambda x: torch.linalg.lu_factor_ex(x)[0], ("linalg_lu_factor_ex",)),
            ("QR", lambda x: torch.linalg.qr(x)[1], ("linalg_qr",)),
            ("determinant", torch.linalg.det, ("_linalg_det",)),
            ("slogdet", lambda x: torch.linalg.slogdet(x)[1], ("_linalg_slogdet",)),
            ("solve", lambda x: torch.linalg.solve_ex(x, x.mT)[0], ("_linalg_solve_ex",)),
            (
                "triangular solve",
                lambda x: torch.linalg.solve_triangular(x.tril(), x, upper=False),
                ("linalg_solve_triangular",),
            ),
        )
    },
    "cholesky": Case(
        lambda x: torch.linalg.cholesky_ex(
            x @ x.mT + 9 * torch.eye(6, dtype=x.dtype, device=x.device)
        )[0],
        [(3, 6, 6)],
        ("linalg_cholesky_ex",),
        ("float32", "float64"),
    ),
}


# What has no gradient, or none of each operand: the call, and its operators.
_FORWARD = {
    "bucketize": (lambda x: torch.bucketize(x, torch.sort(x[0])[0]), "bucketize.Tensor"),
    "searchsorted": (lambda x: torch.searchsorted(x.sort(1)[0], x), "searchsorted.Tensor"),
    "floor_divide": (lambda x: torch.floor_divide(x, x.flip(0)), "floor_divide"),
    "floor_divide by a number": (lambda x: torch.floor_divide(x, 0.3), "floor_divide"),
    "igamma": (lambda x: torch.igamma(x.abs() + 0.1, x.flip(0).abs()), "igamma"),
    "mode": (lambda x: x.double().round().mode(0)[0], "mode"),
    "zeta": (lambda x: torch.special.zeta(x.abs() + 1.5, x.flip(0).abs() + 1), "special_zeta"),
    "zeta of a number": (
        lambda x: torch.special.zeta(2.5, x.abs() + 1),
        "special_zeta.self_scalar",
    ),
    "polynomial": (
        lambda x: torch.special.hermite_polynomial_he(x, 4),
        "special_hermite_polynomial_he.n_scalar",
    ),
    "cdist": (lambda x: torch.cdist(x.double(), x.double(), p=1), "_cdist_forward"),
}


@pytest.mark.parametrize("name", _FORWARD)
def test_the_same_values(name):
    torch.manual_seed(0)
    function, operator = _FORWARD[name]
    x = torch.randn(200, 190)
    got = function(x.to("xla"))
    assert operator in calls_in([got])
    torch.testing.assert_close(got.cpu(), function(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_float64_is_rounded_to_half_precision_by_way_of_float32(dtype):
    """The second number is halfway between two in float32, and above it in float64."""
    x = torch.tensor(
        [1 + 2**-8 + 2**-40, 1 + 2**-9 + 2**-40, 1 + 2**-12 + 2**-40, 1e-8, 3.39e38, 65520.0, -0.0],
        dtype=torch.float64,
    )
    assert torch.equal(x.to("xla").to(dtype).cpu(), x.to(dtype))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64])
def test_integers_of_bfloat16(dtype):
    x = torch.tensor([0.0, -0.9, 1.5, 99.9, 120.5, -0.0], dtype=torch.bfloat16)
    assert torch.equal(x.to("xla").to(dtype).cpu(), x.to(dtype))


def value_and_gradients(case: Case, operands: list[torch.Tensor]) -> list[torch.Tensor]:
    leaves = [x.detach().requires_grad_() for x in operands]
    value = case.function(*leaves)
    weight = torch.linspace(0.5, 1, value.numel()).view(value.shape).to(value.device)
    return [value.detach(), *torch.autograd.grad(value, leaves, weight.to(value.dtype))]


@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name, case in _CASES.items() for dtype in case.asked]
)
def test_the_same_values_and_gradients(name, dtype):
    if IS_OLDER and name == "aminmax":
        pytest.skip("the older one has no gradient of it")
    torch.manual_seed(0)
    case = _CASES[name]
    operands = [torch.randn(shape).to(getattr(torch, dtype)) for shape in case.shapes]
    try:
        expected = value_and_gradients(case, operands)
    except RuntimeError as error:
        assert "not implemented for" in str(error) or "Low precision" in str(error)
        assert dtype in _HALVES
        assert dtype not in case.called
        return
    on_device = [x.to("xla") for x in operands]
    metrics.clear_counters()
    actual = value_and_gradients(case, on_device)
    called = calls_in(actual) | calls_in([case.function(*on_device)])
    if dtype in case.called:
        assert called, "nothing is called"
        assert set(case.calls) <= called
    else:  # a bias's gradient is a sum, and a sort's one writes by index
        assert called <= ({"sum.dim_IntList", "scatter"} if dtype in _HALVES else set())
    assert not counts.left_the_device()
    tolerance = _TOLERANCES[dtype]
    for mine, theirs in zip(actual, expected, strict=True):
        assert mine.dtype == theirs.dtype
        scale = max(1.0, theirs.abs().max().item())
        torch.testing.assert_close(mine.cpu(), theirs, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("dtype", _HALVES)
@pytest.mark.parametrize("is_mixed", [False, True])
def test_running_statistics_of_halves(dtype, is_mixed):
    torch.manual_seed(0)
    x = torch.randn(4, 8, 16, 16).mul(3).add(1).to(getattr(torch, dtype))
    norms = []
    for device in ("cpu", "xla"):
        norm = nn.BatchNorm2d(8).to(device, torch.float32 if is_mixed else x.dtype)
        for _ in range(3):
            norm(x.to(device))
        norms.append(norm)
    assert "native_batch_norm" in calls_in([norms[1].running_var])
    for theirs, mine in zip(norms[0].buffers(), norms[1].buffers(), strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-3 if is_mixed else 2e-2, atol=1e-3)


def test_bfloat16_that_is_reshaped_for_a_call_and_back_is_not_passed_over():
    x = torch.randn(4, 8, 16, 16).bfloat16()
    mine = nnf.instance_norm(x.to("xla"))
    assert "f32[4,8,16,16]" not in optimized_hlo(mine)
    assert calls_in([mine]) == {"native_batch_norm"}
    torch.testing.assert_close(mine.cpu(), nnf.instance_norm(x), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (lambda x: x.view(32, 256) @ x.view(32, 256).t(), {"mm"}),
        (lambda x: x.view(256, 32).t() @ x.view(256, 32), {"mm"}),
        (lambda x: x.view(8, 32, 32).transpose(1, 2) @ x.view(8, 32, 32), {"bmm"}),
        (lambda x: x.view(64, 128).softmax(1).view(128, 64).softmax(1), {"_softmax"}),
        (lambda x: x.view(64, 128).sort(1).values.view(-1)[5:4101], {"sort"}),
    ],
)
def test_values_of_calls_of_reshaped_bfloat16(function, calls):
    x = torch.randn(4, 8, 16, 16).bfloat16()
    mine = function(x.to("xla") + 1)
    is_product = calls <= {"mm", "bmm"}
    assert calls_in([mine]) == (set() if is_product and "bfloat16" not in _PRODUCTS else calls)
    torch.testing.assert_close(mine.cpu(), function(x + 1), rtol=2e-2, atol=2e-2)


def test_small_calls_and_other_dtypes_are_left_to_xla():
    x = torch.randn(4, 4, dtype=torch.float64, device="xla")
    assert not calls_in([x @ x, x.sum(), x.cumsum(1)])
    y = torch.ones(2, 3, 5, 5, dtype=torch.int32, device="xla")
    assert not calls_in([nnf.conv2d(y, y[:1, :, :3, :3])])


def test_large_products_of_float32_are_left_to_xla_but_of_a_matrix_that_is_read_by_columns():
    x, y = (torch.randn(shape, device="xla") for shape in ((400, 400), (400, 300)))
    assert not calls_in([x @ y, torch.addmm(x[:, :1], x, y)])
    assert calls_in([x[:40] @ y]) == {"mm"}
    assert "mm" in calls_in([x @ y.t().contiguous().t()])
    assert calls_in([x.double() @ y.double()]) == {"mm"}
    assert "linear" in calls_in([nnf.linear(x, y.t().contiguous())])


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -2, 0.5, -0.5])
def test_powers_that_are_products_or_roots_are_not_called(exponent):
    x = torch.rand(400, 101) + 0.5
    got = x.to("xla") ** exponent
    assert not calls_in([got])
    torch.testing.assert_close(got.cpu(), x**exponent)


def test_forward_alone_computes_no_indices():
    """XLA drops the call whose result nothing reads, so that it is not in the compiled program."""
    x = torch.randn(2, 3, 9, 8, device="xla")
    torch_xla.sync()
    with torch.no_grad():
        assert "custom-call" not in optimized_hlo(nnf.max_pool2d(x, 3, 2))


def test_nothing_large_is_computed_while_compiling():
    """XLA's evaluator takes 50 us for an element of a window; the program is left to compute it."""
    assert "reduce-window" in optimized_hlo(torch.ones(512, 513, device="xla").cumprod(0))


_BLOCKS = {
    "mm by columns": (torch.mm, [(70, 300), (300, 130)]),
    "mm by rows": (torch.mm, [(513, 110), (110, 70)]),
    "mm read transposed": (lambda a, b: torch.mm(a.t(), b.t()), [(300, 257), (129, 300)]),
    "mm of one row": (torch.mm, [(1, 2000), (2000, 1100)]),
    "addmm of a bias": (
        lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2),
        [(130,), (70, 300), (300, 130)],
    ),
    "addmm of a number, by rows": (torch.addmm, [(1, 1), (513, 110), (110, 70)]),
    "few large matrices": (torch.bmm, [(3, 120, 130), (3, 130, 140)]),
    "many matrices": (torch.bmm, [(37, 60, 64), (37, 64, 33)]),
    "baddbmm": (
        lambda c, a, b: torch.baddbmm(c, a, b, beta=2, alpha=0.5),
        [(2, 1, 140), (2, 120, 130), (2, 130, 140)],
    ),
    "linear": (nnf.linear, [(3, 5, 200), (333, 200), (333,)]),
    "linear without bias": (nnf.linear, [(256, 200), (333, 200)]),
    "linear, batch last": (
        lambda x, w: nnf.linear(x.permute(1, 2, 0), w),
        [(200, 7, 9), (333, 200)],
    ),
}


@pytest.mark.parametrize("dtype", _ALL)
@pytest.mark.parametrize("name", _BLOCKS)
def test_products_in_blocks(name, dtype):
    torch.manual_seed(0)
    function, shapes = _BLOCKS[name]
    operands = [torch.randn(shape).to(getattr(torch, dtype)) for shape in shapes]
    expected = function(*operands)
    on_device = [x.to("xla") for x in operands]
    actual = function(*on_device)
    assert bool(calls_in([actual])) == (dtype in _PRODUCTS or name.startswith("linear"))
    first = actual.cpu()
    tolerance = _TOLERANCES[dtype] * max(1.0, expected.abs().max().item())
    torch.testing.assert_close(first, expected, rtol=_TOLERANCES[dtype], atol=tolerance)
    # Which blocks there are does not depend on who computes them.
    for _ in range(3):
        assert torch.equal(function(*on_device).cpu(), first)


@pytest.mark.parametrize(
    "frozen", [(0,), (1,), (2,), (0, 1), (1, 2)], ids=lambda x: "-".join(map(str, x))
)
@pytest.mark.parametrize(
    "name",
    ["group_norm of floats", "layer_norm of doubles", "linear", "grouped conv2d", "grid_sample"],
)
def test_gradients_of_some_operands(name, frozen):
    torch.manual_seed(0)
    case = _CASES[name]
    if max(frozen) >= len(case.shapes) or len(frozen) == len(case.shapes):
        frozen = (0,)
    operands = [torch.randn(shape, dtype=torch.float64) for shape in case.shapes]
    results = []
    for device in ("cpu", "xla"):
        leaves = [x.detach().to(device) for x in operands]
        for i, x in enumerate(leaves):
            x.requires_grad_(i not in frozen)
        case.function(*leaves).square().sum().backward()
        results.append([x.grad.cpu() for x in leaves if x.requires_grad])
    for mine, theirs in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("dim", [0, 1])
def test_second_gradient_of_cumprod_with_zeros(dim):
    torch.manual_seed(0)
    x = 1 + torch.randn(9, 11, dtype=torch.float64) / 8
    x[3, 4] = x[3, 7] = x[5, 0] = x[8, 4] = 0
    results = []
    for device in ("cpu", "xla"):
        leaf = x.detach().to(device).requires_grad_()
        (grad,) = torch.autograd.grad(leaf.cumprod(dim).square().sum(), leaf, create_graph=True)
        results.append([grad, *torch.autograd.grad(grad.square().sum(), leaf)])
        per_row = torch.func.vmap(torch.func.grad(lambda t: t.cumprod(0).square().sum()))
        results[-1].append(per_row(leaf.detach()))
    for mine, theirs in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(mine.cpu(), theirs)


def test_norms_without_parameters_and_of_mixed_dtypes():
    torch.manual_seed(0)
    x = torch.randn(2, 8, 20, 20)
    weight, bias = torch.randn(8), torch.randn(8)
    for function in (
        lambda t: nnf.group_norm(t(x), 4),
        lambda t: nnf.layer_norm(t(x), (20, 20)),
        lambda t: nnf.group_norm(t(x.bfloat16()), 4, t(weight), t(bias)),
        lambda t: nnf.layer_norm(t(x.bfloat16().mT), (20,), t(x[0, 0, 0]), t(x[0, 0, 1])),
    ):
        expected = function(lambda v: v)
        actual = function(lambda v: v.to("xla")).cpu()
        torch.testing.assert_close(actual, expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", _ALL)
@pytest.mark.parametrize("has_weight", [True, False])
def test_rms_norm_without_gradients(dtype, has_weight):
    torch.manual_seed(0)
    of = getattr(torch, dtype)
    x = torch.randn(3, 400, 7, 9).to(of)
    weight = torch.randn(7, 9).to(of) if has_weight else None
    xs, weights = x.to("xla"), weight if weight is None else weight.to("xla").requires_grad_()
    with torch.no_grad():
        actual = nnf.rms_norm(xs, (7, 9), weights)
    assert calls_in([actual]) == ({"rms_norm"} if dtype in ("float32", "float64") else set())
    tolerance = _TOLERANCES[dtype]
    expected = nnf.rms_norm(x, (7, 9), weight)
    torch.testing.assert_close(actual.cpu(), expected, rtol=tolerance, atol=tolerance)
    if has_weight:  # taken apart
        assert "rms_norm" not in calls_in([nnf.rms_norm(xs, (7, 9), weights).detach()])
    with torch.inference_mode(), pytest.raises(NotImplementedError, match='"rms_norm" not impl'):
        nnf.rms_norm(x.to("xla").to(torch.float8_e5m2), (7, 9))


def test_in_place_out_and_empty():
    torch.manual_seed(0)
    x = torch.randn(70, 70, dtype=torch.float64)
    results = []
    for device in ("cpu", "xla"):
        y = x.to(device)
        out = torch.empty(0, dtype=torch.float64, device=device)
        torch.mm(y, y, out=out)
        total = torch.empty(70, dtype=torch.float64, device=device)
        torch.sum(y, 1, out=total)
        z = y.clone()
        z[1:] += y[:-1] @ y  # a write into what the call read
        integers = torch.arange(4900, device=device, dtype=torch.int32).view(70, 70)
        scanned = y.clone().cumsum_(1).addmm_(y, y, beta=2, alpha=0.5)
        nothing = y[:0] @ y, nnf.max_pool2d(y[:0].view(0, 1, 7, 10), 3, 2, 1)
        results.append([out, total, z, integers.cumsum_(1), scanned, *nothing])
    for mine, theirs in zip(results[1], results[0], strict=True):
        assert mine.dtype == theirs.dtype
        torch.testing.assert_close(mine.cpu(), theirs)


@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax])
@pytest.mark.parametrize("dim", [0, 1])
def test_a_gradient_that_is_written_over_is_still_there(device, function, dim):
    torch.manual_seed(0)
    x, grad = torch.randn(2, 70, 90, dtype=torch.float64)
    results = []
    for place in ("cpu", device):
        leaf = x.to(place).requires_grad_()
        given = grad.to(place)
        torch_xla.sync()
        computed = given.cos() * 3
        y = function(leaf, dim)
        grads = [torch.autograd.grad(y, leaf, g, retain_graph=True)[0] for g in (computed, given)]
        results.append([*grads, computed, computed + 1, given * 2])
    for mine, theirs in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(mine.cpu(), theirs)


def test_under_vmap_and_in_loops():
    torch.manual_seed(0)
    x = torch.randn(3, 64, 70, dtype=torch.float64)
    w = torch.randn(70, 70, dtype=torch.float64)
    images = torch.randn(3, 2, 4, 9, 9)

    def step(a, b):
        return nnf.layer_norm((a @ b).cumsum(-1), (70,))

    for function, operands in (
        (torch.func.vmap(step, (0, None)), (x, w)),
        (torch.func.vmap(lambda i: nnf.max_pool2d(i, 3, 2)), (images,)),
        (torch.func.vmap(torch.func.grad(lambda a: step(a, a.mT @ a).sum())), (x,)),
        (lambda a: step(step(a[0], w.to(a.device)), w.to(a.device)), (x,)),
    ):
        expected = function(*operands)
        actual = function(*(t.to("xla") for t in operands))
        torch.testing.assert_close(actual.cpu(), expected)


def test_training_step_agrees_with_the_cpu():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, groups=1),
        nn.GroupNorm(2, 8),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.Flatten(),
        nn.Linear(8 * 5 * 5, 10),
    ).double()
    x, y = torch.randn(4, 3, 16, 16, dtype=torch.float64), torch.arange(4)
    losses = []
    for device in ("cpu", "xla"):
        twin = copy.deepcopy(model).to(device)
        optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
        taken = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = nnf.cross_entropy(twin(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            taken.append(loss.detach())
        losses.append(torch.stack(taken).cpu())
    torch.testing.assert_close(losses[1], losses[0])
