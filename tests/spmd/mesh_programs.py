"""Run by test_spmd.py with CPU_NUM_DEVICES=n: one program over a mesh of all devices. Each check is
a function by the name of its claim; what it must agree with is computed by PyTorch on the CPU.

Prints a dictionary of the checks' failures, and of values that must not depend on the mesh.
"""

from __future__ import annotations

import copy
import json
import math
import pathlib
import random
import sys
import traceback
from collections.abc import Callable
from typing import Any

sys.path.append(str(pathlib.Path(__file__).parents[1] / "support"))

import models
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

import torch_xla
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch_xla import _XLAC
from torch_xla.debug import metrics
from torch_xla.experimental.spmd_fully_sharded_data_parallel import SpmdFullyShardedDataParallel

Mark = Callable[[nn.Module, xs.Mesh], None]
XLA = "xla:0"


def mesh_of(*sizes: int, names: tuple[str, ...] = ("data", "model")) -> xs.Mesh:
    return xs.Mesh(np.arange(math.prod(sizes)), sizes, names[: len(sizes)])


def count() -> int:
    return xr.global_runtime_device_count()


def grid() -> xs.Mesh:
    return mesh_of(count() // 2, 2)


def shapes_of(t: Tensor) -> set[tuple[int, ...]]:
    return {tuple(shard.data.shape) for shard in xs.local_shards(t)}


def compiled() -> int:
    return _XLAC._computation_stats()[0]


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8))


def mark_columns_and_rows(model: Any, mesh: xs.Mesh) -> None:
    """Megatron's: the first layer's columns and the second one's rows."""
    xs.mark_sharding(model[0].weight, mesh, ("model", None))
    xs.mark_sharding(model[0].bias, mesh, ("model",))
    xs.mark_sharding(model[2].weight, mesh, (None, "model"))


def mark_all(axis: str) -> Mark:
    def mark(model: nn.Module, mesh: xs.Mesh) -> None:
        for parameter in model.parameters():
            xs.mark_sharding(parameter, mesh, (axis, *[None] * (parameter.dim() - 1)))

    return mark


