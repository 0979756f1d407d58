"""Run by test_captured.py with four devices: what makes one operation of many, or runs a part of
the program once more, over tensors that are split on a grid. PyTorch on the CPU says what must come
out.

Prints a dictionary of the checks' failures.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from typing import Any

import torch
from mesh_programs import XLA, compiled, failures_of, grid, mesh_of, shapes_of
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch_xla.debug import metrics
from torch_xla.experimental.gradient_accumulation import gradient_accumulation
from torch_xla.experimental.scan import scan
from torch_xla.experimental.scan_layers import scan_layers
from torch_xla.experimental.stablehlo_custom_call import place_to_device, place_to_host
from torch_xla.utils.checkpoint import checkpoint as xla_checkpoint

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def layers(count: int = 3) -> tuple[nn.ModuleList, nn.ModuleList]:
    """On the CPU, and on the grid in Megatron's columns and rows."""
    torch.manual_seed(1)
    plain = nn.ModuleList(
        nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(count)
    )
    split = copy.deepcopy(plain).to(XLA)
    for layer in split:
        xs.mark_sharding(layer[0].weight, grid(), ("model", None))  # type: ignore[index]
        xs.mark_sharding(layer[2].weight, grid(), (None, "model"))  # type: ignore[index]
    return plain, split


