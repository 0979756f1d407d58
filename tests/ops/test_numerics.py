"""NaN in maxima and minima, floats that integers can't hold, and constants are as on the CPU."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import torch_xla

NAN, INF = float("nan"), float("inf")


def assert_same(want, got):
    for a, b in zip(want, got, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        torch.testing.assert_close(b.cpu(), a, rtol=0, atol=0, equal_nan=True)


PATTERNS = [[1, NAN, 2, 3], [NAN, 1, 2, 3], [1, 2, 3, NAN], [3, 2, 1, NAN], [1, 2, NAN, 3]]
MAXIMA = {
    "amax": lambda x: [x.amax(), x.amin(), *x.aminmax()],
    "max": lambda x: [*x.max(0), *x.min(0), x.max(), x.min()],
    "argmax": lambda x: [x.argmax(), x.argmin()],
    "cummax": lambda x: [*x.cummax(0), *x.cummin(0)],
    "of two": lambda x: [torch.maximum(x, x.flip(0)), torch.minimum(x, x.flip(0))],
    "fmax": lambda x: [torch.fmax(x, x.flip(0)), torch.fmin(x, x.flip(0))],
    "clamp": lambda x: [x.clamp(0, 2), x.clamp(x.flip(0)), x.relu(), functional.relu6(x)],
    "sort": lambda x: [*x.sort(), *x.kthvalue(2), *x.median(0), *x.nanmedian(0)],
    "norm": lambda x: [torch.linalg.vector_norm(x, INF), torch.linalg.vector_norm(x, -INF)],
    "rows": lambda x: [x.repeat(8).reshape(4, 8).amax(0), x.repeat(8).reshape(4, 8).amax(1)],
    "half": lambda x: [x.bfloat16().amax(), x.half().amin()],
    "scatter": lambda x: [
        x.new_zeros(4).scatter_reduce(0, torch.tensor([0, 1, 1, 0], device=x.device), x, "amax")
    ],
    "pool 1d": lambda x: [functional.max_pool1d(x.repeat(8)[None, None], 3, 2, 1)],
    "pool 2d": lambda x: [
        *functional.max_pool2d(x.repeat(8).reshape(1, 1, 4, 8), 3, 1, 1, return_indices=True)
    ],
    "pool 2d without indices": lambda x: [
        functional.max_pool2d(x.repeat(8).reshape(1, 1, 4, 8), 2)
    ],
    "pool 3d": lambda x: [functional.max_pool3d(x.repeat(8).reshape(1, 1, 2, 4, 4), 2)],
    "adaptive": lambda x: [functional.adaptive_max_pool2d(x.repeat(8).reshape(1, 1, 4, 8), (2, 3))],
}


@pytest.mark.parametrize("name", MAXIMA)
def test_nan_is_propagated(name):
    want = [r for p in PATTERNS for r in MAXIMA[name](torch.tensor(p))]
    has_nan = any(r.isnan().any() for r in want if r.is_floating_point())
    assert has_nan or name in ("argmax", "fmax")
    assert_same(want, [r for p in PATTERNS for r in MAXIMA[name](torch.tensor(p).to("xla"))])


FLOATS = [-1.5, -1, -0.5, 0, 1.7, 127, 128, 200, -129, 255, 256, 300, -300, 40000, -40000, 70000]
BEYOND = [2.5e9, -2.5e9, 5e9, 1e18, 1e19, -1e19, INF, -INF, NAN]


@pytest.mark.parametrize("source", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_floats_that_integers_cannot_hold(source):
    """PyTorch leaves them undefined; its kernels wrap, or give the least integer's low bits."""
    x = torch.tensor(FLOATS + BEYOND, dtype=source)
    signed = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool]
    assert_same([x.to(t) for t in signed], [x.to("xla").to(t) for t in signed])
    y = torch.tensor(FLOATS, dtype=source)  # beyond these, the CPU's kernels differ with the size
    y = y[y.isfinite()]
    unsigned = [torch.uint16, torch.uint32, torch.uint64]
    assert_same([y.to(t) for t in unsigned], [y.to("xla").to(t) for t in unsigned])