def train(
    model: nn.Module, batches: list[tuple[Tensor, Tensor]], mesh: xs.Mesh | None = None
) -> tuple[list[float], dict[str, Tensor], dict[str, Tensor], torch.optim.Optimizer, list[int]]:
    """Losses, weights, the last gradients, the optimizer, and how many programs each step made."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses, compiles = [], []
    for x, y in batches:
        before = compiled()
        if mesh is not None:
            x, y = x.to(XLA), y.to(XLA)
            for t in (x, y):
                xs.mark_sharding(t, mesh, ("data", *[None] * (t.dim() - 1)))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).flatten(0, -2), y.flatten())
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        losses.append(loss.detach())
        compiles.append(compiled() - before)
    weights = {name: p.detach().cpu() for name, p in model.named_parameters()}
    grads = {name: p.grad.cpu() for name, p in model.named_parameters() if p.grad is not None}
    return [loss.item() for loss in losses], weights, grads, optimizer, compiles


def check_training(
    model: nn.Module, batches: list[tuple[Tensor, Tensor]], mesh: xs.Mesh, mark: Mark
) -> nn.Module:
    on_mesh = copy.deepcopy(model).to(XLA)
    mark(on_mesh, mesh)
    split = {name: shapes_of(p) for name, p in on_mesh.named_parameters()}
    wanted = train(model, batches)
    got = train(on_mesh, batches, mesh)
    for want, have in zip(wanted[:3], got[:3], strict=True):
        torch.testing.assert_close(have, want, rtol=2e-4, atol=2e-5)
    for mine, theirs in zip(on_mesh.parameters(), model.parameters(), strict=True):
        for name, state in wanted[3].state[theirs].items():
            have = got[3].state[mine][name]
            torch.testing.assert_close(have.cpu(), state, rtol=2e-4, atol=2e-5)
    # Memory lies from step to step as it did: parameters, their gradients and their states.
    for name, p in on_mesh.named_parameters():
        assert shapes_of(p) == shapes_of(p.grad) == split[name], name
        for state in (got[3].state[p]["exp_avg"], got[3].state[p]["exp_avg_sq"]):
            assert shapes_of(state) == split[name], name
    # The first step makes the optimizer's state, and has the program of those that find it.
    assert got[4][1:] == [0] * (len(batches) - 1), got[4]
    return on_mesh


def batches_of(size: int, num_batches: int = 4) -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(3)
    return [(torch.randn(size, 16), torch.randint(0, 8, (size,))) for _ in range(num_batches)]


def data_parallel_training_is_that_of_one_device() -> None:
    check_training(mlp(), batches_of(8), mesh_of(count()), lambda model, mesh: None)


def tensor_parallel_training_is_that_of_one_device() -> None:
    trained: Any = check_training(mlp(), batches_of(8), mesh_of(1, count()), mark_columns_and_rows)
    assert shapes_of(trained[0].weight) == {(32 // count(), 16)}
    assert shapes_of(trained[2].weight) == {(8, 32 // count())}


def training_on_a_grid_is_that_of_one_device() -> None:
    check_training(mlp(), batches_of(8), grid(), mark_columns_and_rows)


def fully_sharded_training_is_that_of_one_device() -> None:
    trained: Any = check_training(mlp(), batches_of(8), mesh_of(count()), mark_all("data"))
    assert shapes_of(trained[0].weight) == {(32 // count(), 16)}


def a_transformer_trains_fully_sharded() -> None:
    config = models.TransformerConfig(
        num_layers=1, width=16, num_heads=2, vocabulary=32, max_length=8
    )
    torch.manual_seed(5)
    tokens = [torch.randint(0, 32, (4, 9)) for _ in range(4)]
    batches = [(t[:, :-1].contiguous(), t[:, 1:].contiguous()) for t in tokens]
    check_training(models.GPT2(config), batches, mesh_of(count()), mark_all("data"))


def donated_memory_is_that_of_the_shards() -> None:
    mesh = mesh_of(count())
    t = xs.mark_sharding(torch.zeros(8, 4, device=XLA), mesh, ("data", None)).global_tensor
    torch_xla.sync(wait=True)
    before = metrics.metric_data("InputOutputAliasCount")
    for _ in range(3):
        t += 1
        torch_xla.sync(wait=True)
    after = metrics.metric_data("InputOutputAliasCount")
    assert after[1] - (before[1] if before else 0) == 1  # of one program
    assert shapes_of(t) == {(8 // count(), 4)} and t.tolist() == [[3] * 4] * 8


def any_annotation_leaves_values_as_they_are() -> None:
    x = torch.arange(96.0).reshape(8, 12)
    shuffled = xs.Mesh(np.arange(count())[::-1].copy(), (count() // 2, 2), ("a", "b"))
    specs = [(None, None), ("a", "b"), ("b", "a"), ("b", None), (None, "a"), (("a", "b"), None)]
    for spec in [*specs, (None, ("b", "a")), (0, 1), ((1, 0), None)]:
        on_mesh = x.to(XLA)
        xs.mark_sharding(on_mesh, shuffled, spec)
        assert torch.equal(on_mesh.cpu(), x), spec
        y = on_mesh @ on_mesh.t() + 1
        xs.mark_sharding(y, shuffled, (spec[0], None))
        torch.testing.assert_close((y.softmax(0) * 2).cpu(), (x @ x.t() + 1).softmax(0) * 2)
        pieces = xs.local_shards(on_mesh)
        assert all(torch.equal(x[piece.indices], piece.data) for piece in pieces), spec
        assert len(pieces) == count()


def random_program(rng: random.Random, device: str, note: Callable[[Tensor], None]) -> list[Tensor]:
    """Values of some operators, views and writes; `note` sees each on its way."""
    torch.manual_seed(rng.randrange(1000))
    values = [torch.randn(8, 12), torch.randn(12, 8), torch.randn(4, 4, 6)]
    values = [t.to(device) for t in values]
    for t in values:
        note(t)
    for _ in range(10):
        a = rng.choice(values)
        kind = rng.randrange(8)
        if kind == 0:
            out = a.flatten(1) @ a.flatten(1).t()
        elif kind == 1:
            out = a.transpose(0, -1) * 0.5
        elif kind == 2:
            out = torch.cat([a, a.flip(0)], dim=rng.randrange(a.dim()))[: a.shape[0]]
        elif kind == 3:
            out = a.softmax(rng.randrange(a.dim()))
        elif kind == 4:
            a[: a.shape[0] // 2].mul_(0.25)
            out = a.reshape(-1, 2)
        elif kind == 5:
            out = a.sum(rng.randrange(a.dim()), keepdim=True).expand_as(a) / a.numel()
        elif kind == 6:
            out = torch.where(a > 0, a, a.roll(1, 0))
        else:
            out = a.sort(rng.randrange(a.dim())).values
        note(out)
        values.append(out)
        if out.device.type == "xla" and rng.random() < 0.1:
            torch_xla.sync()
        elif out.device.type == "cpu":
            rng.random()
    return values


def random_annotations_leave_values_as_they_are() -> None:
    for seed in range(6):
        choices = random.Random(seed + 100)
        sizes = choices.choice([(count(), 1), (1, count()), (count() // 2, 2)])
        mesh = xs.Mesh(choices.sample(range(count()), count()), sizes, ("a", "b"))

        def annotate(t: Tensor, choices: random.Random = choices, mesh: xs.Mesh = mesh) -> None:
            if choices.random() < 0.5 or t.dim() == 0:
                return
            spec: list[Any] = [None] * t.dim()
            for axis in choices.sample(["a", "b"], choices.randrange(3)):
                d = choices.randrange(t.dim())
                spec[d] = axis if spec[d] is None else (spec[d], axis)
            xs.annotate_custom_sharding(t, mesh, spec)

        wanted = random_program(random.Random(seed), "cpu", lambda t: None)
        got = random_program(random.Random(seed), XLA, annotate)
        for i, (have, want) in enumerate(zip(got, wanted, strict=True)):
            torch.testing.assert_close(
                have.cpu(), want, msg=lambda text, at=(seed, i): f"{at}: {text}"
            )


def dimensions_without_equal_parts_are_right() -> None:
    mesh = mesh_of(count())
    x = torch.randn(5, 3)
    a = xs.mark_sharding(x.to(XLA), mesh, ("data", None)).global_tensor
    b = a * 2
    xs.mark_sharding(b, mesh, (None, "data"))
    torch_xla.sync()
    torch.testing.assert_close((b.sum(1) + a.mean()).cpu(), (x * 2).sum(1) + x.mean())
    assert _XLAC._get_xla_sharding_spec(a).startswith(f"{{devices=[{count()},1]")


def an_annotation_is_of_the_memory() -> None:
    mesh = mesh_of(count())
    t = torch.ones(8, 2, device=XLA, requires_grad=True)
    xs.mark_sharding(t, mesh, ("data", None))
    text = _XLAC._get_xla_sharding_spec(t)
    assert text == f"{{devices=[{count()},1]{','.join(map(str, range(count())))}}}"
    for other in (t.detach(), t.data, nn.Parameter(t.detach())):
        assert _XLAC._get_xla_sharding_spec(other) == text
    twin = copy.deepcopy(t)
    zeros = torch.zeros_like(t)
    with torch.no_grad():
        t.copy_(torch.full((8, 2), 3.0))
    torch_xla.sync()
    for other in (t, twin, zeros):
        assert shapes_of(other) == {(8 // count(), 2)}
        assert _XLAC._get_xla_sharding_spec(other) == text
    assert t.tolist() == [[3, 3]] * 8
    xs.clear_sharding(t)
    assert _XLAC._get_xla_sharding_spec(t) == "" and shapes_of(t) == {(8, 2)}
    xs.mark_sharding(t, mesh, (None, None))
    assert _XLAC._get_xla_sharding_spec(t) == "{replicated}"
    xs.mark_sharding(t, mesh, None)
    assert xs.sharding_of(t) is None and t.tolist() == [[3, 3]] * 8


def check_gradients_lie_alike(model: Any, x: Tensor) -> None:
    for _ in range(2):  # the second is added to the first
        model(x).square().mean().backward()
        torch_xla.sync()
        for p in model.parameters():
            assert shapes_of(p) == shapes_of(p.grad), (shapes_of(p), shapes_of(p.grad))


def modules_that_move_lie_as_before() -> None:
    """There and back, with gradients; and what is made of annotated parameters."""
    plain, mesh = mlp(), mesh_of(1, count())
    model: Any = copy.deepcopy(plain).to(XLA)
    mark_columns_and_rows(model, mesh)
    x = torch.randn(8, 16)
    lie, texts = ([function(p) for p in model.parameters()] for function in
                  (shapes_of, _XLAC._get_xla_sharding_spec))  # fmt: skip
    check_gradients_lie_alike(model, x.to(XLA))
    model.cpu()
    assert xs.sharding_of(model[0].weight) is None
    for moved in (model, copy.deepcopy(model), copy.deepcopy(copy.deepcopy(model).to(XLA))):
        moved.to(XLA)
        assert [shapes_of(p) for p in moved.parameters()] == lie
        assert [_XLAC._get_xla_sharding_spec(p) for p in moved.parameters()] == texts
        torch.testing.assert_close(moved(x.to(XLA)).cpu(), plain(x))
        check_gradients_lie_alike(moved, x.to(XLA))
    model.cpu()
    xs.clear_sharding(model[0].weight)
    assert shapes_of(model.to(XLA)[0].weight) == {(32, 16)}
    xs.mark_sharding(model[0].weight, mesh, (None, "model"))
    assert shapes_of(model[0].weight) == {(32, 16 // count())}


def gradients_of_new_parameters_lie_alike() -> None:
    mesh, x = mesh_of(count()), torch.randn(4, 16).to(XLA)
    frozen = nn.Linear(16, 8, device=XLA).requires_grad_(False)
    xs.mark_sharding(frozen.weight, mesh, ("data", None))
    check_gradients_lie_alike(frozen.requires_grad_(), x)
    weight = xs.mark_sharding(torch.randn(8, 16, device=XLA), mesh, (None, "data"))
    for data in (weight, weight.global_tensor):
        layer = nn.Linear(16, 8, bias=False, device=XLA)
        layer.weight = nn.Parameter(data)
        assert shapes_of(layer.weight) == {(8, 16 // count())}
        check_gradients_lie_alike(layer, x)


def fully_sharded_gradients_without_an_optimizer_are_split() -> None:
    model: Any = mlp()
    fully_shard(model)
    check_gradients_lie_alike(model, torch.randn(8, 16).to(XLA))
    assert shapes_of(model[0].weight.grad) == {(32 // count(), 16)}
    x = torch.randn(8, 16)
    on_mesh, on_host = model(x.to(XLA)), model.cpu()(x)
    torch.testing.assert_close(on_mesh.cpu(), on_host)
    check_gradients_lie_alike(model.to(XLA), x.to(XLA))
    assert shapes_of(model[0].weight.grad) == {(32 // count(), 16)}


def fully_sharded_layers_are_gathered_one_after_the_other() -> None:
    """A device has a few layers at a time, however many there are: memory as the program says."""
    size, x = 64, torch.randn(8, 64)
    layers = [nn.Sequential(nn.Linear(size, size, bias=False), nn.GELU()) for _ in range(12)]
    plain = nn.Sequential(*layers)
    temporary = {}
    for keeps in (False, True):
        model = copy.deepcopy(plain)
        for layer in model:
            fully_shard(layer, reshard_after_forward=False if keeps else None)
        fully_shard(model)
        ours = xs.mark_sharding(x.to(XLA), mesh_of(count()), ("data", None)).global_tensor
        torch_xla.sync()
        loss = model(ours).sum()
        loss.backward()
        torch_xla.sync()
        temporary[keeps] = _XLAC._last_program_memory()["temp_size_in_bytes"] / (4 * size**2)
        want = torch.autograd.grad(plain(x).sum(), list(plain.parameters()))
        for p, grad in zip(model.parameters(), want, strict=True):
            assert p.grad is not None
            torch.testing.assert_close(p.grad.cpu(), grad)
    assert temporary[False] < 6 < 20 < temporary[True], temporary


def what_is_gathered_again_is_what_it_was() -> None:
    torch.manual_seed(2)
    plain = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8))
    model: Any = copy.deepcopy(plain)
    for layer in model:
        fully_shard(layer, reshard_after_forward=True)
    fully_shard(model)
    x = torch.randn(8, 8)
    for again in (False, True):  # the second time for derivatives of derivatives
        found = []
        for each, t in ((model, x.to(XLA)), (plain, x.clone())):
            t.requires_grad_()
            y = each(each(t)).pow(3).sum()
            weights = [each[0].weight, each[1].weight, t]
            grads = torch.autograd.grad(y, weights, create_graph=again, retain_graph=True)
            if again:
                y = sum(g.square().sum() for g in grads)  # type: ignore[assignment]
            found.append([*grads, *torch.autograd.grad(y, weights)])
        for have, want in zip(*found, strict=True):
            torch.testing.assert_close(have.detach().cpu(), want.detach(), rtol=1e-3, atol=1e-3)
    (want,) = torch.autograd.grad(plain(x).sum(), [plain[0].weight])
    y = model(x.to(XLA)).sum()
    with torch.no_grad():
        model[1].weight.zero_()
    (have,) = torch.autograd.grad(y, [model[0].weight])
    torch.testing.assert_close(have.cpu(), want)


def gradients_of_what_is_within_lie_alike() -> None:
    mesh = mesh_of(count())
    x = torch.randn(8, 4)
    ours = x.to(XLA).requires_grad_()
    theirs = x.clone().requires_grad_()
    within = xs.mark_sharding_with_gradients(ours * 2, mesh, ("data", None))
    within.retain_grad()
    within.square().sum().backward()
    (theirs * 2).square().sum().backward()
    assert within.grad is not None and ours.grad is not None and theirs.grad is not None
    torch.testing.assert_close(ours.grad.cpu(), theirs.grad)
    torch_xla.sync()
    assert shapes_of(within) == shapes_of(within.grad) == {(8 // count(), 4)}


def shards_are_read_and_written() -> None:
    mesh = grid()
    t = xs.mark_sharding(torch.arange(16.0).reshape(4, 4).to(XLA), mesh, (None, "model"))
    shards = t.local_shards
    assert [shard.replica_id for shard in shards] == [i // 2 for i in range(count())]
    assert {tuple(shard.data.shape) for shard in shards} == {(4, 2)}
    for shard in shards:
        shard.data.mul_(10)
    t.load_local_shards_(shards)
    assert t.global_tensor.tolist() == (torch.arange(16.0).reshape(4, 4) * 10).tolist()
    assert shapes_of(t) == {(4, 2)}
    again = t.redistribute(mesh, ("model", None))
    assert shapes_of(again) == {(2, 4)} and again.partition_spec == ("model", None)


def batches_of_a_loader_go_to_their_devices_in_parts() -> None:
    mesh = mesh_of(count())
    batches = [{"x": torch.randn(8, 3), "n": torch.arange(8)} for _ in range(3)]
    split = {"x": xs.ShardingSpec(mesh, ("data", None), minibatch=True), "n": None}
    before = metrics.counter_value("ReshardData")
    for batch, want in zip(
        pl.MpDeviceLoader(batches, XLA, input_sharding=split), batches, strict=True
    ):
        assert shapes_of(batch["x"]) == {(8 // count(), 3)} and shapes_of(batch["n"]) == {(8,)}
        assert torch.equal(batch["x"].cpu(), want["x"]) and torch.equal(batch["n"].cpu(), want["n"])
    assert metrics.counter_value("ReshardData") == before


def a_wrapper_spreads_parameters_and_outputs() -> None:
    mesh = mesh_of(count(), names=("fsdp",))
    torch.manual_seed(1)
    plain = mlp()
    wrapped = SpmdFullyShardedDataParallel(copy.deepcopy(plain).to(XLA), mesh=mesh)
    x = torch.randn(8, 16)
    y = wrapped(xs.mark_sharding(x.to(XLA), mesh, ("fsdp", None)))
    y.square().mean().backward()
    plain(x).square().mean().backward()
    torch.testing.assert_close(y.cpu(), plain(x))
    assert shapes_of(y) == {(8 // count(), 8)}
    for mine, theirs in zip(wrapped.parameters(), plain.parameters(), strict=True):
        assert theirs.grad is not None and mine.grad is not None
        torch.testing.assert_close(mine.grad.cpu(), theirs.grad)
        assert {shape[0] for shape in shapes_of(mine)} == {mine.shape[0] // count()}


def kernels_of_the_host_are_right() -> None:
    """Operators that programs for one CPU call PyTorch for, with their inputs split."""
    mesh = mesh_of(count())
    image = torch.randn(8, 3, 12, 12)
    rows = torch.randn(8, 64)
    square = torch.randn(8, 8, 8)
    weight = torch.randn(6, 3, 3, 3)
    checks: list[tuple[Callable[..., Any], tuple[Tensor, ...]]] = [
        (lambda x, w: nn.functional.conv2d(x, w, padding=1), (image, weight)),
        (lambda x: nn.functional.max_pool2d(x, 3, 1), (image,)),
        (lambda x: nn.functional.batch_norm(x, None, None, training=True), (image,)),
        (lambda x: nn.functional.layer_norm(x, (64,)), (rows,)),
        (lambda x: x.sort(dim=1).values.cumsum(1), (rows,)),
        (lambda x: x @ x.t(), (rows.repeat(1, 64),)),
        (lambda x: torch.linalg.svdvals(x), (square,)),
        (lambda x: torch.linalg.inv(x + 9 * torch.eye(8, device=x.device)), (square,)),
        (lambda x: torch.special.digamma(x.abs() + 1), (rows.double().repeat(1, 64),)),
        (lambda x: x.topk(5).values, (rows,)),
        (lambda x: x.amax() + x.amin(0) + x.logsumexp(0), (rows,)),
        (lambda x: torch.linalg.vector_norm(x, float("inf")), (rows,)),
        (lambda x: x[x.argsort(0)[:, 0]], (rows,)),
        (lambda x: torch.nn.functional.interpolate(x, scale_factor=2), (image,)),
    ]
    for i, (function, inputs) in enumerate(checks):
        ours = [t.to(XLA).requires_grad_() for t in inputs]
        theirs = [t.clone().requires_grad_() for t in inputs]
        for t in ours:
            if t.shape[0] == 8:
                xs.mark_sharding(t, mesh, ("data", *[None] * (t.dim() - 1)))
        got, want = function(*ours), function(*theirs)
        got.square().sum().backward()
        want.square().sum().backward()
        for have, wanted in zip([got, *ours], [want, *theirs], strict=True):
            have, wanted = (have, wanted) if have is got else (have.grad, wanted.grad)
            torch.testing.assert_close(
                have.detach().cpu(),
                wanted.detach(),
                rtol=2e-3,
                atol=2e-3,
                msg=lambda text, i=i: f"{i}: {text}",
            )


def a_nan_wins_across_devices() -> None:
    x = torch.randn(8, 4)
    x[6, 1] = float("nan")
    ours = xs.mark_sharding(x.to(XLA), mesh_of(count()), ("data", None)).global_tensor
    for function in (lambda t: t.amax(0), lambda t: t.amin(), lambda t: t.amax()):
        torch.testing.assert_close(function(ours).cpu(), function(x), equal_nan=True)


def tensors_from_before_are_on_all_devices() -> None:
    assert BEFORE.tolist() == [[1, 2], [3, 4]] and PENDING.tolist() == [[2, 4], [6, 8]]
    assert (BEFORE + PENDING).tolist() == [[3, 6], [9, 12]]
    xs.mark_sharding(BEFORE, mesh_of(count() // 2, 2), ("model", None))
    assert shapes_of(BEFORE) == {(1, 2)}


def there_is_one_device() -> None:
    assert xr.is_spmd() and torch_xla.device_count() == xr.global_device_count() == 1
    assert xr.addressable_device_count() == xr.world_size() == 1 and xr.global_ordinal() == 0
    assert xr.global_runtime_device_count() == xr.addressable_runtime_device_count() == count()
    assert torch_xla.devices() == [torch.device(XLA)] and count() == int(sys.argv[1])


def what_makes_no_sense_is_an_error() -> None:
    mesh = mesh_of(count())
    t = torch.ones(4, 4, device=XLA)
    for error, what, call in (
        (ValueError, "no axis 'rows'", lambda: xs.mark_sharding(t, mesh, ("rows", None))),
        (ValueError, "may split one dimension", lambda: xs.mark_sharding(t, mesh, (0, 0))),
        (ValueError, "2 dimensions", lambda: xs.mark_sharding(t, mesh, (None,) * 3)),
        (ValueError, "one on cpu", lambda: xs.mark_sharding(t.cpu(), mesh, (None, None))),
        (ValueError, "expected each of the", lambda: xs.Mesh([0], (1,))),
        (RuntimeError, "SPMD", lambda: torch_xla.launch(print)),
        (RuntimeError, "does not exist", lambda: torch.ones(1, device="xla:1")),
        (ValueError, "expected 1 shards" if count() == 1 else "shards, got 1",
         lambda: xs.XLAShardedTensor(t).load_local_shards_([xs.XLAShard(torch.ones(1))])),
    ):  # fmt: skip
        try:
            call()
        except error as got:
            assert what in str(got), got
        else:
            raise AssertionError(f"no error: {what}")
    xs.mark_sharding(t, mesh, ("data", None))
    xs.mark_sharding(t, mesh, ("data", None))
    try:
        xs.mark_sharding(t, mesh, (None, "data"))
    except ValueError as got:
        assert "clear_sharding" in str(got)
    else:
        raise AssertionError("two annotations")
    xs.annotate_custom_sharding(t, mesh, (None, "data"))
    assert shapes_of(t) == {(4, 4 // count())}


def a_program_shows_its_mesh() -> None:
    mesh = mesh_of(count())
    t = xs.mark_sharding(torch.ones(8, 2, device=XLA), mesh, ("data", None)).global_tensor
    torch_xla.sync()
    u = t * 2
    text = _XLAC._pending_program(0)
    if torch_xla._settings.settings.partitioner == "gspmd":
        devices = ",".join(map(str, range(count())))
        assert text.count(f'mhlo.sharding = "{{devices=[{count()},1]{devices}}}"') == 2, text
    else:
        name = text.split("sdy.mesh @")[1].split()[0]
        assert f'sdy.mesh @{name} = <["data"={count()}]>' in text
        assert text.count(f'#sdy.sharding<@{name}, [{{"data"}}, {{}}]>') == 2, text
    assert u.tolist() == [[2, 2]] * 8


def random_values() -> list[float]:
    torch.manual_seed(11)
    torch_xla.manual_seed(11)
    mesh = mesh_of(count())
    x = torch.randn(8, 4, device=XLA)
    xs.mark_sharding(x, mesh, ("data", None))
    y = nn.functional.dropout(x, 0.5)
    z = torch.rand(8, device=XLA)
    torch_xla.sync()
    values: list[float] = torch.cat([x.flatten(), y.flatten(), z]).tolist()
    return values


CHECKS = [
    data_parallel_training_is_that_of_one_device,
    tensor_parallel_training_is_that_of_one_device,
    training_on_a_grid_is_that_of_one_device,
    fully_sharded_training_is_that_of_one_device,
    a_transformer_trains_fully_sharded,
    donated_memory_is_that_of_the_shards,
    any_annotation_leaves_values_as_they_are,
    random_annotations_leave_values_as_they_are,
    dimensions_without_equal_parts_are_right,
    an_annotation_is_of_the_memory,
    modules_that_move_lie_as_before,
    gradients_of_new_parameters_lie_alike,
    fully_sharded_gradients_without_an_optimizer_are_split,
    fully_sharded_layers_are_gathered_one_after_the_other,
    what_is_gathered_again_is_what_it_was,
    gradients_of_what_is_within_lie_alike,
    shards_are_read_and_written,
    batches_of_a_loader_go_to_their_devices_in_parts,
    a_wrapper_spreads_parameters_and_outputs,
    kernels_of_the_host_are_right,
    a_nan_wins_across_devices,
    tensors_from_before_are_on_all_devices,
    there_is_one_device,
    what_makes_no_sense_is_an_error,
    a_program_shows_its_mesh,
]


def failures_of(checks: list[Callable[[], None]], only: list[str]) -> dict[str, str]:
    failures = {}
    for check in checks:
        if only and check.__name__ not in only:
            continue
        try:
            torch.manual_seed(0)
            check()
        except Exception:
            failures[check.__name__] = traceback.format_exc()
    return failures


def main() -> None:
    failures = failures_of(CHECKS, sys.argv[2:])
    print(json.dumps({"failures": failures, "random": random_values()}))


if __name__ == "__main__":
    BEFORE = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).to(XLA)
    PENDING = BEFORE * 2
    xr.use_spmd()
    main()
