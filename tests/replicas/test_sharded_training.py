"""FSDP, its policies and ZeRO-1, with one replica: training is what it is without them."""

from __future__ import annotations

import copy
import functools

import pytest
import torch
from counts import counted
from torch import nn

import torch_xla
import torch_xla.distributed.spmd as xs
from torch_xla.debug import metrics
from torch_xla.distributed import ZeroRedundancyOptimizer
from torch_xla.distributed.fsdp import (
    XlaFullyShardedDataParallel,
    checkpoint_module,
    consolidate_sharded_model_checkpoints,
    consolidate_sharded_state_dicts,
    wrap,
)
from torch_xla.experimental.spmd_fully_sharded_data_parallel import SpmdFullyShardedDataParallel


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("shift", torch.ones(8))

    def forward(self, x):
        return torch.relu(self.linear(x) + self.shift)


def model():
    torch.manual_seed(3)
    return nn.Sequential(Block(), Block(), nn.Linear(8, 2))


def train(module, optimizer, device, clip=None, steps=4):
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x = torch.randn(6, 8, generator=generator).to(device)
        optimizer.zero_grad()
        module(x).square().mean().backward()
        if clip is not None:
            clip(0.1)
        optimizer.step()
        torch_xla.sync()


def trained_on_cpu(clip=False):
    module = model()
    limit = functools.partial(nn.utils.clip_grad_norm_, list(module.parameters()))
    train(module, torch.optim.SGD(module.parameters(), 0.3), "cpu", limit if clip else None)
    return module.state_dict()


def same(got, want, tolerance=1e-5):
    assert got.keys() == want.keys()
    for name, value in got.items():
        torch.testing.assert_close(
            value.detach().cpu().float(), want[name], rtol=tolerance, atol=tolerance
        )


POLICIES = [
    None,
    wrap.always_wrap_policy,
    functools.partial(wrap.transformer_auto_wrap_policy, transformer_layer_cls={Block}),
    functools.partial(wrap.size_based_auto_wrap_policy, min_num_params=60),
    functools.partial(wrap.lambda_auto_wrap_policy, lambda_fn=lambda m: isinstance(m, nn.Linear)),
]


@pytest.mark.parametrize("policy", POLICIES)
def test_wrapped_model_trains_as_without(device, policy):
    module = XlaFullyShardedDataParallel(model().to(device), auto_wrap_policy=policy)
    inner = [m for m in module.modules() if isinstance(m, XlaFullyShardedDataParallel)][1:]
    assert len(inner) == {None: 0}.get(policy, len(inner)) and (policy is None or inner)
    optimizer = torch.optim.SGD(module.parameters(), 0.3)
    train(module, optimizer, device, module.clip_grad_norm_)
    got = {name.replace("module.", ""): p for name, p in module.module.state_dict().items()}
    same(got, trained_on_cpu(clip=True))
    assert metrics.metric_data("TransferFromDeviceTime")[0] == len(got)


def test_transformer_policy_wraps_the_blocks_alone(device):
    policy = functools.partial(wrap.transformer_auto_wrap_policy, transformer_layer_cls={Block})
    module = XlaFullyShardedDataParallel(model().to(device), auto_wrap_policy=policy)
    kinds = [type(m).__name__ for m in module.module]
    assert kinds == ["XlaFullyShardedDataParallel"] * 2 + ["Linear"]
    assert module.module[0].linear.weight.shape == (8, 8)


def test_compute_dtype_is_inside_only(device):
    module = XlaFullyShardedDataParallel(
        model().to(device),
        auto_wrap_policy=wrap.always_wrap_policy,
        compute_dtype=torch.bfloat16,
        reshard_after_forward=True,
        flatten_parameters=False,
    )
    assert module(torch.ones(1, 8, device=device)).dtype == torch.bfloat16
    assert all(p.dtype == torch.float32 for p in module.parameters())
    assert all(b.dtype == torch.bfloat16 for b in module.buffers())
    module(torch.ones(1, 8, device=device)).float().sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in module.parameters())


def test_gradients_are_divided_and_not_exchanged_on_demand(device):
    module = XlaFullyShardedDataParallel(nn.Linear(2, 1, bias=False).to(device))
    x = torch.ones(1, 2, device=device)
    module.set_gradient_divide_factors(2.0, 2.0)
    with module.no_sync():
        module(x).sum().backward()
    assert module.weight.grad.tolist() == [[0.25, 0.25]]
    module.set_gradient_divide_factors(1.0, 1.0)
    module(x).sum().backward()
    assert module.weight.grad.tolist() == [[1.25, 1.25]]
    with pytest.raises(ValueError, match="set_gradient_divide_factors"):
        module.set_gradient_divide_factors(0.0, 1.0)


