"""Run by test_dtensor.py. What PyTorch's DTensor, tensor parallelism and `fully_shard` give:

    dtensor_programs.py gloo RANK FILE    by PyTorch on the CPU, in two processes
    dtensor_programs.py xla               as annotations, on all devices of the process

Prints a dictionary: by the program's name its values, or the traceback of its failure.
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    DataParallelMeshDims,
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
)
from torch.distributed.tensor import (
    DTensor,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

IS_GLOO = "gloo" in sys.argv
DEVICE = "cpu" if IS_GLOO else "xla"


def mesh_of(*names: str) -> Any:
    """Of two dimensions the first has one member with gloo, as there are two processes."""
    count = 2 if IS_GLOO else shared_count()
    sizes = (count,) if len(names) == 1 else (1, 2) if IS_GLOO else (count // 2, 2)
    return init_device_mesh(DEVICE, sizes, mesh_dim_names=names)


def shared_count() -> int:
    import torch_xla.runtime as xr

    return xr.global_runtime_device_count()


def whole(t: Any) -> list[Any]:
    full = t.full_tensor() if hasattr(t, "full_tensor") else t
    values: list[Any] = full.detach().cpu().tolist()
    return values


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(16, 8)
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 24)
        self.down = nn.Linear(24, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.norm(self.embed(tokens))
        return self.head(self.down(self.up(x).relu()))


def block() -> Block:
    torch.manual_seed(7)
    return Block()


def tokens(number: int) -> Tensor:
    generator = torch.Generator().manual_seed(number)
    return torch.randint(0, 16, (4, 6), generator=generator).to(DEVICE)


def trained(model: nn.Module) -> dict[str, Any]:
    """Losses, weights and gradients after three steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for number in range(3):
        optimizer.zero_grad()
        out = model(tokens(number))
        loss = out.square().mean()
        loss.backward()
        optimizer.step()
        if not IS_GLOO:
            import torch_xla

            torch_xla.sync()
        losses.append(whole(loss))
    weights = {name: whole(p) for name, p in model.named_parameters()}
    grads = {name: whole(p.grad) for name, p in model.named_parameters()}
    return {"losses": losses, "weights": weights, "grads": grads}


def tensors() -> Any:
    mesh = mesh_of("a")
    x, y = torch.arange(32.0).reshape(4, 8), torch.linspace(-1, 1, 32).reshape(8, 4)
    rows = distribute_tensor(x, mesh, [Shard(0)])
    columns = distribute_tensor(y, mesh, [Shard(-1)])
    moved = (rows @ columns) if IS_GLOO else None
    product = moved if moved is not None else rows @ columns
    again = rows.redistribute(mesh, [Shard(1)])
    assert tuple(rows.placements) == (Shard(0),) and tuple(again.placements) == (Shard(1),)
    replicated = again.redistribute(placements=[Replicate()])
    assert tuple(replicated.placements) == (Replicate(),)
    return [whole(v) for v in (rows, columns, product, rows.exp().sum(0), again, replicated)]


def parts_of_meshes() -> Any:
    mesh = mesh_of("a", "b")
    t = distribute_tensor(torch.arange(32.0).reshape(8, 4), mesh, [Shard(0), Shard(1)])
    u = distribute_tensor(torch.ones(4, 8), mesh["b"], [Shard(0)])
    assert tuple(t.placements) == (Shard(0), Shard(1))
    v = distribute_tensor(torch.arange(8.0), mesh, [Shard(0), Shard(0)])
    return [whole(t * 2), whole(u + 1), whole(v)]


def gradients() -> Any:
    mesh = mesh_of("a")
    w = distribute_tensor(torch.linspace(0, 1, 32).reshape(8, 4), mesh, [Shard(0)])
    w = nn.Parameter(w)
    x = distribute_tensor(torch.linspace(-1, 1, 24).reshape(3, 8), mesh, [Replicate()])
    (x @ w).square().sum().backward()
    return [whole(w.grad), whole(w)]


def modules() -> Any:
    mesh = mesh_of("a")

    def partition(name: str, module: nn.Module, mesh: Any) -> None:
        if isinstance(module, nn.Linear):
            weight = distribute_tensor(module.weight.detach(), mesh, [Shard(0)])
            module.register_parameter("weight", nn.Parameter(weight))

    def take(module: nn.Module, inputs: Any, mesh: Any) -> Any:
        return distribute_tensor(inputs[0], mesh, [Replicate()])

    model = distribute_module(block().head, mesh, partition, take)
    out = model(torch.linspace(-1, 1, 24).reshape(3, 8).to(DEVICE))
    out.sum().backward()
    return [whole(out), whole(model.weight.grad)]


def tensor_parallelism() -> Any:
    model = block()
    plan = {
        "up": ColwiseParallel(),
        "down": RowwiseParallel(),
        "embed": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(output_layouts=Replicate()),
    }
    parallelize_module(model.to(DEVICE), mesh_of("tp"), plan)
    return trained(model)


def sequence_parallelism() -> Any:
    model = block()
    plan = {
        "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1)),
        "head": PrepareModuleInput(
            input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),), use_local_output=True
        ),
        "": PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Replicate()),
    }
    model = parallelize_module(model.to(DEVICE), mesh_of("tp"), plan)
    return trained(model)


