"""Run by test_regions.py with CPU_NUM_DEVICES=n: manual regions, and what lies alike behind views.
With "auto" behind n, tensors are split of which nothing is said.

Prints a dictionary of the checks' failures.
"""

from __future__ import annotations

import copy
import json
import sys

import torch
from mesh_programs import (
    XLA,
    batches_of,
    check_gradients_lie_alike,
    compiled,
    count,
    failures_of,
    grid,
    mesh_of,
    mlp,
    shapes_of,
    train,
)
from torch import Tensor, nn

import torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch_xla import _XLAC


def through_parts(x: Tensor, w: Tensor, mesh: xs.Mesh, spec: tuple[object, ...]) -> Tensor:
    """Each device normalises its rows and multiplies them."""
    part = xs.enable_manual_sharding(x, spec, mesh=mesh).global_tensor
    part = torch.nn.functional.layer_norm(part, part.shape[1:]) @ w
    shape = (x.shape[0], w.shape[1])
    return xs.disable_manual_sharding(part.relu(), (spec[0], None), shape, mesh=mesh).global_tensor


def manual_code_sees_each_devices_part() -> None:
    for mesh, spec in ((mesh_of(count()), ("data", None)), (grid(), ("data", None)),
                       (grid(), (("model", "data"), None))):  # fmt: skip
        x, w = torch.randn(8, 4), torch.randn(4, 6)
        ours, theirs = [t.to(XLA).requires_grad_() for t in (x, w)], [x.clone(), w.clone()]
        for t in theirs:
            t.requires_grad_()
        y = through_parts(ours[0], ours[1], mesh, spec)
        want = (torch.nn.functional.layer_norm(theirs[0], (4,)) @ theirs[1]).relu()
        y.square().sum().backward()
        want.square().sum().backward()
        torch.testing.assert_close(y.detach().cpu(), want.detach())
        assert ours[0].grad is not None and theirs[0].grad is not None
        torch.testing.assert_close(ours[0].grad.cpu(), theirs[0].grad, rtol=1e-4, atol=1e-5)


def what_is_said_of_parts_is_of_each_device() -> None:
    """What differs from device to device: a sum of a part is not that of the whole."""
    mesh = mesh_of(count())
    x = torch.arange(8.0 * 3).reshape(8, 3)
    part = xs.enable_manual_sharding(x.to(XLA), ("data", None), mesh=mesh)
    rows = 8 // count()
    assert part.shape == (rows, 3) and part.sharding_spec == "{manual}"
    sums = part.global_tensor.sum(0, keepdim=True)
    torch_xla.sync()  # a barrier within leaves each device its own
    sums = sums + 1
    back = xs.disable_manual_sharding(sums, ("data", None), (count(), 3), mesh=mesh)
    want = x.reshape(count(), rows, 3).sum(1) + 1
    assert torch.equal(back.global_tensor.cpu(), want)
    pieces = [piece.data for piece in xs.local_shards(part)]
    assert torch.equal(torch.cat(pieces), x)
    assert shapes_of(back.global_tensor) == {(1, 3)}


def a_region_is_compiled_once() -> None:
    mesh = mesh_of(count())
    w = torch.randn(4, 4, device=XLA)
    for step in range(3):
        before = compiled()
        through_parts(torch.randn(8, 4).to(XLA), w, mesh, ("data", None))
        torch_xla.sync()
        assert step == 0 or compiled() == before