def test_checkpoints_are_put_together(device, tmp_path):
    module = XlaFullyShardedDataParallel(model().to(device))
    metadata = module.get_shard_metadata()
    assert metadata["world_size"] == 1
    state = {name: value.cpu() for name, value in module.state_dict().items()}
    prefix = str(tmp_path / "ckpt_rank-0-of-1")
    torch.save({"model": state, "shard_metadata": metadata}, prefix + ".pth")
    loaded, path = consolidate_sharded_model_checkpoints(prefix, "*.pth", save_path="")
    same(loaded, model().state_dict())
    same(torch.load(path)["model"], model().state_dict())
    module.load_state_dict(loaded)
    wrapped = XlaFullyShardedDataParallel(
        model().to(device), auto_wrap_policy=wrap.always_wrap_policy
    )
    assert list(wrapped.state_dict()) == list(state)
    changed = {name: value + 1 for name, value in state.items()}
    wrapped.load_state_dict(changed)
    same(wrapped.state_dict(), changed)
    with pytest.raises(ValueError, match="got 2"):
        consolidate_sharded_state_dicts([state, state], metadata)
    with pytest.raises(FileNotFoundError):
        consolidate_sharded_model_checkpoints(str(tmp_path / "nothing"))


def test_checkpointed_module_computes_twice_and_the_same(device):
    calls = []

    class Counting(Block):
        def forward(self, x):
            calls.append(1)
            return super().forward(x)

    torch.manual_seed(0)
    plain = Counting().to(device)
    recomputed = checkpoint_module(copy.deepcopy(plain))
    x = torch.randn(3, 8, device=device)
    plain(x).sum().backward()
    assert len(calls) == 1
    recomputed(x).sum().backward()
    assert len(calls) == 3
    same(
        {name: p.grad for name, p in recomputed.named_parameters()},
        {name: p.grad.cpu() for name, p in plain.named_parameters()},
    )


def test_zero_steps_copies_in_float32(device):
    for arguments in ({}, {"momentum": 0.9}):
        reference = model()
        base = torch.optim.SGD(reference.parameters(), lr=0.3, **arguments)
        limit = functools.partial(nn.utils.clip_grad_norm_, list(reference.parameters()))
        train(reference, base, "cpu", lambda _, f=limit: f(1.0))
        module = model().to(device)
        optimizer = ZeroRedundancyOptimizer(
            module.parameters(), torch.optim.SGD, max_norm=1.0, lr=0.3, **arguments
        )
        with counted() as counts:
            train(module, optimizer, device)
        assert counts.executed == 4
        same(module.state_dict(), reference.state_dict())
        assert optimizer.grad_norm.item() > 0


def test_zero_keeps_small_updates_of_bfloat16_parameters(device):
    weight = nn.Parameter(torch.ones(4, dtype=torch.bfloat16, device=device))
    optimizer = ZeroRedundancyOptimizer(
        [weight], torch.optim.SGD, grad_clipping=False, lr=1e-3, save_master_weights=True
    )
    for _ in range(8):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
    assert weight[0].item() < 1
    master = optimizer.state_dict()["sharded_master_weights"][0]
    assert master.dtype == torch.float32
    torch.testing.assert_close(master.cpu(), torch.full((4,), 1 - 8e-3))


def test_zero_state_round_trips_and_schedulers_reach_it(device):
    weight = nn.Parameter(torch.ones(4, device=device))
    optimizer = ZeroRedundancyOptimizer([weight], torch.optim.Adam, lazy_init=True, lr=0.1)
    with pytest.raises(RuntimeError, match="init_zero"):
        optimizer.step()
    optimizer.init_zero()
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    state = copy.deepcopy(optimizer.state_dict())
    before = weight.detach().clone()
    optimizer.param_groups[0]["lr"] = 0.0
    optimizer.step()
    assert torch.equal(weight, before)
    optimizer.load_state_dict(state)
    assert optimizer.base_optimizer.state_dict()["state"][0]["step"] == 1


def test_spmd_wrapper_marks_parameters(device):
    mesh = xs.Mesh([0], (1, 1), ("fsdp", "model"))
    policy = functools.partial(wrap.transformer_auto_wrap_policy, transformer_layer_cls={Block})
    module = SpmdFullyShardedDataParallel(
        model().to(device), mesh=mesh, auto_wrap_policy=policy, extra_data_axis="model"
    )
    weight = module.module[2].weight
    assert xs.sharding_of(weight).partition_spec == ("fsdp", None)
    train(module, torch.optim.SGD(module.parameters(), 0.3), device)
    got = {name.replace("_orig_module.", ""): p for name, p in module.module.state_dict().items()}
    same(got, trained_on_cpu())
    with pytest.raises(ValueError, match="axis named 'fsdp'"):
        SpmdFullyShardedDataParallel(model(), mesh=xs.Mesh([0], (1,), ("data",)))