def rows(*sizes: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(*sizes)
    spec = (*[None] * (len(sizes) - 2), "data", None)
    return x, xs.mark_sharding(x.to(XLA), grid(), spec).global_tensor


def one_after_the_other(modules: nn.ModuleList, x: Tensor) -> Tensor:
    for module in modules:
        x = module(x)
    return x


def check_gradients(
    plain: nn.Module, split: nn.Module, rtol: float = 1e-4, atol: float = 1e-5
) -> None:
    for want, have in zip(plain.parameters(), split.parameters(), strict=True):
        assert have.grad is not None
        torch.testing.assert_close(have.grad.cpu(), want.grad, rtol=rtol, atol=atol)


def check_layers(run: Callable[[nn.ModuleList, Tensor], Tensor]) -> None:
    plain, split = layers()
    x, ours = rows(8, 8)
    want = one_after_the_other(plain, x)
    got = run(split, ours.requires_grad_())
    want.square().mean().backward()
    got.square().mean().backward()
    torch_xla.sync()
    torch.testing.assert_close(got.detach().cpu(), want.detach(), **CLOSE)
    check_gradients(plain, split)
    assert shapes_of(split[0][0].weight) == {(8, 8)}  # type: ignore[index]


def layers_are_a_loop() -> None:
    check_layers(lambda split, x: scan_layers(split, x))


def layers_are_computed_again() -> None:
    for again in (
        lambda layer, x: checkpoint(layer, x, use_reentrant=False),
        lambda layer, x: xla_checkpoint(layer, x, use_reentrant=True),
    ):

        def run(split: nn.ModuleList, x: Tensor, again: Any = again) -> Tensor:
            for layer in split:
                x = again(layer, x)
            return x

        check_layers(run)


def layers_are_graphs_of_dynamo() -> None:
    torch.compiler.reset()
    check_layers(lambda split, x: one_after_the_other(
        [torch.compile(layer, backend="openxla") for layer in split], x))  # type: ignore[arg-type]  # fmt: skip


def a_loop_carries_what_is_split() -> None:
    weights, x = torch.randn(5, 8, 8), torch.randn(8, 8)

    def turn(carry: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        carry = torch.tanh(carry @ weight)
        return carry, carry.sum()

    carry, sums = x, []
    for weight in weights:
        carry, total = turn(carry, weight)
        sums.append(total)
    ours = xs.mark_sharding(weights.to(XLA), grid(), (None, None, "model")).global_tensor
    first = xs.mark_sharding(x.to(XLA), grid(), ("data", None)).global_tensor
    last, totals = scan(turn, first, ours)
    torch.testing.assert_close(last.cpu(), carry, **CLOSE)
    torch.testing.assert_close(totals.cpu(), torch.stack(sums), rtol=1e-4, atol=1e-4)


def a_compiled_step_is_one_program() -> None:
    plain, split = layers(1)
    theirs = torch.optim.AdamW(plain.parameters(), lr=0.01)
    ours = torch.optim.AdamW(split.parameters(), lr=0.01)

    def step(model: nn.ModuleList, optimizer: torch.optim.Optimizer, x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = one_after_the_other(model, x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    quick = torch_xla.compile(lambda x: step(split, ours, x))
    counts = []
    for _ in range(4):
        x, on_grid = rows(8, 8)
        torch_xla.sync()
        before = compiled()
        loss = quick(on_grid)
        torch_xla.sync()
        counts.append(compiled() - before)
        torch.testing.assert_close(loss.cpu(), step(plain, theirs, x), **CLOSE)
    assert counts[1:] == [0, 0, 0], counts
    for p in split.parameters():
        assert shapes_of(p) == shapes_of(ours.state[p]["exp_avg"])


def gradients_of_batches_add_up() -> None:
    plain, split = layers(1)
    x, ours = rows(4, 8, 8)
    loss, *_ = gradient_accumulation(
        lambda one: one_after_the_other(split, one).square().mean() / 4, (ours,), split
    )
    torch_xla.sync()
    want = torch.stack([one_after_the_other(plain, one).square().mean() / 4 for one in x]).sum()
    want.backward()
    torch.testing.assert_close(loss.detach().cpu(), want.detach(), **CLOSE)
    check_gradients(plain, split)
    assert shapes_of(split[0][0].weight.grad) == {(8, 8)}  # type: ignore[index]


def check_accumulated(
    run: Callable[[nn.ModuleList, Tensor], Tensor], rtol: float = 1e-4, atol: float = 1e-5
) -> None:
    """Two batches' gradients, each in a program without an optimizer, which comes in the third."""
    plain, split = layers(2)
    theirs, ours = (torch.optim.AdamW(m.parameters(), lr=0.01) for m in (plain, split))
    lie = [shapes_of(p) for p in split.parameters()]
    batches = [rows(8, 8) for _ in range(6)]
    resharded = metrics.counter_value("ReshardData")
    counts = []
    for number in range(3):
        before = compiled()
        theirs.zero_grad()
        ours.zero_grad()
        for x, on_grid in batches[2 * number :][:2]:
            one_after_the_other(plain, x).square().mean().backward()
            run(split, on_grid).float().square().mean().backward()
            torch_xla.sync()
            grads = [shapes_of(p.grad) for p in split.parameters()]  # type: ignore[arg-type]
            assert grads == lie, (number, grads)
        if number == 2:
            check_gradients(plain, split, rtol, atol)
        theirs.step()
        ours.step()
        torch_xla.sync()
        counts.append(compiled() - before)
    assert counts[1] == 0 and metrics.counter_value("ReshardData") == resharded, counts
    assert [shapes_of(p) for p in split.parameters()] == lie


def gradients_without_an_optimizer_lie_as_their_parameters() -> None:
    torch.compiler.reset()

    def lowered(split: nn.ModuleList, x: Tensor) -> Tensor:
        with torch.autocast("xla", dtype=torch.bfloat16):
            return one_after_the_other(split, x)

    check_accumulated(one_after_the_other)
    check_accumulated(lowered, rtol=3e-2, atol=3e-3)
    check_accumulated(lambda split, x: scan_layers(split, x))
    check_accumulated(lambda split, x: one_after_the_other(
        [torch.compile(layer, backend="openxla") for layer in split], x))  # type: ignore[arg-type]  # fmt: skip


def what_goes_to_the_host_comes_back() -> None:
    x, ours = rows(8, 8)
    back = place_to_device(place_to_host(ours * 2))
    torch.testing.assert_close((back + 1).cpu(), x * 2 + 1)


def linear_layers_are_products_of_all_dimensions() -> None:
    torch.manual_seed(2)
    plain = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
    x = torch.randn(4, 3, 8)
    patched = xs.apply_xla_patch_to_nn_linear(copy.deepcopy(plain)).to(XLA)
    for model in (patched, copy.deepcopy(plain).to(XLA)):
        for spec in (("data", None, None), (None, "model", None), (None, None, ("data", "model"))):
            xs.annotate_custom_sharding(model[0].weight, grid(), ("model", "data"))
            inputs = xs.mark_sharding(x.to(XLA), grid(), spec).global_tensor
            model.zero_grad()
            plain.zero_grad()
            got, want = model(inputs), plain(x)
            got.square().sum().backward()
            want.square().sum().backward()
            torch.testing.assert_close(got.detach().cpu(), want.detach(), **CLOSE)
            check_gradients(plain, model)
    layer = xs.EinsumLinear(8, 4).to(XLA)
    xs.mark_sharding(layer.weight, grid(), ("model", None))
    want = nn.functional.linear(x, layer.weight.detach().cpu(), layer.bias.detach().cpu())
    torch.testing.assert_close(layer(x.to(XLA)).detach().cpu(), want, **CLOSE)


def heads_are_split_behind_a_batch() -> None:
    """PyTorch multiplies matrices of several batch dimensions as one, and views its result."""
    mesh = mesh_of(2, 2)
    q, k, v = (torch.randn(3, 4, 5, 6) for _ in range(3))
    for spec in ((None, "model", None, None), (None, ("data", "model"), None, None)):
        ours = [t.to(XLA).requires_grad_() for t in (q, k, v)]
        theirs = [t.clone().requires_grad_() for t in (q, k, v)]
        for t in ours:
            xs.mark_sharding(t, mesh, spec)
        outs = []
        for a, b, c in (ours, theirs):
            weights = (a @ b.transpose(-2, -1) / 3).softmax(-1)
            outs.append(torch.einsum("bhls,bhsd->bhld", weights, c) + weights.transpose(2, 3) @ c)
            outs[-1].square().sum().backward()
        torch.testing.assert_close(outs[0].detach().cpu(), outs[1].detach(), **CLOSE)
        for have, want in zip(ours, theirs, strict=True):
            assert have.grad is not None and want.grad is not None
            torch.testing.assert_close(have.grad.cpu(), want.grad, rtol=1e-3, atol=1e-4)


def meshes_of_two_levels_and_what_lies_alike() -> None:
    mesh = xs.HybridMesh(ici_mesh_shape=(2, 1), dcn_mesh_shape=(1, 2), axis_names=("a", "b"))
    t, other = torch.ones(4, 4, device=XLA), torch.ones(4, 4, device=XLA)
    xs.mark_sharding(t, mesh, ("a", "b"))
    xs.shard_as(other, t)
    assert mesh.get_logical_mesh().tolist() == [[0, 1], [2, 3]]
    assert shapes_of(t) == shapes_of(other) == {(2, 2)}


CHECKS = [
    layers_are_a_loop,
    layers_are_computed_again,
    layers_are_graphs_of_dynamo,
    a_loop_carries_what_is_split,
    a_compiled_step_is_one_program,
    gradients_of_batches_add_up,
    gradients_without_an_optimizer_lie_as_their_parameters,
    what_goes_to_the_host_comes_back,
    linear_layers_are_products_of_all_dimensions,
    heads_are_split_behind_a_batch,
    meshes_of_two_levels_and_what_lies_alike,
]


if __name__ == "__main__":
    xr.use_spmd()
    print(json.dumps({"failures": failures_of(CHECKS, sys.argv[2:])}))
