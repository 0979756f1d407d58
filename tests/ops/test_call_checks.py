"""What a call refuses, and how its results are laid out, where neither a Meta kernel nor a lowering
says it: as PyTorch's kernels for the CPU have it."""

from __future__ import annotations

import math

import pytest
import torch
from pinned_torch import IS_NEWER, IS_OLDER
from torch import fft, linalg
from torch.autograd import forward_ad
from torch.nn import functional

FOREACH_LIMITS = (
    *("_foreach_clamp_min", "_foreach_clamp_max_"),
    *("_foreach_maximum", "_foreach_minimum_"),
)
DTYPES_AND_VALUES = (
    *((torch.uint8, 300), (torch.int8, 200), (torch.int32, 2**40), (torch.float16, 1e6)),
    *((torch.bfloat16, 1e39), (torch.float32, 1e39), (torch.float32, 1j)),
)
CONVERSIONS = {
    "masked_fill": lambda x, v: x.masked_fill(x == 1, v),
    "masked_fill_": lambda x, v: x.masked_fill_(x == 1, v),
    "fill_": lambda x, v: x.fill_(v),
    "full": lambda x, v: torch.full((3,), v, dtype=x.dtype, device=x.device),
    "full_like": lambda x, v: torch.full_like(x, v),
    "index_fill": lambda x, v: x.index_fill(0, torch.tensor([1], device=x.device), v),
    "scatter": lambda x, v: x.scatter(0, torch.tensor([1], device=x.device), v),
    "setitem": lambda x, v: x.__setitem__(1, v),
    "pad": lambda x, v: functional.pad(x, (1, 1), value=v),
    "clamp": lambda x, v: x.clamp(max=v),
    "pow": lambda x, v: x.pow(v) if not isinstance(v, complex) else x.fill_(v),
    "addcmul": lambda x, v: torch.addcmul(x, x, x, value=v),
    "add": lambda x, v: torch.add(x, x, alpha=v),
    "rsub": lambda x, v: torch.rsub(x, x, alpha=v),
    "lerp": lambda x, v: torch.lerp(x, x, v),
    "_foreach_clamp_min": lambda x, v: torch._foreach_clamp_min([x], v),
    "_foreach_clamp_max_": lambda x, v: torch._foreach_clamp_max_([x, x], [1, v]),
    "_foreach_maximum": lambda x, v: torch._foreach_maximum([x, x], [v, 1]),
    "_foreach_minimum_": lambda x, v: torch._foreach_minimum_([x], v),
    "_foreach_addcmul": lambda x, v: torch._foreach_addcmul([x], [x], [x], v),
    "_foreach_addcdiv_": lambda x, v: torch._foreach_addcdiv_([x], [x], [x], [v]),
    "_foreach_add": lambda x, v: torch._foreach_add([x], [x], alpha=v),
    "_foreach_sub_": lambda x, v: torch._foreach_sub_([x], [x], alpha=v),
    "_foreach_lerp": lambda x, v: torch._foreach_lerp([x], [x], v),
    "_foreach_pow_": lambda x, v: torch._foreach_pow_([x], [v]),
}


def outcome(function):
    try:
        function()
    except Exception as error:
        return type(error), str(error).split("\n")[0]
    return None


@pytest.mark.parametrize("name", CONVERSIONS)
@pytest.mark.parametrize(("dtype", "value"), DTYPES_AND_VALUES, ids=str)
def test_number_that_the_dtype_cannot_hold_is_refused(name, dtype, value, device):
    if IS_OLDER and (name, dtype, value) == ("clamp", torch.float32, 1j):
        pytest.skip("the older message names float where all others name double")
    if IS_NEWER and name in ("clamp", "setitem", *FOREACH_LIMITS):
        pytest.skip("the newer takes limits beyond the dtype's, and writes them as infinity")
    want = outcome(lambda: CONVERSIONS[name](torch.ones(3, dtype=dtype), value))
    got = outcome(lambda: CONVERSIONS[name](torch.ones(3, dtype=dtype, device=device), value))
    assert got == want
    fits = outcome(lambda: CONVERSIONS[name](torch.ones(3, dtype=dtype), 1))
    assert outcome(lambda: CONVERSIONS[name](torch.ones(3, dtype=dtype, device=device), 1)) == fits