def test_floats_are_converted_alike_when_written():
    def program(device):
        x = torch.zeros(3, dtype=torch.uint8, device=device)
        x.copy_(torch.tensor([-1.0, 300.0, 7.9], device=device))
        y = torch.zeros(3, dtype=torch.int8, device=device)
        y[1:] = torch.tensor([-1.0, 300.0], device=device)
        return x, y

    assert_same(program("cpu"), program("xla"))


def test_integers_wrap_when_narrowed():
    types = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool]
    x = torch.tensor([-1, 0, 1, 127, 128, 255, 256, -129, 2**31, 2**32 + 5, -(2**40), 2**62])
    for a in types:
        assert_same([x.to(a).to(b) for b in types], [x.to(a).to("xla").to(b) for b in types])


@pytest.mark.parametrize("mode", ["bicubic", "bilinear", "nearest"])
def test_constants_are_resampled_as_data_is(mode):
    """The compiler computes programs without inputs itself, in other layouts."""
    corners = {} if mode == "nearest" else {"align_corners": True}

    def resample(ones):
        return functional.interpolate(ones, (3, 3), mode=mode, **corners)

    want = resample(torch.ones(2, 3, 4, 4))
    torch.testing.assert_close(resample(torch.ones(2, 3, 4, 4, device="xla")).cpu(), want)


RESAMPLED = [((3, 12), (14, 8)), ((5, 6), (16, 13)), ((4, 1), (13, 3)), ((2, 6), (11, 15))]


@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
def test_bytes_are_resampled_in_fixed_point(mode):
    """With the taps beyond an edge added up before they are rounded, as the CPU's are."""

    def resample(image, size):
        plain, with_corners = (
            functional.interpolate(image, size, mode=mode, align_corners=c) for c in (False, True)
        )
        return plain, with_corners, functional.interpolate(image, size, mode=mode, antialias=True)

    torch.manual_seed(0)
    images = [torch.randint(256, (2, 3, *before)).byte() for before, _ in RESAMPLED]
    for image, (_, after) in zip(images, RESAMPLED, strict=True):
        assert_same(resample(image, after), resample(image.to("xla"), after))


def gathers():
    """The text of two gathers along dim 2, each times weights, their sum, and the same along dim 1:
    all of it of constants, at which XLA's pass "reshape-mover" puts sums into wrong places."""
    lines = []

    def emit(op, operands, types, result, attributes=""):
        lines.append(f'%v{len(lines)} = "stablehlo.{op}"({operands}) {attributes} : {types}')
        lines[-1] += f" -> tensor<{result}>"
        return f"%v{len(lines) - 1}"

    def constant(value, result):
        return emit(
            "constant", "", "()", result, f"<{{value = dense<{value}> : tensor<{result}>}}>"
        )

    def gather(x, indices, dim, before, after):
        sizes = [1 if i == dim else int(n) for i, n in enumerate(before.split("x")[:3])]
        numbers = f"offset_dims = {[i for i in range(3) if i != dim]}, index_vector_dim = 1"
        numbers += f", collapsed_slice_dims = [{dim}], start_index_map = [{dim}]"
        attributes = f"dimension_numbers = #stablehlo.gather<{numbers}>, indices_are_sorted = false"
        attributes += f", slice_sizes = array<i64: {', '.join(map(str, sizes))}>"
        types = f"(tensor<{before}>, tensor<3xi32>)"
        return emit("gather", f"{x}, {indices}", types, after, f"<{{{attributes}}}>")

    def weighted(x, dim, before, after):
        both = f"(tensor<{after}>, tensor<{after}>)"
        products = []
        for indices, weights in (([1, 0, 1], [1.0, 1.25, 1.5]), ([0, 1, 0], [2.0, 2.25, 2.5])):
            part = gather(x, constant(indices, "3xi32"), dim, before, after)
            places = f"<{{broadcast_dimensions = array<i64: {dim}>}}>"
            row = constant(weights, "3xf32")
            rows = emit("broadcast_in_dim", row, "(tensor<3xf32>)", after, places)
            products.append(emit("multiply", f"{part}, {rows}", both, after))
        return emit("add", ", ".join(products), both, after)

    columns = weighted(constant(1.0, "2x2x2xf32"), 2, "2x2x2xf32", "2x2x3xf32")
    rows = weighted(columns, 1, "2x2x3xf32", "2x3x3xf32")
    lines.append(f'"func.return"({rows}) : (tensor<2x3x3xf32>) -> ()')
    head = "func.func public @main(%arg: tensor<1xf32>) -> (tensor<2x3x3xf32>)"
    return "\n".join(["module @gathers {", head + " {", *lines, "}", "}", ""])


