"""Run by test_exchanges.py, with launch or under torchrun: a model trained by n replicas has
the losses and weights of one device with the n-fold batch."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.optim as distributed_optim
import ways
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

import torch_xla
import torch_xla.core.functions as xf
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_backend
import torch_xla.runtime as xr
from torch_xla.distributed import ZeroRedundancyOptimizer
from torch_xla.distributed.fsdp import (
    XlaFullyShardedDataParallel,
    consolidate_sharded_state_dicts,
    wrap,
)

STEPS, BATCH = 4, 6


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def cnn(norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (2, 2, 2)), nn.Conv2d(2, 4, 3, padding=1), norm(4), nn.ReLU(),
        nn.Flatten(), nn.Linear(16, 3),
    )  # fmt: skip


class Tokens(nn.Module):
    """Vectors of the tokens that the numbers stand for, and of their places."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(16, 16), nn.Embedding(8, 16)

    def forward(self, x: Tensor) -> Tensor:
        tokens = (x * 2).round().long().clamp(-8, 7) + 8
        return self.tokens(tokens) + self.places.weight


class Block(nn.TransformerEncoderLayer):
    """Each place attends to those before it."""

    def __init__(self) -> None:
        super().__init__(
            16, 2, 32, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, torch.full((8, 8), float("-inf"), device=x.device).triu(1))


class Head(nn.Linear):
    """Of what stands at the last place."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x[:, -1])


def gpt(blocks: int = 1) -> nn.Sequential:
    """A small GPT-2."""
    return nn.Sequential(Tokens(), *(Block() for _ in range(blocks)), Head(16, 3))


def synchronized_cnn() -> nn.Module:
    def norm(features: int) -> nn.Module:
        return xf.SyncBatchNorm(features)

    return cnn(norm)


# What replicas train, and what one device does.
MODELS = ((mlp, mlp), (gpt, gpt), (synchronized_cnn, cnn))


def batches(rank: int, size: int, steps: int = STEPS) -> Iterator[tuple[Tensor, Tensor]]:
    """The part of each step's batch that is for one of the replicas."""
    for step in range(steps):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(BATCH * size, 8, generator=generator)
        y = torch.randint(3, (BATCH * size,), generator=generator)
        yield x[rank * BATCH : (rank + 1) * BATCH], y[rank * BATCH : (rank + 1) * BATCH]


def expected(
    make: Callable[[], nn.Module], size: int, steps: int = STEPS
) -> tuple[list[float], dict[str, Tensor]]:
    """On the CPU, by one process with the whole batch."""
    torch.manual_seed(7)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    parts = zip(*(batches(rank, size, steps) for rank in range(size)), strict=True)
    for step in parts:
        x, y = (torch.cat([part[i] for part in step]) for i in range(2))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model.state_dict()


def check(losses: list[float], model: Any, make: Callable[[], nn.Module]) -> None:
    want_losses, want = expected(make, xr.world_size())
    mean = xm.mesh_reduce(
        "losses", losses, lambda all_: [sum(s) / len(s) for s in zip(*all_, strict=True)]
    )
    torch.testing.assert_close(mean, want_losses, rtol=1e-4, atol=1e-5)
    state = model.state_dict() if isinstance(model, nn.Module) else model
    got = {key.replace("module.", ""): value.cpu() for key, value in state.items()}
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def train(model: nn.Module, step: Callable[[torch.optim.Optimizer], object]) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    own = list(batches(xr.global_ordinal(), xr.world_size()))
    losses = []
    for x, y in pl.MpDeviceLoader(own, torch_xla.device()):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        step(optimizer)
        losses.append(loss.detach())
    return [loss.item() for loss in losses]


def right_on_the_first(make: Callable[[], nn.Module]) -> nn.Module:
    """Every replica has other weights at first."""
    torch.manual_seed(7 + xr.global_ordinal())
    return make().to("xla")


def by_optimizer_step() -> None:
    for make, of_one_device in MODELS:
        model = right_on_the_first(make)
        xm.broadcast_master_param(model)
        check(train(model, xm.optimizer_step), model, of_one_device)