# Each takes a tensor of reals and gives one.
COMPLEX_NUMBERS = {
    "addcmul": lambda x: torch.addcmul(x, x, x, value=1j),
    "addcmul_": lambda x: x.addcmul_(x.clone(), x.clone(), value=1j),
    "addcdiv": lambda x: torch.addcdiv(x, x, x, value=1j),
    "lerp": lambda x: torch.lerp(x, x, 1j),
    "lerp_": lambda x: x.lerp_(x.clone(), 1j),
    "addmm": lambda x: torch.addmm(x, x, x, alpha=1j),
    "addmm beta": lambda x: torch.addmm(x, x, x, beta=1j),
    "addmv": lambda x: torch.addmv(x[0], x, x[0], beta=1j),
    "addr": lambda x: torch.addr(x, x[0], x[0], alpha=1j),
    "baddbmm": lambda x: torch.baddbmm(x[None], x[None], x[None], alpha=1j),
    "scatter": lambda x: torch.scatter(x, 0, (x[:1, :1] * 0).long(), 1j, reduce="add"),
    "index_add": lambda x: x.index_add(0, (x[0] * 0).long(), x, alpha=1j),
    "setitem": lambda x: x.__setitem__((0, 0), 1j),
    "clamp_min": lambda x: torch.clamp_min(x, 1j),
    "linspace": lambda x: torch.linspace(0, 1j, 3, dtype=x.dtype, device=x.device),
    "_foreach_addcmul": lambda x: torch._foreach_addcmul([x], [x], [x], 1j),
    "_foreach_lerp": lambda x: torch._foreach_lerp([x], [x], 1j),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("name", COMPLEX_NUMBERS)
def test_imaginary_parts_are_not_dropped(name, dtype, device):
    want = outcome(lambda: COMPLEX_NUMBERS[name](torch.ones(2, 2, dtype=dtype)))
    got = outcome(lambda: COMPLEX_NUMBERS[name](torch.ones(2, 2, dtype=dtype, device=device)))
    assert want is not None
    assert got is not None
    assert got[0] is want[0]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.rsub(x, 1j),
        lambda x: x * 1j,
        lambda x: torch.where(x > 0, x, 1j),
        lambda x: torch._foreach_mul([x], 1j),
    ],
)
def test_complex_numbers_beside_halves_would_be_of_a_dtype_that_is_not_there(call, device):
    with pytest.raises(NotImplementedError, match="ComplexHalf"):
        call(torch.ones(2, dtype=torch.float16, device=device))


MASKED = {
    "integers by imaginary": lambda x: x.long().masked_fill(x > 0, (x[0, 0] + 1) * 1j),
    "reals by imaginary": lambda x: x.masked_fill_(x > 0, (x[0, 0] + 1) * 1j),
    "gradient of imaginary": lambda x: x.masked_fill(
        x > 0, ((x[0, 0] + 1) * 1j).detach().requires_grad_()
    ),
    "bytes by a number of the host": lambda x: x.byte().masked_fill(x > 0, torch.tensor(300)),
    "complex that is real": lambda x: x.long().masked_fill(x > 0, x.sum() * 0 + (1 + 0j)),
    "complex by complex": lambda x: x.cfloat().masked_fill(x > 0, x.sum() * 1j),
}


@pytest.mark.parametrize("name", MASKED)
def test_fill_by_a_tensor_that_the_dtype_cannot_hold_is_refused(name, device):
    want = outcome(lambda: MASKED[name](torch.ones(2, 3)))
    assert (want is None) == name.startswith("complex")
    assert outcome(lambda: MASKED[name](torch.ones(2, 3, device=device))) == want


def margin_loss(x, target=(0, 1), p=1, margin=1, weight=None):
    targets = torch.tensor(target, device=x.device)
    return torch.ops.aten.multi_margin_loss(x, targets, p, margin, weight)