def a_program_shows_its_region() -> None:
    mesh = mesh_of(count())
    x = torch.ones(8, 2, device=XLA)
    torch_xla.sync()
    part = xs.enable_manual_sharding(x, ("data", None), mesh=mesh).global_tensor * 2
    text = _XLAC._pending_program(0)
    if torch_xla._settings.settings.partitioner == "gspmd":
        assert text.count("SPMDFullToShardShape") == text.count("SPMDShardToFullShape") == 1, text
    else:
        assert text.count('"sdy.manual_computation"') == 1 and 'manual_axes{"data"}' in text, text
    assert part.tolist() == [[2, 2]] * (8 // count())


def regions_that_make_no_sense_are_errors() -> None:
    mesh = mesh_of(count())
    t, odd = torch.ones(8, 2, device=XLA), torch.ones(3, 2, device=XLA)
    enable, disable = xs.enable_manual_sharding, xs.disable_manual_sharding
    for what, call in (
        ("equal parts along 'data'", lambda: enable(odd, ("data", None), mesh=mesh)),
        ("there is no mesh", lambda: enable(t, ("data", None))),
        ("no axis 'rows'", lambda: enable(t, ("rows", None), mesh=mesh)),
        ("2 dimensions", lambda: enable(t, ("data",), mesh=mesh)),
        ("one on cpu", lambda: enable(t.cpu(), ("data", None), mesh=mesh)),
        ("each device's part of", lambda: disable(t, ("data", None), (8, 2), mesh=mesh)),
    ):
        try:
            call()
        except ValueError as got:
            assert what in str(got) and "able_manual_sharding: " in str(got), got
        else:
            raise AssertionError(f"no error: {what}")


def what_is_split_meets_no_part() -> None:
    """By an annotation, a program's result or a wrapper, in a list and behind other operations."""
    mesh, whole = mesh_of(count()), torch.ones(2, device=XLA)
    x = torch.arange(16.0).reshape(8, 2).to(XLA)
    rows = 8 // count()
    part = xs.enable_manual_sharding(x, ("data", None), mesh=mesh)
    marked = xs.mark_sharding(torch.ones(8, 2, device=XLA), mesh, ("data", None))
    result = marked.global_tensor + 1
    torch_xla.sync()
    later = (part.global_tensor + whole).relu()
    for what, call in (
        ("add", lambda: part + marked),
        ("add", lambda: part.global_tensor + marked.global_tensor),
        ("mul", lambda: marked * later),
        ("cat", lambda: torch.cat([later, marked.global_tensor])),
        ("linear", lambda: nn.functional.linear(later, result)),
        ("sub_", lambda: later.sub_(result)),
        ("mark_sharding", lambda: xs.mark_sharding(later, mesh, ("data", None))),
    ):
        try:
            call()
        except ValueError as got:
            assert str(got).startswith(f"{what}: a tensor of shape"), got
        else:
            raise AssertionError(f"no error: {what}")
    back = xs.disable_manual_sharding(later, ("data", None), (8, 2), mesh=mesh).global_tensor
    assert type(back) is Tensor and torch.equal(back.cpu(), x.cpu() + 1)
    assert type(later.cpu()) is Tensor and later.tolist() == (x.cpu()[:rows] + 1).tolist()


def gradients_of_transposed_views_lie_as_their_parameters() -> None:
    mesh = mesh_of(count(), names=("model",))
    w, x = torch.randn(8, 4), torch.randn(3, 8)
    ours = nn.Parameter(w.to(XLA))
    xs.mark_sharding(ours, mesh, ("model", None))
    theirs = nn.Parameter(w.clone())
    for weight, inputs in ((ours, x.to(XLA)), (theirs, x)):
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
        (inputs @ weight.t().contiguous().t()).square().sum().backward()
        optimizer.step()
    torch_xla.sync()
    assert ours.grad is not None
    torch.testing.assert_close(ours.detach().cpu(), theirs.detach())
    assert shapes_of(ours) == shapes_of(ours.grad) == {(8 // count(), 4)}
    # A view of memory that is still to be computed, and the memory of a view.
    a = torch.randn(4, 8, device=XLA).exp()
    b = a.t() + ours
    torch_xla.sync()
    assert shapes_of(b) == {(8 // count(), 4)} and shapes_of(a) == {(4, 8 // count())}


def values_from_the_host_lie_as_those_before() -> None:
    mesh = mesh_of(count())
    weight = xs.mark_sharding(torch.ones(8, 2, device=XLA), mesh, ("data", None)).global_tensor
    momentum = torch.zeros_like(weight) + weight
    torch_xla.sync()
    momentum.copy_(torch.full((8, 2), 3.0))
    assert shapes_of(momentum) == {(8 // count(), 2)} and momentum.tolist() == [[3, 3]] * 8


def whats_not_annotated_is_split() -> None:
    torch.manual_seed(1)
    plain = nn.Sequential(nn.Linear(16, 128), nn.GELU(), nn.Linear(128, 8))
    ours = copy.deepcopy(plain).to(XLA)
    assert shapes_of(ours[0].weight) == {(128 // count(), 16)}
    assert shapes_of(ours[2].weight) == {(8, 128 // count())}
    assert shapes_of(ours[0].bias) == {(128,)}
    check_gradients_lie_alike(ours, torch.randn(128, 16).to(XLA))
    assert _XLAC._get_xla_sharding_spec(ours[2].weight).startswith(f"{{devices=[1,{count()}]")
    wanted = train(plain, batches_of(128))
    batches = [(x.to(XLA), y.to(XLA)) for x, y in batches_of(128)]
    assert shapes_of(batches[0][0]) == {(128 // count(), 16)}
    got = train(ours, batches)
    for want, have in zip(wanted[:3], got[:3], strict=True):
        torch.testing.assert_close(have, want, rtol=2e-4, atol=2e-5)
    assert got[4][1:] == [0, 0, 0], got[4]
    for p in (ours[0].weight, ours[2].weight):
        assert shapes_of(p) == shapes_of(p.grad) == shapes_of(got[3].state[p]["exp_avg"])


def what_has_no_equal_parts_is_whole() -> None:
    odd = torch.randn(1031, 3).to(XLA)
    assert shapes_of(odd) == {(1031, 3)}
    torch.testing.assert_close((odd * 2).sum().cpu(), (odd.cpu() * 2).sum())


def a_policy_splits_each_parameter() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_module

    mesh = init_device_mesh("xla", (count() // 2, 2), mesh_dim_names=("a", "b"))
    module = distribute_module(mlp(), mesh, xs.auto_policy)
    assert shapes_of(module[0].weight) == {(32 // count(), 16)}  # type: ignore[index]
    assert shapes_of(module[2].weight) == {(8, 32 // count())}  # type: ignore[index]


CHECKS = [
    manual_code_sees_each_devices_part,
    what_is_said_of_parts_is_of_each_device,
    a_region_is_compiled_once,
    a_program_shows_its_region,
    regions_that_make_no_sense_are_errors,
    what_is_split_meets_no_part,
    gradients_of_transposed_views_lie_as_their_parameters,
    values_from_the_host_lie_as_those_before,
    a_policy_splits_each_parameter,
]
AUTOMATIC = [whats_not_annotated_is_split, what_has_no_equal_parts_is_whole]


if __name__ == "__main__":
    is_automatic = "auto" in sys.argv
    xr.use_spmd(auto=is_automatic)
    only = [name for name in sys.argv[2:] if name != "auto"]
    print(json.dumps({"failures": failures_of(AUTOMATIC if is_automatic else CHECKS, only)}))