@pytest.mark.parametrize("flags", ["", "--xla_disable_hlo_passes=dot_decomposer"])
def test_gathers_of_constants_are_right_whatever_passes_the_user_disables(flags, device):
    sums = torch.tensor([3.0, 3.5, 4.0])
    before = torch_xla.settings.xla_flags
    torch_xla.settings.xla_flags = flags
    try:
        arguments = [torch.zeros(1).to(device)]
        result = torch.ops.xla._call_module(arguments, gathers(), "f32[2,3,3]")[0].cpu()
    finally:
        torch_xla.settings.xla_flags = before
    assert_same([(sums[:, None] * sums).expand(2, 3, 3)], [result])


def test_integers_between_tensors_are_met(device):
    ends = torch.tensor(50, device=device), torch.tensor(1, device=device)
    for dtype in (torch.int32, torch.int64, torch.uint8):
        assert torch.linspace(*ends, 50, dtype=dtype).tolist() == list(range(50, 0, -1))


@pytest.mark.parametrize("name", ["sigmoid", "log1p", "expm1", "rsqrt"])
def test_float16_is_rounded_once(name, device):
    x = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(torch.float16)
    x = x[x.isfinite()]
    function = getattr(torch, name)
    exact = function(x.float())
    # A unit in the last place of ten binary digits; denormals have fewer.
    unit = torch.clamp(2.0 ** (torch.frexp(exact).exponent.float() - 11), min=2.0**-24)
    off = (function(x.to(device)).cpu().float() - exact).abs() / unit
    assert off[exact.abs() < torch.finfo(torch.float16).max].max() < 0.51