BAD_CALLS = {
    "exponential_": lambda x: x.exponential_(0),
    "cauchy_": lambda x: x.cauchy_(0, -1),
    "log_normal_": lambda x: x.log_normal_(0, 0),
    "geometric_": lambda x: x.geometric_(1),
    "huber_loss": lambda x: functional.huber_loss(x, x, delta=0),
    "t_copy": lambda x: torch.ops.aten.t_copy(x[None]),
    "embedding": lambda x: functional.embedding(x.long(), x[0]),
    "conv1d": lambda x: functional.conv1d(x[None], x[None], stride=0),
    "max": lambda x: x[:0].max(),
    "amax": lambda x: x[:0].amax(),
    "argmin": lambda x: x[:0].argmin(0),
    "sort out=": lambda x: torch.msort(x, out=x.double()),
    "nanmedian": lambda x: x[:0].nanmedian(0),
    "ihfft2": lambda x: fft.ihfft2(x.cfloat()),
    "narrow_copy": lambda x: x.narrow_copy(3, 0, 1),
    "dot out=": lambda x: torch.dot(x[0], x[0], out=x.sum().double()),
    "index_select out=": lambda x: torch.index_select(
        x, 0, torch.tensor([0], device=x.device), out=x.double()
    ),
    "mm out=": lambda x: torch.mm(x, x.t(), out=x.double()),
    "isneginf out=": lambda x: torch.isneginf(x, out=x.double()),
    "arange": lambda x: torch.arange(0, 64, 0.5, dtype=torch.int64, device=x.device),
    "pow": lambda x: x.long() ** -1,
    "pow_": lambda x: x.long().pow_(-2),
    "foreach_pow": lambda x: torch._foreach_pow([x.long()], -1),
    "foreach_sub of a mask": lambda x: torch._foreach_sub([x > 0], 1),
    "foreach_sub of two masks": lambda x: torch._foreach_sub([x > 0], [x > 0]),
    "foreach_sub_ of a truth": lambda x: torch._foreach_sub_([x.long()], [True]),
    "floor_divide": lambda x: x.long() // 0,
    "floor_divide_": lambda x: x.long().floor_divide_(0),
    "div": lambda x: torch.div(x.bool(), 0, rounding_mode="trunc"),
    "fmod": lambda x: x.long().fmod(0),
    "remainder_": lambda x: x.int().remainder_(0),
    "remainder of a tensor on the host": lambda x: x.long().remainder(torch.tensor(0)),
    "cdist": lambda x: torch.cdist(x, x, -1.0),
    "pixel_shuffle": lambda x: functional.pixel_shuffle(x[None], 2**40),
    "max_pool3d": lambda x: functional.max_pool3d(x.view(1, 1, 2, 3)[:0], 1),
    "multinomial": lambda x: torch.multinomial(x.view(-1)[0].expand(2**24 + 1), 1),
    "cholesky_inverse": lambda x: torch.cholesky_inverse(x[0]),
    "cholesky_inverse of a rectangle": lambda x: torch.cholesky_inverse(x),
    "addbmm": lambda x: torch.addbmm(x, x, x),
    "addbmm of a vector": lambda x: torch.addbmm(x, x[0], x[None]),
    "addbmm by a vector": lambda x: torch.addbmm(x, x[None], x[0]),
    "addbmm of a number": lambda x: torch.addbmm(x, x[0, 0], x[None]),
    "addbmm of a matrix": lambda x: torch.addbmm(x[:1, :1], x, x[None].mT),
    "addbmm by a matrix": lambda x: torch.addbmm(x, x[None], x),
    "addbmm to a batch": lambda x: torch.addbmm(x[None], x[None], x[None].mT),
    "addbmm to another size": lambda x: torch.addbmm(x, x[None], x[None].mT),
    "norm of integers in float": lambda x: x.long().norm(2, 0, dtype=torch.float32),
    "multi_margin_loss, p": lambda x: margin_loss(x, p=3),
    "multi_margin_loss, number of targets": lambda x: margin_loss(x, target=(0, 1, 2)),
    "multi_margin_loss, dtype of targets": lambda x: margin_loss(x, target=(0.0, 1.0)),
    "multi_margin_loss, number of weights": lambda x: margin_loss(x, weight=x[0, :2]),
    "multi_margin_loss, shape of weights": lambda x: margin_loss(x, weight=x[:1]),
    "multi_margin_loss, dtype of weights": lambda x: margin_loss(x, weight=x[0].double()),
    "multi_margin_loss, margin": lambda x: margin_loss(x, margin=1e300),
    "multi_margin_loss, shape": lambda x: margin_loss(x[None]),
    "multi_margin_loss, no classes": lambda x: margin_loss(x[:, :0]),
    "abs_": lambda x: x.cfloat().abs_(),
    "foreach_abs_": lambda x: torch._foreach_abs_([x, x.cfloat()]),
    "abs out=": lambda x: torch.abs(x.cfloat(), out=x.long()),
    "mean out=": lambda x: torch.mean(x.cfloat(), out=x.sum().double()),
    "logit_": lambda x: x.long().logit_(),
    "nan_to_num_": lambda x: x[:1].expand(2, 3).nan_to_num_(),
    "cummax out=": lambda x: torch.cummax(x, 0, out=(x.clone(), x.double())),
    "frexp out=": lambda x: torch.frexp(x, out=(x.clone(), x.double())),
    "kthvalue out=": lambda x: torch.kthvalue(x, 1, out=(x[:, 0].clone(), x[:, 0].double())),
    "mode out=": lambda x: torch.mode(x, out=(x[:, 0].clone(), x[:, 0].double())),
    "sort positions out=": lambda x: torch.sort(x, out=(x.clone(), x.double())),
    "out= that overlaps": lambda x: torch.nan_to_num(x, out=x[:1, :1].expand(2, 3)),
}


