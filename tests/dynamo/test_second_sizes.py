"""Functions that Dynamo compiles a second time with sizes that are symbols."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from counts import counted
from torch import Tensor, nn
from torch.nn import functional as nnf
from with_settings import setting

import torch_xla
from torch_xla.debug import metrics

_CASES: dict[str, tuple[Callable[..., Tensor], Callable[[int], tuple[Tensor, ...]]]] = {
    "matmul": (torch.matmul, lambda n: (torch.randn(n, 2, 3), torch.randn(3, 2))),
    "linear": (nnf.linear, lambda n: (torch.randn(n, 2, 3), torch.randn(5, 3))),
    "einsum": (
        lambda a, b: torch.einsum("bij,jk->bik", a, b),
        lambda n: (torch.randn(n, 2, 3), torch.randn(3, 4)),
    ),
    "attention": (
        lambda x: nnf.scaled_dot_product_attention(x, x * 2, x),
        lambda n: (torch.randn(2, 2, n, 6),),
    ),
    "reshape": (lambda x: x.reshape(x.size(0) * 2, -1), lambda n: (torch.randn(n, 4, 6),)),
    "reshape of a transposed": (lambda x: x.mT.reshape(-1) * 2, lambda n: (torch.randn(n, 6),)),
    "flatten": (lambda x: x.flatten(0, 1).mT, lambda n: (torch.randn(n, 4, 6),)),
    "ravel": (lambda x: x.mT.ravel() + 1, lambda n: (torch.randn(n, 6),)),
    "contiguous": (lambda x: x.mT.contiguous() + 1, lambda n: (torch.randn(n, 6),)),
    "expand": (lambda x: x[:, None].expand(-1, 3, -1) + 1, lambda n: (torch.randn(n, 6),)),
    "loss": (nnf.cross_entropy, lambda n: (torch.randn(n, 6), torch.randint(6, (n,)))),
    "a tensor made here": (
        lambda x: x @ torch.ones(6, 2, device=x.device.type),
        lambda n: (torch.randn(n, 6),),
    ),
}
_MODULES: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "convolutions": (
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)),
        (1, 4, 4),
    ),
    "encoder layer": (nn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True), (4, 6)),
}


def check(
    function: Callable[..., Tensor], reference: Callable[..., Tensor], args: tuple[Tensor, ...]
) -> None:
    given = [[a.clone().requires_grad_(a.is_floating_point()) for a in args] for _ in range(2)]
    moved = [a.detach().to("xla").requires_grad_(a.requires_grad) for a in given[0]]
    result, want = function(*moved), reference(*given[1])
    torch.testing.assert_close(result.detach().cpu(), want.detach(), rtol=1e-4, atol=1e-5)
    result.sum().backward()
    want.sum().backward()
    for mine, theirs in zip(moved, given[1], strict=True):
        if theirs.requires_grad:
            torch.testing.assert_close(mine.grad.cpu(), theirs.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", _CASES)
def test_functions_take_other_sizes(name):
    torch._dynamo.reset()
    torch.manual_seed(0)
    function, make = _CASES[name]
    compiled = torch.compile(function, backend="openxla")
    for size in (2, 3, 7):
        check(compiled, function, make(size))


@pytest.mark.parametrize("name", _MODULES)
def test_modules_take_other_sizes(name):
    torch._dynamo.reset()
    torch.manual_seed(0)
    module, shape = _MODULES[name]
    compiled = torch.compile(copy.deepcopy(module).to("xla"), backend="openxla")
    for size in (2, 3, 7):
        check(compiled, module, (torch.randn(size, *shape),))


def attend(x: Tensor) -> Tensor:
    return nnf.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None] * 2).softmax(-1)


@pytest.mark.parametrize(
    ("sizes", "want"),
    [(range(5, 25), 6), ((8, 30, 17, 9, 25, 31, 28), 9)],
    ids=["grow", "leap"],
)
def test_sizes_that_change_share_programs(sizes, want):
    # Forward, backward, and what is outside: of the first size, of another one if they leap,
    # and of all up to the bound.
    torch._dynamo.reset()
    torch_xla._XLAC._clear_compilation_cache()
    torch.manual_seed(0)
    compiled = torch.compile(attend, backend="openxla", dynamic=True)
    programs = 0
    for size in sizes:
        x = torch.randn(2, size, 4)
        on_xla = x.to("xla").requires_grad_()
        x.requires_grad_()
        with counted() as counts:
            compiled(on_xla).square().sum().backward()
            torch_xla.sync()
        programs += counts.compiled
        attend(x).square().sum().backward()
        torch.testing.assert_close(on_xla.grad.cpu(), x.grad, rtol=1e-4, atol=1e-5)
    assert programs == want
    assert metrics.counter_value("BoundedRefusal") is None


def test_each_size_is_a_program_if_that_is_asked_for():
    torch._dynamo.reset()
    torch_xla._XLAC._clear_compilation_cache()
    compiled = torch.compile(attend, backend="openxla", dynamic=True)
    programs = 0
    with setting(bounded_growth=False), torch.no_grad():
        for size in range(5, 11):
            with counted() as counts:
                compiled(torch.randn(2, size, 4).to("xla"))
            programs += counts.compiled
    assert programs == 6


def test_export_with_a_size_that_is_a_symbol(device):
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(1) @ torch.ones(12, 2, device=x.device)

    program = torch.export.export(
        Model(),
        (torch.ones(3, 4, 3, device=device),),
        dynamic_shapes={"x": {0: torch.export.Dim("n")}},
    )
    for size in (2, 5):
        assert program.module()(torch.ones(size, 4, 3, device=device)).tolist() == [[12, 12]] * size