SUMS = {
    "add": torch.add,
    "sub": torch.sub,
    "rsub": torch.rsub,
    "add_": lambda x, y, alpha=1: x.clone().add_(y, alpha=alpha),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_numbers_are_rounded_before_they_are_added_to_half_precision(dtype, device):
    x = torch.tensor([1.0, 3e4, 6e4, 1e-3, -7.0, INF, -INF, NAN], dtype=dtype).repeat(8)
    for number in (0.1, 1 / 3, 7e4, -1e10, 33.333):
        for alpha in (1, 2.5):
            numbers = (number, torch.tensor(number), torch.tensor(number, dtype=dtype))
            for name, function in SUMS.items():
                for y in numbers:
                    on_device = y.to(device) if isinstance(y, torch.Tensor) else y
                    if name == "rsub" and alpha != 1:
                        continue  # the CPU rounds alpha * x in some elements and not in others
                    want, got = (
                        function(x, y, alpha=alpha),
                        function(x.to(device), on_device, alpha=alpha),
                    )
                    assert_same([want], [got])


def test_histogram_in_float16_counts_as_in_float32(device):
    x = torch.linspace(-10, 0, 1001).half()
    assert torch.equal(
        torch.histc(x.to(device), 100, -10, 0).cpu(), torch.histc(x.float(), 100, -10, 0).half()
    )


def test_histogram_of_integers(device):
    """As on GPUs, whose counts are integers; the CPU refuses them."""
    x = torch.tensor([0, 1, 1, 3, 2, 7, -1], dtype=torch.int32)
    counts = torch.histc(x.to(device), 4, 0, 3).cpu()
    assert counts.dtype == torch.int32
    assert torch.equal(counts.float(), torch.histc(x.float(), 4, 0, 3))
    assert torch.histc(x.to(device), 4).tolist() == torch.histc(x.float(), 4).tolist()


POWERS = [0, 1, 2, 3, 6, 7, 63, 64, 65, 100, 127, 255, 4096, 32767, 2**31 - 1, 2**62 + 1, 2**63 - 1]


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64], ids=str
)
def test_integers_to_every_power(dtype):
    info = torch.iinfo(dtype)
    numbers = [n for n in [*POWERS, *(-n for n in POWERS), info.min] if info.min <= n <= info.max]
    x = torch.tensor(numbers, dtype=dtype)
    want = [x[:, None] ** x, 3**x, torch.pow(x, 5)]
    x = x.to("xla")
    assert_same(want, [x[:, None] ** x, 3**x, torch.pow(x, 5)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e20, 1e30])