# What makes a tensor of given sizes.
FACTORIES = {
    "ones": lambda x, size: torch.ones(size, device=x.device),
    "empty": lambda x, size: torch.empty(size, device=x.device),
    "rand": lambda x, size: torch.rand(size, device=x.device),
    "randn": lambda x, size: torch.randn(size, device=x.device),
    "full": lambda x, size: torch.full(size, 2.0, device=x.device),
    "randint": lambda x, size: torch.randint(5, size, device=x.device),
    "normal": lambda x, size: torch.normal(0.0, 1.0, size, device=x.device),
    "empty_strided": lambda x, size: torch.empty_strided(size, size, device=x.device),
    "empty_permuted": lambda x, size: torch.empty_permuted(size, range(len(size)), device=x.device),
    "new_ones": lambda x, size: x.new_ones(size),
    "new_zeros": lambda x, size: x.new_zeros(size),
    "new_empty": lambda x, size: x.new_empty(size),
    "new_full": lambda x, size: x.new_full(size, 2.0),
    "new_empty_strided": lambda x, size: x.new_empty_strided(size, size),
    "Tensor.new": lambda x, size: x.new(*size),
}


@pytest.mark.parametrize("size", [(-1,), (2, -3), (0, -1), (-2, -2)])
@pytest.mark.parametrize("name", FACTORIES)
def test_negative_sizes_are_refused_in_the_same_words(name, size, device):
    want = outcome(lambda: FACTORIES[name](torch.rand(2, 3), size))
    assert want is not None
    assert outcome(lambda: FACTORIES[name](torch.rand(2, 3).to(device), size)) == want


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_call_is_refused_in_the_same_words(name, device):
    if IS_OLDER and name == "arange":
        pytest.skip("the older kernel divides by the step, 0 as an integer: SIGFPE")
    if IS_OLDER and name == "multi_margin_loss, number of targets":
        pytest.skip("the older one words it otherwise")
    if IS_NEWER and name in ("arange", "max_pool3d"):
        pytest.skip("the newer takes steps below 1, and words the pool's error otherwise")
    want = outcome(lambda: BAD_CALLS[name](torch.rand(2, 3)))
    assert want is not None
    assert outcome(lambda: BAD_CALLS[name](torch.rand(2, 3).to(device))) == want


def positive(x):
    return x @ x.mT + 5 * torch.eye(x.shape[-2], device=x.device)


def images(x):
    return x.repeat(2, 1, 1, 1).contiguous(memory_format=torch.channels_last)


def batch_norms(x):
    statistics = (x.mean((0, 2, 3)), x.var((0, 2, 3)))
    aten = torch.ops.aten
    return [
        aten._native_batch_norm_legit(x, None, None, *statistics, True, 0.1, 1e-5)[0],
        aten._batch_norm_with_update(x, None, None, *statistics, 0.1, 1e-5)[0],
        aten._batch_norm_with_update_functional(x, None, None, *statistics, 0.1, 1e-5)[0],
        aten._batch_norm_no_update(x, None, None, *statistics, 0.1, 1e-5)[0],
    ]


