"""`linear` and attention are recorded whole, and are what the CPU makes of them in every case."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import torch_xla

DEVICE = torch.device("xla")


def gradients(function, inputs: list[Tensor], device: torch.device) -> list[Tensor]:
    """The result, its gradients and theirs, on the CPU."""
    leaves = [x.detach().to(device).requires_grad_() for x in inputs]
    result = function(*leaves)
    first = torch.autograd.grad(result.square().sum(), leaves, create_graph=True)
    second = torch.autograd.grad(sum(g.square().sum() for g in first), leaves)
    return [x.detach().cpu() for x in (result, *first, *second)]


def check(function, *inputs: Tensor) -> None:
    with sdpa_kernel(SDPBackend.MATH):  # the one that the CPU can differentiate twice
        expected = gradients(function, list(inputs), torch.device("cpu"))
    for got, want in zip(gradients(function, list(inputs), DEVICE), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)


def draw(*shapes: tuple[int, ...]) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 3), (4, 3), (4,)),
        ((2, 5, 3), (4, 3), (4,)),
        ((3,), (4, 3), (4,)),
        ((2, 3), (4, 3)),
        ((0, 3), (4, 3), (4,)),
        ((2, 3), (4, 3), ()),
        ((2, 2, 3), (4, 3), (1, 4)),
        ((2, 5, 3), (3,)),
    ],
)
def test_linear(shapes):
    check(functional.linear, *draw(*shapes))


def make_mask(kind: str) -> Tensor | None:
    torch.manual_seed(1)
    if kind == "added":
        return torch.randn(4, 5, dtype=torch.float64)
    if kind == "bool":
        mask = torch.rand(2, 1, 4, 5) > 0.3
        mask[0, 0, 1] = False  # a row without any pair
        return mask
    return None


@pytest.mark.parametrize("kind", ["none", "added", "bool", "causal"])
def test_attention(kind):
    mask = make_mask(kind)

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        moved = None if mask is None else mask.to(query.device)
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=moved, is_causal=kind == "causal", scale=0.3
        )

    check(attend, *draw((2, 3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 6)))


@pytest.mark.parametrize("length", [0, 2, 3])
def test_attention_lies_where_the_cpu_puts_it(length):
    orders = [(0, 1, 2, 3), (0, 1, 3, 2), (0, 2, 1, 3)]
    for q, k, v in itertools.product(orders, repeat=3):

        def strides(device: str | torch.device, orders=(q, k, v)) -> tuple[int, ...]:
            sizes = [(2, 3, 2, 2), (2, 3, length, 2), (2, 3, length, 2)]
            operands = [
                torch.zeros([size[i] for i in order], device=device).permute(order)
                for size, order in zip(sizes, orders, strict=True)
            ]
            return functional.scaled_dot_product_attention(*operands).stride()

        assert strides(DEVICE) == strides("cpu"), (q, k, v)


def count_calls(function) -> set[str]:
    """The operators that a call and its backward record."""
    torch_xla.sync()
    counts = torch_xla.debug.metrics
    counts.clear_counters()
    function().sum().backward()
    return {name for name in counts.counter_names() if name.startswith("xla::")}


def test_linear_and_its_backward_are_one_operator_each():
    layer = torch.nn.Linear(3, 4).to(DEVICE)
    x = torch.ones(2, 5, 3, device=DEVICE, requires_grad=True)
    recorded = count_calls(lambda: layer(x))
    assert {"xla::linear", "xla::linear_backward"} <= recorded
    assert not recorded & {"xla::mm", "xla::addmm", "xla::add_.Tensor"}


def test_attention_and_its_backward_are_one_operator_each():
    q = torch.ones(1, 2, 4, 8, device=DEVICE, requires_grad=True)
    recorded = count_calls(lambda: functional.scaled_dot_product_attention(q, q, q))
    whole = "xla::_scaled_dot_product_flash_attention_for_cpu"
    assert {whole, whole + "_backward"} <= recorded
    assert not recorded & {"xla::bmm", "xla::_safe_softmax"}


# Torch scripts its own formulas for tangents when the first is asked for.
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # by torch itself
def test_linear_has_a_tangent():
    with forward_ad.dual_level():
        weight = torch.arange(12.0, device=DEVICE).view(4, 3)
        x = forward_ad.make_dual(torch.ones(2, 3, device=DEVICE), torch.ones(2, 3, device=DEVICE))
        tangent = forward_ad.unpack_dual(functional.linear(x, weight)).tangent
    assert tangent.tolist() == [[3.0, 12.0, 21.0, 30.0]] * 2


def test_attention_kernels_can_be_chosen():
    q = torch.ones(1, 2, 4, 8, device=DEVICE, requires_grad=True)
    with sdpa_kernel(SDPBackend.MATH):
        recorded = count_calls(lambda: functional.scaled_dot_product_attention(q, q, q))
    assert "xla::_safe_softmax" in recorded


def test_kron_writes_its_out_argument():
    a, b = torch.arange(4.0).view(2, 2), torch.ones(1, 3)
    out = torch.zeros(2, 6, device=DEVICE)
    torch.kron(a.to(DEVICE), b.to(DEVICE), out=out)
    torch.testing.assert_close(out.cpu(), torch.kron(a, b))