def fully_sharded() -> Any:
    model, mesh = block().to(DEVICE), mesh_of("dp")
    for layer in (model.up, model.down):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    assert isinstance(model, FSDPModule) and isinstance(model.up, FSDPModule)
    model.set_requires_gradient_sync(True)
    return trained(model)


def both() -> Any:
    mesh = mesh_of("dp", "tp")
    model = block().to(DEVICE)
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    parallelize_module(model, mesh["tp"], plan)
    fully_shard(model, mesh=mesh["dp"])
    if not IS_GLOO:
        import torch_xla.distributed.spmd as xs

        parts = {tuple(shard.data.shape) for shard in xs.local_shards(model.up.weight)}
        assert parts == {(24 // shared_count(), 8)}, parts
    return trained(model)


def both_by_names() -> Any:
    """As `both`, with the whole mesh and the names of its dimensions, which PyTorch takes for
    DTensors alone."""
    mesh = mesh_of("dp", "tp")
    model = block().to(DEVICE)
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    parallelize_module(model, mesh["tp"], plan)
    if IS_GLOO:
        fully_shard(model, mesh=mesh["dp"])
        return trained(model)
    fully_shard(model, mesh=mesh, dp_mesh_dims=DataParallelMeshDims(shard="dp"))
    import torch_xla.distributed.spmd as xs

    parts = {tuple(shard.data.shape) for shard in xs.local_shards(model.up.weight)}
    assert parts == {(24 // shared_count(), 8)}, parts
    return trained(model)


def mixed_precision() -> Any:
    """The mesh is that of all devices by default."""
    model, mesh = block().to(DEVICE), mesh_of("dp") if IS_GLOO else None
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, output_dtype=torch.float32)
    seen = []
    model.down.register_forward_hook(lambda _m, inputs, _r: seen.append(inputs[0].dtype))
    fully_shard(model.up, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    fully_shard(model, mesh=mesh, mp_policy=policy)
    out = model(tokens(0))
    out.square().mean().backward()
    assert (seen, out.dtype) == ([torch.bfloat16], torch.float32), (seen, out.dtype)
    for name, p in model.named_parameters():
        assert p.grad is not None and p.dtype == p.grad.dtype == torch.float32, name
    return [whole(out), *[whole(p.grad) for p in model.parameters()]]


def checkpointed() -> Any:
    """Layers are called again when the forward pass of what holds them has ended."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        apply_activation_checkpointing,
    )

    model, mesh = block().to(DEVICE), mesh_of("dp")
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, nn.Linear))
    fully_shard(model, mesh=mesh, mp_policy=policy)
    model(tokens(0)).float().square().mean().backward()
    return [whole(p.grad) for p in model.parameters()]


PROGRAMS = [
    tensors,
    parts_of_meshes,
    gradients,
    modules,
    tensor_parallelism,
    sequence_parallelism,
    fully_sharded,
    both,
    both_by_names,
    mixed_precision,
    checkpointed,
]


def errors() -> Any:
    """What makes no sense, and what is not here: on annotated meshes alone."""
    from torch.distributed.tensor import Partial

    mesh = mesh_of("a")
    halves = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    other = DataParallelMeshDims(shard="b")
    t = distribute_tensor(torch.ones(4), mesh, [Shard(0)])
    said = []
    for call in (
        lambda: distribute_tensor(torch.ones(4), mesh, [Partial()]),
        lambda: distribute_tensor(torch.ones(4), mesh, [Shard(1)]),
        lambda: distribute_tensor(torch.ones(4), mesh, [Shard(0), Replicate()]),
        lambda: distribute_tensor(torch.ones(4), init_device_mesh("xla", (1,)), [Shard(0)]),
        lambda: parallelize_module(nn.LayerNorm(4), mesh, ColwiseParallel()),
        lambda: fully_shard(nn.Linear(4, 4), mesh=mesh, mp_policy=halves),
        lambda: fully_shard(nn.Linear(4, 4), mesh=mesh, dp_mesh_dims=other),
        lambda: fully_shard(nn.Linear(4, 4), mesh=mesh, offload_policy=CPUOffloadPolicy()),
        lambda: fully_shard(nn.Linear(4, 4), mesh=mesh, reshard_after_forward=2),
        lambda: fully_shard(nn.Linear(4, 4), mesh=mesh, shard_placement_fn=lambda _: mesh),
        lambda: t.redistribute(mesh, [Replicate()], forward_dtype=torch.bfloat16),
        lambda: DTensor.from_local(torch.ones(4), mesh, [Shard(0)]),
    ):
        try:
            call()
            said.append("no error")
        except (ValueError, NotImplementedError) as error:
            said.append(str(error))
    return said


def main() -> None:
    if IS_GLOO:
        dist.init_process_group(
            "gloo", init_method=f"file://{sys.argv[3]}", rank=int(sys.argv[2]), world_size=2
        )
    else:
        import torch_xla.runtime as xr

        xr.use_spmd()
    results = {}
    for program in PROGRAMS if IS_GLOO else [*PROGRAMS, errors]:
        try:
            results[program.__name__] = program()
        except Exception:
            results[program.__name__] = traceback.format_exc()
    print(json.dumps(results))
    if IS_GLOO:
        assert DTensor is not None
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