OF_IMAGES = (
    lambda x: functional.conv2d(x, x),
    lambda x: functional.conv_transpose2d(x[:, :2].contiguous(), x),
    lambda x: functional.batch_norm(x, None, None, training=True),
    lambda x: functional.pad(x, (1, 1, 1, 1), mode="reflect"),
    lambda x: functional.pad(x, (1, 1, 1, 1), mode="replicate"),
    lambda x: functional.max_unpool2d(x.contiguous(), torch.zeros_like(x, dtype=torch.int64), 2),
    lambda x: functional.max_unpool2d(*functional.max_pool2d(x, 2, return_indices=True), 2),
)
LAYOUTS = {
    "fft": lambda x: [fft.fft(x, dim=d) for d in (0, 1, 2)],
    "rfft": lambda x: [fft.rfft(x, dim=1), fft.rfft2(x, dim=(0, 1)), fft.rfftn(x)],
    "irfft": lambda x: [fft.irfft(x, dim=1), fft.irfftn(x, dim=(0, 1))],
    "fftn": lambda x: [fft.fft2(x, dim=(0, 1)), fft.ifftn(x), fft.ihfft(x, dim=0)],
    "fft of four dimensions": lambda x: [
        fft.fftn(x[None]),
        fft.fftn(x[None].expand(2, -1, -1, -1)),
    ],
    "irfft of what repeats": lambda x: [fft.irfftn(x.cfloat()[:1].expand(x.shape))],
    "cholesky": lambda x: [
        *(linalg.cholesky(positive(x)), torch.cholesky_inverse(positive(x))),
        torch.cholesky_solve(x, positive(x)),
    ],
    "lstsq": lambda x: [linalg.lstsq(x.mT, x.mT)[0], linalg.lstsq(x, x, driver="gels")[0]],
    "qr": lambda x: [
        *(*linalg.qr(x), *torch.geqrf(x)),
        linalg.householder_product(x.mT, x[:, :, 0]),
    ],
    "eigen": lambda x: [*linalg.eig(positive(x)), *linalg.eigh(positive(x)), *linalg.svd(x)],
    "lu": lambda x: [*linalg.lu(x), *linalg.lu_factor(x)],
    "triangle": lambda x: [linalg.solve_triangular(positive(x), x, upper=True)],
    "hfft": lambda x: [fft.hfftn(x, dim=d) for d in ((0, 1), (2, 0), (0, 1, 2))],
    "channels_last": lambda x: [call(images(x)) for call in OF_IMAGES],
    "batch_norm": lambda x: batch_norms(images(x)),
    "rot90": lambda x: [x.rot90(1, (0, 1)), x.rot90(2, (1, 2))],
    "permuted": lambda x: [torch.empty_permuted(x.shape, (0, 2, 1), device=x.device)],
    "nonzero": lambda x: [
        torch.nonzero_static(y, size=3) for y in (x, x.mT, x[:1].expand(4, 5, 6))
    ],
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_strides_are_those_of_the_cpu(name, device):
    x = torch.rand(4, 5, 6)
    want = [r.stride() for r in LAYOUTS[name](x)]
    assert [r.stride() for r in LAYOUTS[name](x.to(device))] == want


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # by PyTorch's own formulas
def test_forward_derivative_of_a_result_with_gaps_between_columns(device):
    x = torch.rand(4, 3) + torch.eye(4, 3)
    assert linalg.lstsq(x, x)[0].stride() == (1, 4)

    def derivative(x):
        with forward_ad.dual_level():
            y = forward_ad.make_dual(x, torch.ones_like(x))
            return forward_ad.unpack_dual(linalg.lstsq(y, y.sin())[0]).tangent

    got = derivative(x.to(device))
    assert got.stride() == derivative(x).stride()
    torch.testing.assert_close(got.cpu(), derivative(x), rtol=1e-4, atol=1e-4)


def test_cumprod_in_place_keeps_what_its_gradient_needs(device):
    def gradient(x):
        leaf = x.detach().requires_grad_()
        y = leaf * 1
        y.cumprod_(0)
        return torch.autograd.grad(y.sum(), leaf)[0]

    x = torch.rand(4, 3) + 0.5
    torch.testing.assert_close(gradient(x.to(device)).cpu(), gradient(x))


def test_product_is_not_a_view(device):
    x = torch.rand(4, 3, device=device, requires_grad=True)
    assert not x.prod()._is_view()
    assert not x.prod(1)._is_view()


def test_zeros_divide_where_nothing_or_a_fraction_is_divided(device):
    x = torch.arange(3, device=device)
    assert (x[:0] // 0).shape == x[:0].remainder(0).shape == (0,)
    assert (x.float() // 0).isnan().tolist() == [True, False, False]
    assert (x / 0).isinf().tolist() == [False, True, True]
    assert (x.bool() ** 2).tolist() == [0, 1, 1]


@pytest.mark.parametrize("shape", [(), (3, 1)], ids=str)
def test_product_of_single_elements_is_not_the_argument(shape, device):
    x = torch.rand(shape, device=device, requires_grad=True)
    y = x.prod(-1, keepdim=True).mul_(2)
    torch.testing.assert_close(y.cpu(), 2 * x.detach().cpu())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.complex64], ids=str)
@pytest.mark.parametrize("dim", [None, 0, -1])
def test_gradients_of_products_with_zeros(dim, dtype, device):
    def gradients(x, create_graph):
        leaf = x.detach().requires_grad_()
        y = leaf.prod() if dim is None else leaf.prod(dim)
        weight = torch.linspace(1, 2, y.numel()).view(y.shape).to(y)
        (first,) = torch.autograd.grad(y, leaf, weight, create_graph=create_graph)
        if not create_graph:
            return [first]
        return [first.detach(), *torch.autograd.grad(first, leaf, torch.ones_like(first))]

    for rows in ([1, 1, 1], [1, 0, 1], [0, 0, 1], [2, 0, 0], [0, math.inf, 0]):
        x = (torch.arange(12.0).view(3, 4) / 8 + 0.5).to(dtype)
        for row, num_zeros in enumerate(rows):
            x[row, 1 : 1 + int(min(num_zeros, 2))] = 0 if math.isfinite(num_zeros) else math.inf
        is_finite = bool(x.isfinite().all())
        for create_graph in (False, True) if is_finite else (False,):
            if x.is_complex() and not is_finite:
                continue  # docs/errors.md: which part is NaN may differ
            for got, want in zip(
                gradients(x.to(device), create_graph), gradients(x, create_graph), strict=True
            ):
                tolerance = 2e-2 if dtype == torch.float16 else 1e-4
                torch.testing.assert_close(
                    got.cpu(), want, rtol=tolerance, atol=tolerance, equal_nan=True
                )


def test_product_of_no_elements_has_a_second_gradient(device):
    for dim in ((), (0,), (1,)):
        x = torch.rand(2, 0, device=device, requires_grad=True)
        (first,) = torch.autograd.grad(x.prod(*dim).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        assert second.shape == x.shape


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 1, 0], [2, 0, 1, 3, 3, 2]])
def test_bag_maximum_keeps_a_nan_that_comes_first(order, device):
    weight = torch.tensor([[1.0, math.nan], [2.0, 0.0], [math.nan, 3.0], [0.5, math.nan]])
    indices, offsets = torch.tensor(order), torch.tensor([0, 2, 2, 5])
    want = functional.embedding_bag(indices, weight, offsets, mode="max")
    got = functional.embedding_bag(
        indices.to(device), weight.to(device), offsets.to(device), mode="max"
    )
    torch.testing.assert_close(got.cpu(), want, equal_nan=True, rtol=0, atol=0)