def test_factors_of_little_and_great_matrices(dtype, scale):
    x = torch.randn(2, 4, 3, dtype=dtype) * scale
    q, r = torch.linalg.qr(x.to("xla"))
    want_q, want_r = torch.linalg.qr(x)
    torch.testing.assert_close(q.cpu(), want_q, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(r.cpu() / scale, want_r / scale, rtol=1e-5, atol=1e-5)


def test_quotients_of_quotients_in_float16():
    def program(device):
        x = torch.tensor([609.0, -300.0], dtype=torch.float16, device=device, requires_grad=True)
        quotient = 1 / x / x  # x * x is beyond float16
        return [quotient, *torch.autograd.grad((60 / x).sum(), x)]

    assert_same(program("cpu"), program("xla"))


LARGEST = {torch.float16: 6e4, torch.bfloat16: 1e38, torch.float32: 1e38, torch.float64: 1e307}


@pytest.mark.parametrize("dtype", LARGEST)
def test_quotients_of_quotients(dtype):
    """XLA multiplies the divisors, or the dividend and a divisor: products beyond the dtype."""
    largest = LARGEST[dtype]

    def program(device):
        x = torch.tensor([3.0, -0.7], dtype=dtype, device=device) * largest**0.6
        y = torch.full_like(x, largest)
        x.requires_grad_()
        in_place = y.clone().div_(x.detach()).div_(x.detach())
        quotients = [y / x / x, largest / x / x, y / (y / x), y.double() / x / x, in_place]
        return [*quotients, *torch.autograd.grad(sum(quotients).sum() + (60 / x).sum(), x)]

    expected, got = program("cpu"), program("xla")
    rtol = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close([r.cpu() for r in got], expected, rtol=rtol, atol=0)
    assert all(r.isfinite().all() and r.all() for r in expected)


def test_a_factor_of_zero_leaves_out_what_is_not_finite_whatever_it_was_before(device):
    """As a number that changes it is data of the program."""

    def products(device, factor):
        def o(value):
            return torch.tensor([[value]], device=device)

        beta = [
            torch.addmm(o(NAN), o(1.0), o(1.0), beta=factor),
            torch.baddbmm(o(NAN)[None], o(1.0)[None], o(1.0)[None], beta=factor),
            torch.addbmm(o(NAN), o(1.0)[None], o(1.0)[None], beta=factor),
            torch.addmv(o(NAN)[0], o(1.0), o(1.0)[0], beta=factor),
            torch.addr(o(NAN), o(1.0)[0], o(1.0)[0], beta=factor),
        ]
        return [*beta, torch.addmm(o(1.0), o(INF), o(1.0), alpha=factor)]

    for factor in (0, 1, 0, 2.5, 0.0, 3.5):
        assert_same(products("cpu", factor), products(device, factor))


COMPLEX = [complex(a, b) for a in (-4.0, -0.5, -0.0, 0.0, 0.5, 4.0) for b in (-2.0, -0.0, 0.0, 2.0)]
ON_CUTS = {
    name: getattr(torch, name)
    for name in (
        *("sqrt", "rsqrt", "acos", "asin", "acosh", "asinh", "atan", "atanh"),
        *("log", "log2", "log10", "log1p"),
    )
}


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("name", [*ON_CUTS, "pow", "pow_"])
def test_complex_functions_take_the_side_of_their_cut_that_the_sign_of_zero_tells(
    name, dtype, device
):
    function = ON_CUTS.get(name, lambda x: x**0.5)
    x = torch.tensor(COMPLEX, dtype=dtype)
    want, got = (torch.view_as_real(function(y).cpu()) for y in (x, x.to(device)))
    torch.testing.assert_close(got, want, equal_nan=True)


def test_quotients_that_are_rounded_down_keep_the_sign_of_zero(device):
    x = torch.tensor([-0.0, 0.0, -0.0, 0.5, -0.5])
    y = torch.tensor([3.0, 3.0, -3.0, -3.0, 3.0])
    want, got = x // y, (x.to(device) // y.to(device)).cpu()
    assert torch.equal(want, got) and torch.equal(want.signbit(), got.signbit())


ROWS = torch.tensor([[NAN, 1, 2], [1, NAN, 2], [INF, 1, 0], [0, -INF, 1]])
CLASSES = torch.tensor([1, 1, 2, 0])
LABELS = torch.tensor([[1, -1, 0], [1, 2, -1], [2, -1, 0], [0, 1, -1]])
VOLUME = torch.arange(8.0).reshape(1, 1, 2, 2, 2)
POINTS = torch.tensor([[NAN, 0.1, 0.2], [INF, 0.1, 0.2], [0.1, -INF, 0.2]])[None, :, None, None]


def sampled(mode, padding):
    return lambda x: [
        functional.grid_sample(
            VOLUME.to(x.device), POINTS.to(x.device), mode, padding, align_corners=False
        )
    ]


# Of what is not finite, where PyTorch's kernels ask for what is greater, or inside.
COMPARED = {
    "multi_margin_loss": lambda x: [
        functional.multi_margin_loss(x, CLASSES.to(x.device), p=p, reduction="none") for p in (1, 2)
    ],
    "multilabel_margin_loss": lambda x: [
        functional.multilabel_margin_loss(x, LABELS.to(x.device), reduction="none")
    ],
    "cdist": lambda x: [torch.cdist(x, CLASSES[:3].to(x)[None], p) for p in (0.0, 1.0, INF)],
    "pdist": lambda x: [functional.pdist(x, p) for p in (0.0, 1.0, INF)],
    **{
        f"grid_sample {mode} {padding}": sampled(mode, padding)
        for mode in ("bilinear", "nearest")
        for padding in ("zeros", "border", "reflection")
    },
}


@pytest.mark.parametrize("name", COMPARED)
def test_what_is_not_finite_is_compared_as_on_the_cpu(name, device):
    for want, got in zip(COMPARED[name](ROWS), COMPARED[name](ROWS.to(device)), strict=True):
        torch.testing.assert_close(got.cpu(), want, equal_nan=True)
    if name.startswith("grid_sample"):
        return
    gradients = []
    for x in (ROWS.clone().requires_grad_(), ROWS.to(device).requires_grad_()):
        outputs = COMPARED[name](x)
        gradients.append(torch.autograd.grad(sum(y.nan_to_num(0).sum() for y in outputs), x)[0])
    torch.testing.assert_close(gradients[1].cpu(), gradients[0], equal_nan=True)
