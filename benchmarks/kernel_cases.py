"""The kernels that `kernels.py` times: a family for each, with three sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as nnf

Sizes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
Operands = Sequence[Tensor]


@dataclasses.dataclass(frozen=True)
class Family:
    """A kernel, what makes its operands out of one size, and the sizes.

    Operands that are floating are given in float32; the benchmark converts them, and asks for their
    gradients where `has_gradient`.
    """

    function: Callable[..., object]
    operands: Callable[..., Operands]
    sizes: Sizes
    has_gradient: bool = True


FAMILIES: dict[str, Family] = {}


def _randn(*dims: int) -> list[Tensor]:
    return [torch.randn(dims)]


def _add(
    name: str,
    function: Callable[..., object],
    operands: Callable[..., Operands],
    *sizes: tuple[int, ...],
    has_gradient: bool = True,
) -> None:
    small, middle, large = sizes
    FAMILIES[name] = Family(function, operands, (small, middle, large), has_gradient)


def _add_products() -> None:
    squares = ((64,), (256,), (512,))
    _add("matmul", torch.matmul, lambda n: [torch.randn(n, n), torch.randn(n, n)], *squares)
    _add(
        "matmul, long sums",
        lambda x, y: x.t() @ y,
        lambda n, rows, columns: [torch.randn(n, rows), torch.randn(n, columns)],
        *((1024, 16, 16), (4096, 64, 64), (65536, 16, 64)),
    )
    _add(
        "linear with bias",
        nnf.linear,
        lambda n, i, o: [torch.randn(n, i), torch.randn(o, i), torch.randn(o)],
        *((32, 128, 128), (128, 784, 512), (512, 256, 1024)),
    )
    _add(
        "linear, few rows",
        nnf.linear,
        lambda n, i, o: [torch.randn(n, i), torch.randn(o, i)],
        *((1, 256, 256), (8, 1024, 1024), (128, 768, 3072)),
    )
    _add("matrix x vector", torch.mv, lambda n: [torch.randn(n, n), torch.randn(n)], *squares)
    _add(
        "bmm",
        torch.bmm,
        lambda b, n: [torch.randn(b, n, n), torch.randn(b, n, n)],
        *((4, 32), (16, 64), (16, 160)),
    )
    _add(
        "attention",
        nnf.scaled_dot_product_attention,
        lambda b, h, n, d: [torch.randn(b, h, n, d) for _ in range(3)],
        *((1, 4, 32, 32), (2, 8, 128, 32), (2, 8, 256, 64)),
    )


def _image(n: int, channels: int, side: int, out: int, per_group: int, k: int) -> Operands:
    return [torch.randn(n, channels, side, side), torch.randn(out, per_group, k, k)]


def _add_convolutions() -> None:
    _add(
        "conv1d",
        lambda x, w: nnf.conv1d(x, w, padding=2),
        lambda n, c, size: [torch.randn(n, c, size), torch.randn(c, c, 5)],
        *((2, 16, 64), (4, 32, 256), (4, 64, 512)),
    )
    _add(
        "conv2d 3x3",
        lambda x, w: nnf.conv2d(x, w, padding=1),
        lambda n, c, size: _image(n, c, size, c, c, 3),
        *((2, 16, 16), (4, 32, 32), (4, 64, 32)),
    )
    _add(
        "conv2d 3x3, stride 2, few channels",
        lambda x, w: nnf.conv2d(x, w, padding=1, stride=2),
        lambda n, c, size: _image(n, 3, size, c, 3, 3),
        *((2, 16, 32), (4, 32, 64), (4, 64, 96)),
    )
    _add(
        "conv2d 1x1",
        nnf.conv2d,
        lambda n, c, size: _image(n, c, size, c, c, 1),
        *((2, 32, 8), (4, 64, 16), (4, 128, 32)),
    )
    _add(
        "conv2d 3x3 dilated",
        lambda x, w: nnf.conv2d(x, w, padding=2, dilation=2),
        lambda n, c, size: _image(n, c, size, c, c, 3),
        *((2, 16, 16), (4, 32, 24), (4, 64, 32)),
    )
    _add(
        "conv3d",
        lambda x, w: nnf.conv3d(x, w, padding=1),
        lambda n, c, size: [torch.randn(n, c, size, size, size), torch.randn(c, c, 3, 3, 3)],
        *((1, 8, 8), (2, 16, 12), (2, 32, 16)),
    )
    _add(
        "transposed conv2d",
        lambda x, w: nnf.conv_transpose2d(x, w, stride=2, padding=1),
        lambda n, c, size: _image(n, c, size, c, c, 4),
        *((2, 16, 8), (4, 32, 16), (4, 64, 16)),
    )
    for k in (3, 7):
        _add(
            f"depthwise conv2d {k}x{k}",
            lambda x, w: nnf.conv2d(x, w, padding=w.shape[-1] // 2, groups=x.shape[1]),
            lambda n, c, size, k=k: _image(n, c, size, c, 1, k),
            *((2, 32, 16), (4, 64, 32), (4, 128, 32)),
        )
    _add(
        "grouped conv2d",
        lambda x, w: nnf.conv2d(x, w, padding=1, groups=4),
        lambda n, c, size: _image(n, c, size, c, c // 4, 3),
        *((2, 32, 16), (4, 64, 24), (4, 128, 32)),
    )
    _add(
        "causal depthwise conv1d",
        lambda x, w: nnf.conv1d(nnf.pad(x, (3, 0)), w, groups=x.shape[1]),
        lambda n, c, size: [torch.randn(n, c, size), torch.randn(c, 1, 4)],
        *((2, 64, 64), (2, 256, 256), (4, 512, 512)),
    )


def _add_windows() -> None:
    images = ((2, 16, 16, 16), (4, 32, 32, 32), (8, 64, 56, 56))
    _add("max_pool2d 2x2", lambda x: nnf.max_pool2d(x, 2), _randn, *images)
    _add("max_pool2d 3x3, stride 2", lambda x: nnf.max_pool2d(x, 3, 2, 1), _randn, *images)
    _add("avg_pool2d 3x3, stride 2", lambda x: nnf.avg_pool2d(x, 3, 2, 1), _randn, *images)
    _add(
        "max_pool1d",
        lambda x: nnf.max_pool1d(x, 3, 2),
        _randn,
        *((2, 16, 64), (4, 32, 512), (8, 64, 2048)),
    )
    _add(
        "max_pool3d",
        lambda x: nnf.max_pool3d(x, 2),
        _randn,
        *((1, 8, 8, 8, 8), (2, 16, 16, 16, 16), (2, 32, 24, 24, 24)),
    )
    _add("adaptive_avg_pool2d", lambda x: nnf.adaptive_avg_pool2d(x, 7), _randn, *images)
    _add("adaptive_max_pool2d", lambda x: nnf.adaptive_max_pool2d(x, 7), _randn, *images)
    small = ((2, 8, 16, 16), (2, 16, 32, 32), (4, 32, 48, 48))
    for mode in ("nearest", "bilinear", "bicubic"):
        corners = None if mode == "nearest" else False
        _add(
            f"interpolate {mode}",
            lambda x, mode=mode, corners=corners: nnf.interpolate(
                x, scale_factor=2.0, mode=mode, align_corners=corners
            ),
            _randn,
            *small,
        )
    _add(
        "grid_sample",
        lambda x, grid: nnf.grid_sample(x, grid, align_corners=False),
        lambda n, c, h, w: [torch.randn(n, c, h, w), torch.rand(n, h, w, 2) * 2 - 1],
        *small,
    )
    _add(
        "unfold",
        lambda x: nnf.unfold(x, 3, padding=1),
        _randn,
        *small,
    )


def _scaled(*dims: int) -> Operands:
    channels = dims[1]
    return [torch.randn(dims), torch.randn(channels), torch.randn(channels)]


def _add_norms() -> None:
    images = ((2, 32, 8, 8), (4, 64, 16, 16), (8, 64, 32, 32))
    _add(
        "layer_norm",
        lambda x, w, b: nnf.layer_norm(x, x.shape[1:], w, b),
        _scaled,
        *((32, 128), (512, 256), (1024, 1024)),
    )
    _add(
        "group_norm",
        lambda x, w, b: nnf.group_norm(x, 8, w, b),
        _scaled,
        *images,
    )
    _add(
        "batch_norm, training",
        lambda x, w, b: nnf.batch_norm(x, None, None, w, b, training=True),
        _scaled,
        *images,
    )
    _add("instance_norm", lambda x, w, b: nnf.instance_norm(x, weight=w, bias=b), _scaled, *images)
    rows = ((32, 128), (512, 256), (1024, 1024))
    _add("rms_norm", lambda x: nnf.rms_norm(x, x.shape[1:]), _randn, *rows)
    _add("softmax", lambda x: x.softmax(-1), _randn, *rows)
    _add("log_softmax of columns", lambda x: x.log_softmax(0), _randn, *rows)


def _add_reductions() -> None:
    rows = ((64, 64), (512, 512), (1024, 2048))
    _add("sum of all", torch.sum, _randn, *rows)
    _add("mean of rows", lambda x: x.mean(1), _randn, *rows)
    _add("sum of columns", lambda x: x.sum(0), _randn, *rows)
    few = ((4096, 3), (65536, 3), (1048576, 3))
    _add("sum of few columns", lambda x: x.sum(0), _randn, *few)
    _add("var of few columns", lambda x: x.var(0), _randn, *few)
    _add("var of rows", lambda x: x.var(1), _randn, *rows)
    _add("max of rows", lambda x: x.max(1).values, _randn, *rows)
    _add("argmax of columns", lambda x: x.argmax(0), _randn, *rows, has_gradient=False)
    _add("logsumexp", lambda x: x.logsumexp(1), _randn, *rows)
    _add("norm", lambda x: x.norm(dim=1), _randn, *rows)
    _add("prod of rows", lambda x: x.prod(1), _randn, *rows)
    _add("max of all", torch.max, _randn, *rows, has_gradient=False)
    _add("amax of rows", lambda x: x.amax(1), _randn, *rows)
    _add("amax of columns", lambda x: x.amax(0), _randn, *rows)
    _add("amax of few columns", lambda x: x.amax(0), _randn, *few)
    _add("aminmax", lambda x: torch.aminmax(x).max, _randn, *rows)
    _add("prod of all", lambda x: x.prod(), _randn, *rows)
    _add("nansum of rows", lambda x: x.nansum(1), _randn, *rows)
    _add("count_nonzero", torch.count_nonzero, _randn, *rows, has_gradient=False)
    _add("any of rows", lambda x: x.any(1), _randn, *rows, has_gradient=False)
    scans = ((32, 64), (128, 512), (256, 2048))
    _add("cumsum", lambda x: x.cumsum(1), _randn, *scans)
    _add("cumsum of columns", lambda x: x.cumsum(0), _randn, *scans)
    _add("cumprod", lambda x: x.cumprod(1), _randn, *scans)
    _add("cummax", lambda x: x.cummax(1).values, _randn, *scans)
    _add("logcumsumexp", lambda x: x.logcumsumexp(1), _randn, *scans)
    _add("sort", lambda x: x.sort(1).values, _randn, *scans)
    _add("argsort of columns", lambda x: x.argsort(0), _randn, *scans, has_gradient=False)
    _add("topk", lambda x: x.topk(8, 1).values, _randn, *scans)
    _add("median", lambda x: x.median(1).values, _randn, *scans)
    _add("kthvalue", lambda x: x.kthvalue(5, 1).values, _randn, *scans)


def _add_indexing() -> None:
    tables = ((64, 32), (1000, 128), (8000, 256))

    def rows(n: int, width: int) -> Operands:
        return [torch.randn(n, width), torch.randint(n, (max(n // 2, 1),))]

    def places(n: int, width: int) -> Operands:
        index = torch.randint(n, (n // 2, width))
        return [torch.randn(n, width), index, torch.randn(n // 2, width)]

    _add("embedding", lambda x, i: nnf.embedding(i, x), rows, *tables)
    _add("index_select", lambda x, i: x.index_select(0, i), rows, *tables)
    _add("index", lambda x, i: x[i], rows, *tables)
    _add("index_add", lambda x, i: x.index_add(0, i, x[: i.shape[0]]), rows, *tables)
    _add(
        "index_put, accumulating",
        lambda x, i: x.index_put((i,), x[: i.shape[0]], accumulate=True),
        rows,
        *tables,
    )
    _add("gather", lambda x, i, y: x.gather(0, i), places, *tables)
    _add("scatter", lambda x, i, y: x.scatter(0, i, y), places, *tables, has_gradient=False)
    _add("scatter_add", lambda x, i, y: x.scatter_add(0, i, y), places, *tables)
    _add("masked_fill", lambda x, i: x.masked_fill(x > 0, 0.0), rows, *tables)
    _add("concatenation", lambda x, i: torch.cat([x, x * 2], 1), rows, *tables)
    _add("transposition", lambda x, i: x.t().contiguous(), rows, *tables)
    _add("flip", lambda x, i: x.flip(1), rows, *tables)
    _add("roll", lambda x, i: x.roll(3, 1), rows, *tables)
    _add("tril", lambda x, i: x.tril(), rows, *tables)
    _add("repeat_interleave", lambda x, i: x.repeat_interleave(2, 0), rows, *tables)
    _add("repeat", lambda x, i: x.repeat(2, 2), rows, *tables)
    _add("rot90", lambda x, i: x.rot90(), rows, *tables)
    _add(
        "copy of an expanded view",
        lambda x, i: x[:, None].expand(-1, 3, -1).contiguous(),
        rows,
        *tables,
    )


def _matrices(b: int, n: int) -> Operands:
    return [torch.randn(b, n, n) + n**0.5 * 3 * torch.eye(n)]


def _systems(b: int, n: int) -> Operands:
    return [*_matrices(b, n), torch.randn(b, n, 8)]


def _add_linear_algebra() -> None:
    batches = ((4, 8), (8, 32), (1, 256))

    def positive(a: Tensor) -> Tensor:
        return a @ a.mT / a.shape[-1] + torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)

    _add("cholesky", lambda a: torch.linalg.cholesky(positive(a)), _matrices, *batches)
    _add("solve", torch.linalg.solve, _systems, *batches)
    _add(
        "triangular solve",
        lambda a, b: torch.linalg.solve_triangular(a.tril(), b, upper=False),
        _systems,
        *batches,
    )
    _add("inverse", torch.linalg.inv, _matrices, *batches)
    _add("determinant", torch.linalg.det, _matrices, *batches)
    _add("LU", lambda a: torch.linalg.lu_factor(a).LU, _matrices, *batches)
    _add("QR", lambda a: torch.linalg.qr(a).R, _matrices, *batches)
    _add("SVD", torch.linalg.svdvals, _matrices, *batches)
    _add("eigh", lambda a: torch.linalg.eigvalsh(a + a.mT), _matrices, *batches)
    _add("matrix_exp", lambda a: torch.linalg.matrix_exp(a / 50), _matrices, *batches)
    signals = ((4, 64), (32, 1000), (64, 4096))
    _add("rfft", lambda x: torch.fft.rfft(x).abs(), _randn, *signals)
    _add("fft and back", lambda x: torch.fft.ifft(torch.fft.fft(x)).real, _randn, *signals)
    _add(
        "fft2",
        lambda x: torch.fft.fft2(x).abs(),
        _randn,
        *((1, 16, 16), (4, 64, 64), (8, 128, 128)),
    )
    points = ((32, 16), (128, 32), (384, 64))
    _add(
        "cdist",
        torch.cdist,
        lambda n, d: [torch.randn(n, d), torch.randn(n, d)],
        *points,
    )


def _add_elementwise() -> None:
    counts = ((4096,), (65536,), (1 << 20,))

    def two(n: int) -> Operands:
        return [torch.rand(n) + 0.1, torch.rand(n) + 0.1]

    one = {
        "exp": torch.exp,
        "log": torch.log,
        "sin": torch.sin,
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
        "erf": torch.erf,
        "gelu": nnf.gelu,
        "silu": nnf.silu,
        "softplus": nnf.softplus,
        "rsqrt": torch.rsqrt,
        "acos": lambda x: torch.acos(x * 0.5),
        "lgamma": torch.lgamma,
        "digamma": torch.digamma,
        "erfinv": lambda x: torch.erfinv(x * 0.5),
        "i0": torch.i0,
    }
    for name, function in one.items():
        _add(name, lambda x, y, f=function: f(x), two, *counts)
    _add("add", torch.add, two, *counts)
    _add("division", torch.div, two, *counts)
    _add("pow", torch.pow, two, *counts)
    _add("pow of a number", lambda x, y: x**1.7, two, *counts)
    _add("clamp", lambda x, y: x.clamp(0.5, 0.75), two, *counts)
    _add("lerp", lambda x, y: torch.lerp(x, y, 0.25), two, *counts)
    _add("atan2", torch.atan2, two, *counts)
    _add("where", lambda x, y: torch.where(x > y, x, y), two, *counts)
    _add("remainder", torch.remainder, two, *counts)


def _add_rarer() -> None:
    counts = ((4096,), (65536,), (1 << 20,))
    scans = ((32, 64), (128, 512), (256, 2048))

    def one(n: int) -> Operands:
        return [torch.rand(n) * 0.8 + 0.1]

    with_gradient = {
        "tan": torch.tan,
        "log1p": torch.log1p,
        "exp2": torch.exp2,
        "atanh": torch.atanh,
        "elu": nnf.elu,
        "ndtri": torch.special.ndtri,
    }
    without = {
        "floor_divide": lambda x: torch.floor_divide(x, 0.3),
        "igamma": lambda x: torch.igamma(x, x),
        "zeta": lambda x: torch.special.zeta(x + 1, x),
        "bessel_j1": torch.special.bessel_j1,
        "hermite_polynomial_he": lambda x: torch.special.hermite_polynomial_he(x, 4),
        "bucketize": lambda x: torch.bucketize(x, x[:64].sort().values),
        "to int": lambda x: (x * 100).int(),
    }
    for name, function in (with_gradient | without).items():
        _add(name, function, one, *counts, has_gradient=name in with_gradient)
    _add("logcumsumexp of columns", lambda x: x.logcumsumexp(0), _randn, *scans)
    _add("cummax of columns", lambda x: x.cummax(0).values, _randn, *scans)


def _add_losses() -> None:
    def classes(n: int, c: int) -> Operands:
        return [torch.randn(n, c), torch.randint(c, (n,))]

    def pair(n: int, c: int) -> Operands:
        return [torch.randn(n, c), torch.rand(n, c)]

    sizes = ((32, 10), (256, 1000), (512, 5000))
    _add("cross_entropy", nnf.cross_entropy, classes, *sizes)
    _add("multi_margin_loss", nnf.multi_margin_loss, classes, *sizes)
    _add("mse_loss", nnf.mse_loss, pair, *sizes)
    _add("smooth_l1_loss", nnf.smooth_l1_loss, pair, *sizes)
    _add("BCE with logits", nnf.binary_cross_entropy_with_logits, pair, *sizes)
    _add("kl_div", lambda x, y: nnf.kl_div(x, y, reduction="batchmean"), pair, *sizes)

    def sequences(steps: int, n: int, c: int) -> Operands:
        lengths = torch.full((n,), steps)
        targets = torch.randint(1, c, (n, steps // 4))
        return [torch.randn(steps, n, c), targets, lengths, lengths // 4]

    _add(
        "ctc_loss",
        lambda x, t, a, b: nnf.ctc_loss(x.log_softmax(-1), t, a, b),
        sequences,
        *((16, 2, 10), (64, 4, 30), (128, 8, 60)),
    )


def _add_recurrence() -> None:
    def cell(n: int, width: int) -> Operands:
        return [
            torch.randn(n, width),
            torch.randn(n, width),
            torch.randn(n, width),
            torch.randn(4 * width, width) * 0.1,
            torch.randn(4 * width, width) * 0.1,
        ]

    _add(
        "lstm_cell",
        lambda x, h, c, wi, wh: torch.lstm_cell(x, (h, c), wi, wh)[0],
        cell,
        *((8, 32), (32, 128), (64, 256)),
    )


for _register in (
    _add_products,
    _add_convolutions,
    _add_windows,
    _add_norms,
    _add_reductions,
    _add_indexing,
    _add_linear_algebra,
    _add_elementwise,
    _add_rarer,
    _add_losses,
    _add_recurrence,
):
    _register()
