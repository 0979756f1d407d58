"""dtypes, type promotion, 0-dim and wrapped numbers, and empty tensors are PyTorch's."""

from __future__ import annotations

import itertools

import pytest
import torch

import torch_xla

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]


def values(dtype, *shape):
    count = torch.Size(shape).numel()
    return (torch.arange(count) % 3 + 1).to(dtype).reshape(shape)


def same(want, got):
    assert (want.dtype, want.shape) == (got.dtype, got.shape)
    torch.testing.assert_close(got.cpu(), want, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_goes_there_and_back(dtype):
    x = values(dtype, 3, 4)
    same(x, x.to("xla"))
    same(x.t(), x.t().to("xla"))
    same(x[:0], x[:0].to("xla"))
    same(values(dtype), values(dtype).to("xla"))


def test_conversions_between_all_dtypes():
    results = []
    for a, b in itertools.product(DTYPES, DTYPES):
        x = torch.tensor([0.0, 1.0, 2.7, 100.0]).to(a)
        if a.is_complex and not b.is_complex:
            continue  # warns on the CPU
        results.append((a, b, x.to(b), x.to("xla").to(b)))
    torch_xla.sync()
    for a, b, want, got in results:
        assert got.dtype == b
        assert torch.equal(got.cpu(), want), f"{a} to {b}: {got.cpu()}, not {want}"


def test_conversions_of_8_bit_floats():
    """Every one of them to all others, and what they can't hold to them."""
    numbers = torch.tensor([0.3, 17, 449, 464, 465, 1e3, -1e3, 65e3, *map(float, ("inf", "nan"))])
    results = []
    for narrow in (torch.float8_e4m3fn, torch.float8_e5m2):
        all_of_it = torch.arange(256, dtype=torch.uint8).view(narrow)
        for other in (*DTYPES, torch.float8_e4m3fn, torch.float8_e5m2):
            is_wide = other.is_floating_point or other.is_complex or other == torch.bool
            # An integer holds neither infinities nor NaN, which processors convert as they like.
            x = all_of_it if is_wide else all_of_it[all_of_it.float().isfinite()]
            results.append((narrow, other, x.to(other), x.to("xla").to(other)))
            if not other.is_complex:
                y = (numbers if is_wide else numbers[:-2]).to(other)
                results.append((other, narrow, y.to(narrow), y.to("xla").to(narrow)))
    torch_xla.sync()
    for a, b, want, got in results:
        widest = torch.complex128 if b.is_complex else torch.float64
        want, got = want.to(widest), got.cpu().to(widest)
        assert torch.equal(want.nan_to_num(), got.nan_to_num()), f"{a} to {b}"
        assert torch.equal(want.isnan(), got.isnan()), f"{a} to {b}"


def operands(device):
    """Tensors, 0-dim tensors and numbers of every dtype."""
    for dtype in DTYPES:
        yield str(dtype), values(dtype, 2).to(device)
        yield f"0-dim {dtype}", values(dtype).to(device)
    yield from [("True", True), ("2", 2), ("2.5", 2.5), ("1j", 1j)]


def where(a, b):
    return torch.where(torch.ones(2, dtype=torch.bool, device=a.device), a, b)


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.filterwarnings("ignore:B?Complex(Half|32) support is experimental")
@pytest.mark.parametrize(
    "op", [torch.add, torch.mul, torch.true_divide, torch.eq, torch.maximum, where]
)
def test_promotion_of_every_pair(op):
    pairs = []
    for (name, a), (_, xa) in zip(operands("cpu"), operands("xla"), strict=True):
        for (other, b), (_, xb) in zip(operands("cpu"), operands("xla"), strict=True):
            if not isinstance(a, torch.Tensor):
                continue
            if op is torch.maximum and not isinstance(b, torch.Tensor):
                continue
            try:
                want = op(a, b)
            except (RuntimeError, NotImplementedError, TypeError) as error:
                with pytest.raises(type(error)):
                    op(xa, xb)
                continue
            if want.is_complex() and want.itemsize < 8:  # of halves: XLA has no such type
                with pytest.raises(NotImplementedError, match="Complex"):
                    op(xa, xb)
                continue
            pairs.append((f"{name}, {other}", want, op(xa, xb)))
    for name, want, got in pairs:
        assert (want.dtype, want.shape) == (got.dtype, got.shape), name
    torch_xla.sync()  # one program for all of them
    for name, want, got in pairs:
        torch.testing.assert_close(
            got.cpu(), want, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reductions_have_cpu_dtypes(dtype):
    x = values(dtype, 3, 4)
    y = x.to("xla")
    same(x.sum(), y.sum())
    same(x.sum(0), y.sum(0))
    same(x.prod(1), y.prod(1))
    same((x == 1).any(1), (y == 1).any(1))
    if dtype.is_floating_point or dtype.is_complex:
        same(x.mean(), y.mean())
    if not dtype.is_complex:
        same(x.amax(0), y.amax(0))
    if dtype == torch.bool:
        for tensor in (x, y):
            with pytest.raises(RuntimeError, match="does not support bool input"):
                tensor.argmax(1)
    elif not dtype.is_complex:
        same(x.argmax(1), y.argmax(1))
    same(x.cumsum(1), y.cumsum(1))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_empty_tensors(dtype):
    x = values(dtype, 0, 3)
    y = x.to("xla")
    same(x.sum(), y.sum())
    same(x.sum(0), y.sum(0))
    same(x + 1, y + 1)
    same(x.t().clone(), y.t().clone())
    same(torch.cat([x, x]), torch.cat([y, y]))
    same(torch.cat([x, values(dtype, 2, 3)]), torch.cat([y, values(dtype, 2, 3).to("xla")]))
    same(x.reshape(3, 0), y.reshape(3, 0))
    same(x[:, 1], y[:, 1])
    if dtype != torch.bool:
        same(x.t() @ x, y.t() @ y)
    for operation in (torch.amax, torch.argmax):
        if not dtype.is_complex:
            with pytest.raises((IndexError, RuntimeError)):
                operation(y, 0)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_of_an_empty_batch(reduction):
    results = []
    for device in ("cpu", "xla"):
        for sizes in ((0, 3), (0, 3, 4, 5)):
            scores = torch.zeros(sizes, device=device, requires_grad=True)
            classes = torch.zeros(sizes[:1] + sizes[2:], dtype=torch.long, device=device)
            loss = torch.nn.functional.cross_entropy(scores, classes, reduction=reduction)
            loss.sum().backward()
            results += [loss.detach(), scores.grad]
    for want, got in zip(results[:4], results[4:], strict=True):
        same(want, got)


def test_integer_arithmetic_wraps_and_divides_as_cpu():
    for dtype in (torch.int8, torch.uint8, torch.int32, torch.int64):
        x = torch.tensor([100, 7, -7, 3]).to(dtype)
        y = x.to("xla")
        same(x * 3, y * 3)
        same(x // 2, y // 2)
        same(x % 3, y % 3)
        same(x / 2, y / 2)
        same(torch.div(x, -2, rounding_mode="trunc"), torch.div(y, -2, rounding_mode="trunc"))
        same(x**2, y**2)
        same(x >> 1, y >> 1)
        same(-x, -y)


def test_logical_operators_see_operands_in_their_common_dtype():
    pairs = [
        (torch.tensor([1.0, 0.0]).half(), torch.tensor(1e-10, dtype=torch.float64)),
        (torch.tensor([0, 1], dtype=torch.int8), torch.tensor(256)),
        (torch.tensor([0, 1]), torch.tensor(0.5)),
    ]
    for function in (torch.logical_and, torch.logical_or, torch.logical_xor):
        for a, b in pairs:
            assert torch.equal(function(a.to("xla"), b.to("xla")).cpu(), function(a, b))


def test_floating_edge_values():
    x = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 2e-38, 3e38])
    y = x.to("xla")
    same(x * 1, y * 1)
    same(x.isnan(), y.isnan())
    same(x.isinf(), y.isinf())
    same(x.sign(), y.sign())
    same(torch.maximum(x, x.flip(0)), torch.maximum(y, y.flip(0)))
    same(x.nan_to_num(), y.nan_to_num())
    same(x.clamp(-1, 1), y.clamp(-1, 1))
    same(x.to(torch.float16), y.to(torch.float16))


def test_subnormal_numbers_survive_moves_and_count_as_zero():
    """XLA's CPU client sets the processor to flush them, as `torch.set_flush_denormal` does."""
    x = torch.tensor([1e-40])
    y = x.to("xla")
    assert torch.equal(y.cpu(), x)
    assert (y * 1).item() in (0, x.item())


def test_numbers_keep_their_precision():
    x = torch.ones(1, dtype=torch.float64)
    same(x * (1 / 3), x.to("xla") * (1 / 3))
    big = torch.zeros(1, dtype=torch.int64)
    same(big + (2**62 + 1), big.to("xla") + (2**62 + 1))
    same(torch.full((2,), 2**53 + 1), torch.full((2,), 2**53 + 1, device="xla"))
    same(x + 1e300, x.to("xla") + 1e300)


def test_default_dtype_is_respected():
    previous = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        x = torch.arange(3, device="xla")
        assert (x / 2).dtype == torch.float64
        assert (x * 0.5).dtype == torch.float64
        assert torch.ones(2, device="xla").dtype == torch.float64
        same(torch.arange(3) * 0.1, x * 0.1)
    finally:
        torch.set_default_dtype(previous)


def made_of_numbers(device):
    i = torch.arange(1, 4, device=device)
    return [
        i / 2,
        i / i,
        i * 0.1,
        i + 1j,
        i**0.5,
        i**-1.5,
        i.sin(),
        i.float() * 0.1,
        i == 1.1,
        torch.where(i > 1, 0.5, i),
        torch.ones(2, device=device),
        torch.full((2,), 0.1, device=device),
        torch.full((2,), 1j, device=device),
        torch.arange(0, 1, 0.25, device=device),
        torch.linspace(0, 1, 3, device=device),
        torch.eye(2, device=device),
        torch.empty(2, device=device).fill_(0.1),
        torch.tensor([0.1], device=device),
        torch._foreach_mul([i], 0.1)[0],
        torch.true_divide(i, 3),
        i.clamp(0.5, 2.5),
        i.new_zeros(2, dtype=None),
    ]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float32], ids=str)