def test_bessel_functions_have_the_precision_of_float64(device):
    # Where PyTorch's own series for the CPU is off by 4e-7. Reference: Abramowitz and Stegun.
    x = torch.tensor([1.0, 5.5, 7.0], dtype=torch.float64)
    j0 = [0.7651976865579665514, -0.0068438694178191, 0.3000792705195556]
    torch.testing.assert_close(
        torch.special.bessel_j0(x.to(device)).cpu(),
        torch.tensor(j0, dtype=torch.float64),
        rtol=0,
        atol=1e-14,
    )
    near = torch.linspace(-2, 2, 101, dtype=torch.float64)
    torch.testing.assert_close(
        torch.special.spherical_bessel_j0(near.to(device)).cpu(),
        torch.special.spherical_bessel_j0(near),
        rtol=0,
        atol=1e-14,
    )


def test_list_of_numbers_on_the_cpu_takes_part(device):
    factors = [torch.tensor(2.0), torch.tensor(3.0)]
    made = [torch.ones(2, device=device), torch.ones(3, device=device)]
    torch._foreach_mul_(made, factors)
    assert [x.tolist() for x in made] == [[2, 2], [3, 3, 3]]
    with pytest.raises(RuntimeError):
        torch._foreach_mul_(made, [made[1].sum(), factors[0]])


def test_gradients_of_a_complex_linear_layer_are_conjugated(device):
    x, weight, bias = (torch.randn(s, dtype=torch.complex64) for s in ((2, 3), (4, 3), (4,)))

    def gradients(*tensors):
        leaves = [t.detach().requires_grad_() for t in tensors]
        return torch.autograd.grad(functional.linear(*leaves).abs().sum(), leaves)

    for got, want in zip(
        gradients(x.to(device), weight.to(device), bias.to(device)),
        gradients(x, weight, bias),
        strict=True,
    ):
        torch.testing.assert_close(got.cpu(), want)


def test_loss_without_a_counted_sample_has_no_gradient(device):
    x = torch.rand(2, 3).to(device).requires_grad_()
    target = torch.tensor([1, 1], device=device)
    loss = functional.cross_entropy(x, target, ignore_index=1)
    assert math.isnan(loss.item())
    assert torch.autograd.grad(loss, x)[0].cpu().tolist() == [[0, 0, 0], [0, 0, 0]]


