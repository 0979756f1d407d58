"""Run by test_exchanges.py: PyTorch's own `fully_shard`, whose whole parameters have memory while
they are needed and no longer."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import ways
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from training_programs import MODELS, batches, check, full, is_block, mlp, train

import torch_xla
import torch_xla.debug.metrics as metrics
import torch_xla.distributed.xla_backend
import torch_xla.runtime as xr


def sharded(**options: Any) -> Any:
    torch.manual_seed(7)
    model: Any = mlp()  # which moves to the mesh's devices
    parameters = list(model.parameters())
    mesh = init_device_mesh("xla", (xr.world_size(),))
    for module in (model[0], model[2], model):
        fully_shard(module, mesh=mesh, **options)
    assert all(parameter.device.type == "xla" for parameter in parameters)
    return model


def by_step(optimizer: torch.optim.Optimizer) -> None:
    optimizer.step()


def training() -> None:
    size = xr.world_size()
    for again in (True, False):
        model = sharded(reshard_after_forward=again)
        rows = [parameter.to_local().size(0) for parameter in model.parameters()]
        parts = [torch.arange(n).chunk(size) for n in (16, 16, 3, 3)]
        assert rows == [len(part[xr.global_ordinal()]) for part in parts]
        model(torch.ones(2, 8, device="xla")).sum().backward()
        text = torch_xla._XLAC._pending_graph(0, "stablehlo")
        # Each layer's parameters are one exchange.
        assert ways.num_gathers(text) == (4 if again else 2)
        model.zero_grad()
        check(train(model, by_step), full(model), mlp)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
        assert 0 < norm.item() < 100
    assert not any("fsdp::" in name for name in metrics.counter_names())  # no fallback


def models() -> None:
    mesh = init_device_mesh("xla", (xr.world_size(),))
    for make, of_one_device in MODELS[1:]:
        torch.manual_seed(7)
        model: Any = make()
        for module in filter(is_block, list(model.modules())):
            fully_shard(module, mesh=mesh)
        fully_shard(model, mesh=mesh)
        check(train(model, by_step), full(model), of_one_device)


def accumulation() -> None:
    """Gradients held back are exchanged with the last ones."""
    model = sharded()
    x = torch.arange(16.0, device="xla").view(2, 8) * (xr.global_ordinal() + 1)
    gradients = []
    for holds_back in (False, True):
        for given in (x, x - 3):
            model.set_requires_gradient_sync(not holds_back or given is not x)
            model(given).square().sum().backward()
        gradients.append([p.grad.full_tensor().cpu() for p in model.parameters()])
        model.zero_grad()
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-3)


def mixed_precision() -> None:
    model = sharded(
        mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    )
    given = torch.ones(2, 8, device="xla")
    assert model(given).dtype == torch.bfloat16
    model(given).sum().backward()
    assert {(p.dtype, p.grad.dtype) for p in model.parameters()} == {(torch.float32,) * 2}


def offloaded() -> None:
    """The shards and the optimizer's work are the CPU's."""
    model = sharded(offload_policy=CPUOffloadPolicy(pin_memory=False))
    losses = train(model, by_step)
    assert all(parameter.device.type == "cpu" for parameter in model.parameters())
    state = {key: value.to("xla").full_tensor() for key, value in model.state_dict().items()}
    check(losses, state, mlp)


def memory() -> None:
    """Between steps the parameters' parts are all that there is."""
    torch.manual_seed(7)
    model: Any = nn.Sequential(*(nn.Linear(256, 256, bias=False) for _ in range(4))).to("xla")
    mesh = init_device_mesh("xla", (xr.world_size(),))
    for module in (*model, model):
        fully_shard(module, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.ones(2, 256, device="xla")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch_xla.sync(wait=True)
    arrays = torch_xla._XLAC._live_arrays(0)
    whole = sum(p.numel() * 4 for p in model.parameters())
    held = sum(array[0] for array in arrays)
    assert whole / xr.world_size() <= held < 1.3 * whole / xr.world_size(), arrays
    layer = model[0]
    layer.unshard()
    assert tuple(layer.weight.shape) == (256, 256) and layer.weight.sum().isfinite().item()
    kept = layer.weight
    layer.reshard()
    assert kept.untyped_storage().size() == 0
    try:
        kept.sum().item()
    except RuntimeError as error:
        assert "was given back" in str(error)
    else:
        raise AssertionError("memory that was given back was read")
    layer.unshard()
    assert kept.sum().isfinite().item()


def meshes() -> None:
    """Replicas of shards, shards of tensor-parallel layers, and parameters that are loaded late."""
    size = xr.world_size()
    two = init_device_mesh("xla", (size // 2, 2), mesh_dim_names=("data", "tensor"))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    for kind in ("replicated", "tensor", "late"):
        torch.manual_seed(7)
        reference = mlp()
        model: Any = copy.deepcopy(reference).to("meta" if kind == "late" else "xla")
        if kind == "tensor":
            parallelize_module(model, two["tensor"], plan)
        mesh = two["data"] if kind == "tensor" else two if kind == "replicated" else None
        for module in (model[0], model[2], model):
            fully_shard(module, mesh=mesh or init_device_mesh("xla", (size,)))
        whole = StateDictOptions(full_state_dict=True)
        if kind == "late":
            model.to_empty(device="xla")
            set_model_state_dict(model, reference.state_dict(), options=whole)
        optimizers = [
            torch.optim.SGD(m.parameters(), lr=0.1, foreach=False) for m in (model, reference)
        ]
        for x, _ in batches(0, 1):  # the same for all
            losses = [
                m(given).square().mean() for m, given in ((model, x.to("xla")), (reference, x))
            ]
            for loss, optimizer in zip(losses, optimizers, strict=True):
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            torch_xla.sync()
            torch.testing.assert_close(losses[0].cpu(), losses[1], rtol=1e-4, atol=1e-5)
        got = get_model_state_dict(model, options=whole)
        got = {key: value.cpu() for key, value in got.items()}
        torch.testing.assert_close(got, dict(reference.state_dict()), rtol=1e-4, atol=1e-5)


def in_group(way: Callable[[], None]) -> None:
    dist.init_process_group("xla", init_method="xla://")
    way()
    dist.destroy_process_group()


WAYS = {
    way.__name__: functools.partial(in_group, way)
    for way in (training, models, accumulation, mixed_precision, offloaded, memory, meshes)
}


if __name__ == "__main__":
    ways.launch(WAYS)