def test_every_default_dtype_is_respected(dtype):
    previous = torch.get_default_dtype()
    try:
        torch.set_default_dtype(dtype)
        for i, (want, got) in enumerate(
            zip(made_of_numbers("cpu"), made_of_numbers("xla"), strict=True)
        ):
            assert (want.dtype, want.shape) == (got.dtype, got.shape), i
            torch.testing.assert_close(got.cpu(), want, msg=lambda m, n=i: f"{n}: {m}")
    finally:
        torch.set_default_dtype(previous)


def test_result_type_and_can_cast_agree():
    for a, b in itertools.product(DTYPES, DTYPES):
        x, y = values(a, 2), values(b)
        assert torch.result_type(x.to("xla"), y.to("xla")) == torch.result_type(x, y)


def test_unsupported_dtypes_say_so():
    with pytest.raises(
        (RuntimeError, NotImplementedError), match="not supported on the xla device"
    ):
        torch.zeros(2, dtype=torch.complex32, device="xla")


def test_sum_of_constant_booleans_is_their_or():
    """XLA folds it modulo 2 where it is written as a sum."""
    ones = torch.ones(2, dtype=torch.bool, device="xla")
    assert (ones + ones).tolist() == [True, True]
    assert ones.add_(True).tolist() == [True, True]
    assert ones.logical_not().add(False).tolist() == [False, False]