def test_fractional_pooling_of_one_volume_takes_the_first_random_numbers(device):
    x, samples = torch.rand(4, 5, 5, 5), torch.rand(2, 4, 3)

    def pooled(x, samples):
        return functional.fractional_max_pool3d(x, 2, output_ratio=0.5, _random_samples=samples)

    torch.testing.assert_close(pooled(x.to(device), samples.to(device)).cpu(), pooled(x, samples))


def test_dropout_of_integers_has_a_gradient_of_floats(device):
    grad, mask = torch.tensor([1, 2, 3]), torch.tensor([True, False, True])
    want = torch.ops.aten.native_dropout_backward(grad, mask, 2.0)
    got = torch.ops.aten.native_dropout_backward(grad.to(device), mask.to(device), 2.0)
    torch.testing.assert_close(got.cpu(), want)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int64], ids=str)
def test_comparison_in_place_with_a_complex_number_is_a_comparison(device, dtype):
    x = torch.tensor([2, 1, 0]).to(dtype)
    for number in (1 + 0j, 1 + 2j):
        assert torch.equal(x.to(device).ne_(number).cpu(), x.clone().ne_(number))
        assert torch.equal(x[0].to(device).eq_(number).cpu(), x[0].clone().eq_(number))
    with pytest.raises(RuntimeError, match="without overflow"):
        x.to(device).fill_(1 + 2j)


MASK = torch.tensor([True, False])
BYTES = torch.tensor([1, 2], dtype=torch.uint8)
REFUSED_DTYPES = {
    "1 - mask": lambda d: 1 - MASK.to(d),
    "1.0 - mask": lambda d: 1.0 - MASK.to(d),
    "1j - mask": lambda d: 1j - MASK.to(d),
    "rsub of masks": lambda d: torch.rsub(MASK.to(d), MASK.to(d)),
    "rsub of a mask": lambda d: torch.rsub(BYTES.to(d), MASK.to(d)),
    "hardtanh": lambda d: functional.hardtanh(BYTES.to(d)),
    "hardtanh_": lambda d: functional.hardtanh_(BYTES.to(d)),
    "tril_indices": lambda d: torch.tril_indices(3, 3, dtype=torch.float32, device=d),
    "triu_indices": lambda d: torch.triu_indices(3, 3, dtype=torch.int8, device=d),
    "hardtanh of int8": lambda d: functional.hardtanh(BYTES.to(d, torch.int8), -300, 5),
    "threshold": lambda d: functional.threshold(BYTES.to(d), 300, 1),
    "threshold's value": lambda d: functional.threshold(BYTES.to(d), 1, 300),
    "multilabel_margin_loss": lambda d: functional.multilabel_margin_loss(
        torch.ones(2, 3, device=d), torch.ones(2, 3, device=d)
    ),
    **{
        f"{name} of {dtype}": lambda d, call=call, dtype=dtype: call(device=d, dtype=dtype)
        for dtype in (torch.bool, torch.complex64, torch.float8_e5m2)
        for name, call in (
            ("arange", lambda **options: torch.arange(4, **options)),
            ("linspace", lambda **options: torch.linspace(0, 1, 4, **options)),
            ("logspace", lambda **options: torch.logspace(0, 1, 4, **options)),
            ("randperm", lambda **options: torch.randperm(4, **options)),
        )
        if dtype != torch.complex64 or name in ("arange", "randperm")
    },
}


@pytest.mark.parametrize("name", REFUSED_DTYPES)
def test_dtypes_are_refused_at_the_call(name, device):
    if IS_NEWER and name in ("hardtanh", "hardtanh_", "hardtanh of int8"):
        pytest.skip("the newer takes limits beyond the dtype's")
    want = outcome(lambda: REFUSED_DTYPES[name]("cpu"))
    assert want is not None
    kind, words = outcome(lambda: REFUSED_DTYPES[name](device))
    assert kind is want[0]
    assert words.endswith(want[1])  # behind the operator's name where a kernel names itself