def with_synchronized_norms_of_torch() -> None:
    dist.init_process_group("xla", init_method="xla://")
    torch.manual_seed(7)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(cnn()).to("xla")
    check(train(model, xm.optimizer_step), model, cnn)
    # The mean of all batches, which have different numbers of samples.
    norm = nn.SyncBatchNorm(2, momentum=None).to("xla")
    want = nn.BatchNorm1d(2, momentum=None)
    parts = [torch.randn(2 + rank, 2) for rank in range(xr.world_size())]
    for _ in range(2):
        got = norm(parts[xr.global_ordinal()].to("xla"))
        own = want(torch.cat(parts)).split([len(part) for part in parts])[xr.global_ordinal()]
        torch.testing.assert_close(got.cpu(), own, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(norm.running_var.cpu(), want.running_var, rtol=1e-4, atol=1e-5)
    dist.destroy_process_group()


def by_ddp() -> None:
    dist.init_process_group("xla", init_method="xla://")
    assert (dist.get_rank(), dist.get_world_size()) == (xr.global_ordinal(), xr.world_size())
    for make, of_one_device in MODELS:
        model = right_on_the_first(make)
        replicated = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        losses = train(replicated, lambda optimizer: optimizer.step())
        check(losses, replicated, of_one_device)
    dist.destroy_process_group()


def by_tensor_parallel() -> None:
    """Each replica has a part of each layer, and all of the batch."""
    dist.init_process_group("xla", init_method="xla://")
    size = xr.world_size()
    mesh = init_device_mesh("xla", (size,))
    whole = torch.arange(10.0).view(5, 2)
    spread = distribute_tensor(whole, mesh, [Shard(0)])  # in uneven parts
    assert spread.to_local().device.type == "xla" and spread.to_local().size(0) < 5
    assert torch.equal(spread.full_tensor().cpu(), whole)
    assert torch.equal((spread.redistribute(mesh, [Replicate()]) * 2).to_local().cpu(), whole * 2)
    train_in_parts(mlp, "0", "2", mesh)
    train_in_parts(gpt, "1.linear1", "1.linear2", mesh)
    dist.destroy_process_group()


def train_in_parts(make: Callable[[], nn.Module], first: str, second: str, mesh: Any) -> None:
    """The first layer's columns, and the second one's rows, are spread."""
    size = xr.world_size()
    torch.manual_seed(7)
    model = parallelize_module(
        make().to("xla"),
        mesh,
        # What is local does not say how wide the others are, where parts are uneven.
        {first: ColwiseParallel(use_local_output=False), second: RowwiseParallel()},
    )
    weight: Any = model.get_submodule(first).weight
    assert weight.to_local().size(0) <= -(-weight.size(0) // size)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    losses = []
    for step in zip(*(batches(rank, size) for rank in range(size)), strict=True):
        x, y = (torch.cat([part[i] for part in step]).to("xla") for i in range(2))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        losses.append(loss.item())
    want_losses, want = expected(make, size)
    torch.testing.assert_close(losses, want_losses, rtol=1e-4, atol=1e-5)
    got = {key: value.cpu() for key, value in full(model).items()}
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def full(model: nn.Module) -> dict[str, Tensor]:
    """The state of a model of which some is spread."""
    return {
        key: value.full_tensor() if isinstance(value, DTensor) else value
        for key, value in model.state_dict().items()
    }


def by_zero() -> None:
    """The optimizer's state is spread; 3 and 16 rows divide into 2 parts unevenly and evenly."""
    for make, of_one_device in reversed(MODELS):
        torch.manual_seed(7)
        model = make().to("xla")
        optimizer = ZeroRedundancyOptimizer(
            model.parameters(), torch.optim.SGD, grad_clipping=False, lr=0.1, momentum=0.9
        )
        losses = train(model, lambda _, optimizer=optimizer: optimizer.step())
        check(losses, model, of_one_device)
    (momentum, *_) = optimizer.base_optimizer.state.values()
    assert momentum["momentum_buffer"].size(0) == -(-16 // xr.world_size())
    # Clipped: the norm is that of the averaged gradients.
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, float(1 + xr.global_ordinal()))
    clipping = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, max_norm=1.0, lr=1.0)
    clipping.step()
    count = sum(parameter.numel() for parameter in model.parameters())
    assert clipping.grad_norm is not None
    norm = clipping.grad_norm.item()
    mean = (1 + xr.world_size()) / 2
    assert abs(norm - mean * count**0.5) < 1e-3 * norm, norm
    for old, parameter in zip(before, model.parameters(), strict=True):
        moved = (old - parameter.detach()).cpu()
        torch.testing.assert_close(moved, torch.full_like(moved, mean / norm), rtol=1e-3, atol=1e-5)


def by_zero_of_torch() -> None:
    """The state of each parameter is with one of the replicas, which tells the others."""
    dist.init_process_group("xla", init_method="xla://")
    for make, of_one_device in MODELS:
        model = nn.parallel.DistributedDataParallel(right_on_the_first(make))
        optimizer = distributed_optim.ZeroRedundancyOptimizer(
            model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9
        )
        losses = train(model, lambda _, optimizer=optimizer: optimizer.step())
        check(losses, model, of_one_device)
        optimizer.consolidate_state_dict(to=xr.world_size() - 1)
        if xr.global_ordinal() == xr.world_size() - 1:
            state = optimizer.state_dict()["state"]
            assert len(state) == len(list(model.parameters()))
    dist.destroy_process_group()


def by_fsdp() -> None:
    """Each replica has rows of the parameters, and gathers the rest twice in a step."""
    for again in (True, False):
        torch.manual_seed(7)
        policy = functools.partial(wrap.lambda_auto_wrap_policy, lambda_fn=is_linear)
        module = XlaFullyShardedDataParallel(
            mlp(), reshard_after_forward=again, auto_wrap_policy=policy
        )
        rows = [parameter.size(0) for parameter in module.parameters()]
        assert rows == [-(-n // xr.world_size()) for n in (16, 16, 3, 3)]
        loss = module(torch.ones(2, 8, device="xla")).sum()
        loss.backward()
        text = torch_xla._XLAC._pending_graph(0, "stablehlo")
        # Of the weights a second time: the biases are not needed.
        assert ways.num_gathers(text) == (5 if again else 4)
        check_gradients_held_back(module)
        module.zero_grad()
        losses = train(module, lambda optimizer: optimizer.step())
        check(losses, consolidated(module), mlp)
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    norm = module.clip_grad_norm_(1.0)
    count = sum(parameter.numel() for parameter in module.parameters()) * xr.world_size()
    assert abs(norm.item() - count**0.5) < 1e-3


def by_fsdp_of_other_models() -> None:
    for make, of_one_device in MODELS[1:]:
        torch.manual_seed(7)
        policy = functools.partial(wrap.lambda_auto_wrap_policy, lambda_fn=is_block)
        module = XlaFullyShardedDataParallel(make(), auto_wrap_policy=policy)
        losses = train(module, lambda optimizer: optimizer.step())
        check(losses, consolidated(module), of_one_device)


def consolidated(module: Any) -> dict[str, Tensor]:
    part = {"model": module.state_dict(), "shard_metadata": module.get_shard_metadata()}
    parts = xm.mesh_reduce("parts", part, list)
    return consolidate_sharded_state_dicts(
        [each["model"] for each in parts], parts[0]["shard_metadata"]
    )


def check_gradients_held_back(module: Any) -> None:
    """Those of several passes are exchanged once."""
    x = torch.arange(16.0, device="xla").view(2, 8) * (xr.global_ordinal() + 1)
    passes = (x, x.flip(0) * 2, x - 3)
    module.zero_grad()
    for given in passes:
        module(given).square().sum().backward()
    want = [parameter.grad.cpu() for parameter in module.parameters()]
    module.zero_grad()
    with module.no_sync():
        for given in passes[:2]:
            module(given).square().sum().backward()
        assert all(parameter.grad is None for parameter in module.parameters())
        assert "reduce_scatter" not in torch_xla._XLAC._pending_graph(0, "stablehlo")
    module(passes[2]).square().sum().backward()
    for parameter, grad in zip(module.parameters(), want, strict=True):
        torch.testing.assert_close(parameter.grad.cpu(), grad, rtol=1e-4, atol=1e-3)
    module.zero_grad()


def in_stages(model: nn.Sequential, size: int) -> list[nn.Sequential]:
    """The layers in so many parts, in which as many follow each other; the first and the last have
    what is over."""
    per_stage, over = divmod(len(model), size)
    ends = [over // 2 + per_stage * (stage + 1) for stage in range(size - 1)] + [len(model)]
    return [model[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def by_pipeline() -> None:
    """Each replica has some of the layers; what they compute goes to the next."""
    dist.init_process_group("xla", init_method="xla://")
    size = xr.world_size()
    for schedule_class in (ScheduleGPipe, Schedule1F1B):
        torch.manual_seed(7)
        layers = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(size)]
        flipped = [(x, x.flip(1)) for x, _ in batches(0, 1)]
        train_in_stages(nn.Sequential(*layers), flipped, schedule_class, nn.functional.mse_loss)
        train_in_stages(gpt(size), list(batches(0, 1)), schedule_class, nn.functional.cross_entropy)
    dist.destroy_process_group()


def train_in_stages(
    whole: nn.Sequential,
    samples: list[tuple[Tensor, Tensor]],
    schedule_class: type[ScheduleGPipe | Schedule1F1B],
    loss_of: Callable[[Tensor, Tensor], Tensor],
) -> None:
    rank, size, device = xr.global_ordinal(), xr.world_size(), torch.device("xla:0")
    own = in_stages(whole, size)[rank]
    stage = copy.deepcopy(own).to(device)
    schedule = schedule_class(PipelineStage(stage, rank, size, device), 3, loss_fn=loss_of)
    want_losses, losses = [], []
    for x, y in samples:
        given = (x.to(device),) if rank == 0 else ()
        found: list[Tensor] = []
        last = {"target": y.to(device), "losses": found} if rank == size - 1 else {}
        schedule.step(*given, **last)
        losses += [sum(loss.item() for loss in found) / 3] if found else []
        loss = loss_of(whole(x), y)
        want_losses.append(loss.item())
        loss.backward()
        with torch.no_grad():
            for parameter in (*stage.parameters(), *whole.parameters()):
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
    if rank == size - 1:
        torch.testing.assert_close(losses, want_losses, rtol=1e-4, atol=1e-5)
    for got, want in zip(stage.parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(got.cpu(), want, rtol=1e-3, atol=1e-5)


def is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear)


def is_block(module: nn.Module) -> bool:
    return isinstance(module, (nn.TransformerEncoderLayer, nn.Conv2d))


WAYS = {
    "optimizer_step": by_optimizer_step,
    "torch_norms": with_synchronized_norms_of_torch,
    "ddp": by_ddp,
    "tensor_parallel": by_tensor_parallel,
    "zero": by_zero,
    "torch_zero": by_zero_of_torch,
    "fsdp": by_fsdp,
    "fsdp_of_others": by_fsdp_of_other_models,
    "pipeline": by_pipeline,
}


if __name__ == "__main__":
    ways.launch(WAYS)