# Of what is made by `o(*sizes)`, and a number.
NUMBERS = {
    "addmm": lambda o, n: torch.addmm(o(2, 2), o(2, 2), o(2, 2), alpha=n),
    "addmm's beta": lambda o, n: torch.addmm(o(2, 2), o(2, 2), o(2, 2), beta=n),
    "addmv": lambda o, n: torch.addmv(o(2), o(2, 2), o(2), alpha=n),
    "addr": lambda o, n: torch.addr(o(2, 2), o(2), o(2), alpha=n),
    "addr's beta": lambda o, n: torch.addr(o(2, 2), o(2), o(2), beta=n),
    "addbmm": lambda o, n: torch.addbmm(o(2, 2), o(1, 2, 2), o(1, 2, 2), beta=n),
    "baddbmm": lambda o, n: torch.baddbmm(o(1, 2, 2), o(1, 2, 2), o(1, 2, 2), beta=n),
    "arange": lambda o, n: torch.arange(n, n * 2, n, dtype=o(2).dtype, device=o(2).device),
    "arange(out=)": lambda o, n: torch.arange(n, n * 2, n, out=o(1)),
    "arange's end": lambda o, n: torch.arange(0, n * 2, n, dtype=o(2).dtype, device=o(2).device),
    "range": lambda o, n: torch.range(n, n * 2, n, dtype=o(2).dtype, device=o(2).device),
    "celu": lambda o, n: functional.celu(o(2), n),
    "elu": lambda o, n: functional.elu(o(2), n),
    "floor_divide": lambda o, n: o(2) // n,
    "fmod": lambda o, n: torch.fmod(o(2), n),
    "hardshrink": lambda o, n: functional.hardshrink(o(2), n),
    "index_add": lambda o, n: o(2).index_add(0, o(2).to(torch.int64) * 0, o(2), alpha=n),
    "leaky_relu": lambda o, n: functional.leaky_relu(o(2), n),
    "linspace": lambda o, n: torch.linspace(n, 1, 2, dtype=o(2).dtype, device=o(2).device),
    "linspace(out=)": lambda o, n: torch.linspace(1, n, 2, out=o(2)),
    "logit": lambda o, n: torch.logit(o(2), n),
    "logspace": lambda o, n: torch.logspace(1, n, 2, dtype=o(2).dtype, device=o(2).device),
    "remainder": lambda o, n: torch.remainder(o(2), n),
    "scatter": lambda o, n: o(2).scatter(0, o(2).to(torch.int64) * 0, n, reduce="multiply"),
    "softplus": lambda o, n: functional.softplus(o(2), n),
    "sub": lambda o, n: torch.sub(o(2), o(2), alpha=n),
}


@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_do_not_fit_are_refused_at_the_call(name, dtype, device):
    if IS_NEWER and name == "range" and dtype.is_floating_point:
        pytest.skip("the newer words what is infinite otherwise")
    for number in (1, 300, 2**40, 1e20, 1e39, math.inf, True):
        want, got = (
            outcome(
                lambda d=d, n=number: NUMBERS[name](
                    lambda *sizes: torch.ones(sizes, dtype=dtype, device=d), n
                )
            )
            for d in ("cpu", device)
        )
        assert (got is None) == (want is None), (number, want, got)
        assert want is None or (got[0] is want[0] and got[1].endswith(want[1])), (number, want)


HISTOGRAMS = {"300": (300, 1e6), "infinite": (0, math.inf), "NaN": (math.nan, 1), "none": (2, 1)}


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_histc_refuses_bounds_as_on_the_cpu(name, device):
    x = torch.ones(3, dtype=torch.float16)
    want, got = (
        outcome(lambda d=d: torch.histc(x.to(d), 4, *HISTOGRAMS[name])) for d in ("cpu", device)
    )
    assert want is not None
    assert got == want


def test_narrower_dtypes_of_norms_are_refused_at_the_call(device):
    x = torch.ones(2, dtype=torch.float64)
    for call in (
        lambda x: torch.norm(x, 2, dtype=torch.float32),
        lambda x: torch.norm(x, 1, dtype=torch.float16),
        lambda x: torch.norm(x, 2, dim=0, dtype=torch.float32),
    ):
        want, got = (outcome(lambda call=call, d=d: call(x.to(d))) for d in ("cpu", device))
        assert want is not None
        assert got == want
    assert torch.norm(x.float().to(device), 2, dtype=torch.float64).dtype == torch.float64


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *(("_foreach_norm", t) for t in (torch.float16, torch.float64, torch.complex64)),
        *(("_foreach_powsum", t) for t in (torch.float16, torch.float64)),
    ],
    ids=str,
)
def test_dtypes_of_norms_over_lists_are_refused_as_on_the_cpu(name, dtype, device):
    x = torch.ones(2, dtype=dtype)
    for wanted in (torch.float16, torch.float32, torch.float64, torch.complex64, torch.int64):
        want, got = (
            outcome(lambda d=d, w=wanted: getattr(torch, name)([x.to(d)], 2, dtype=w))
            for d in ("cpu", device)
        )
        assert (got is None) == (want is None), (wanted, want, got)
        assert want is None or (got[0] is want[0] and got[1].endswith(want[1])), (want, got)
