"""Every name of the public API that one device needs, called with its documented arguments.

One row per name: where it is, and a call that returns whether the result is right. What has more to
it has its own tests; here stands that the name exists, takes these arguments and does its work.
Names for looking, saving and exporting are in test_api_table_observation.py.
"""

from __future__ import annotations

import importlib
import io
import re
import tempfile
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from clone import ROOT
from processes import run_in_process
from torch import nn

import torch_xla
import torch_xla.amp as xamp
import torch_xla.core.functions as xf
import torch_xla.core.xla_env_vars as xenv
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.distributed as xdist
import torch_xla.distributed.data_parallel as dp
import torch_xla.distributed.fsdp as fsdp
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr
import torch_xla.utils.utils as xu
from torch_xla.distributed.spmd import debugging
from torch_xla.experimental import callback, custom_kernel, plugins, xla_marker
from torch_xla.experimental.distributed_checkpoint import (
    CheckpointManager,
    SPMDLoadPlanner,
    SPMDSavePlanner,
    prime_optimizer,
)
from torch_xla.experimental.spmd_fully_sharded_data_parallel import SpmdFullyShardedDataParallel
from torch_xla.experimental.xla_quantized_matmul import XlaQuantizedLinear
from torch_xla.utils import dlpack, gcsfs, keyd_queue
from torch_xla.utils.closures import AsyncClosureHandler

XLA = "xla:0"


def ones(*sizes: int) -> torch.Tensor:
    return torch.ones(sizes or (2,), device=XLA)


def attempt(function: Callable[[], Any], error: type[Exception]) -> bool:
    """Whether the call raises that error."""
    try:
        function()
    except error:
        return True
    return False


def stepped(**arguments: Any) -> Any:
    weight = nn.Parameter(ones())
    weight.grad = ones()
    result = xm.optimizer_step(torch.optim.SGD([weight], lr=1.0), **arguments)
    return result is None and weight.tolist() == [0, 0]


def entered(context: Any) -> Any:
    with context as value:
        return value


def printed() -> bool:
    out = io.StringIO()
    xm.master_print("a", 1, fd=out, local=True, flush=True)
    return out.getvalue() == "a 1\n"


def launched(start: Callable[..., Any], **arguments: Any) -> bool:
    seen: list[int] = []
    start(lambda index, x: seen.append(index + x), args=(5,), **arguments)
    return seen == [5]


def closed(run_async: bool) -> bool:
    seen: list[Any] = []
    xm.add_step_closure(lambda t: seen.append(t.tolist()), args=(ones(),), run_async=run_async)
    torch_xla.sync()
    xm.wait_device_ops()
    return seen == [[1, 1]]


def rated() -> bool:
    tracker = xm.RateTracker(smooth_factor=0.5)
    tracker.add(3)
    return tracker.rate() > 0 and tracker.global_rate() > 0


def loaded(**arguments: Any) -> bool:
    loader = pl.ParallelLoader([torch.ones(2)] * 3, [XLA], **arguments)
    per_device = loader.per_device_loader(XLA)
    is_right = loader.per_device_samples() == 3 and len(list(per_device)) == 3
    loader.close()
    return is_right and isinstance(per_device, pl.PerDeviceLoader)


def barred() -> bool:
    layer = nn.Linear(2, 2).to(XLA)
    handle = xs.apply_backward_optimization_barrier(layer)
    x = ones(1, 2).requires_grad_()
    layer(x).sum().backward()
    text = torch_xla._XLAC._get_xla_tensors_stablehlo([x.grad])
    handle.remove()
    return "optimization_barrier" in text


def sharded() -> bool:
    mesh = xs.Mesh(*MESH)
    tensor = xs.XLAShardedTensor(ones(2, 2), mesh, ("data", None))
    tensor.load_local_shards_([xs.XLAShard(torch.zeros(2, 2), 0)])
    again = tensor.redistribute(mesh, (None, "model"))
    return (
        tensor.local_shards[0].data.sum() == 0
        and [placement.is_shard() for placement in tensor.placements] == [True, False]
        and [placement.is_shard() for placement in again.placements] == [False, True]
    )


def grouped(init_method: str) -> bool:
    """torch.distributed with the backend "xla", and DistributedDataParallel over it."""
    importlib.import_module("torch_xla.distributed.xla_backend")
    torch.distributed.init_process_group("xla", init_method=init_method)
    try:
        x = ones(1, 2)
        torch.distributed.all_reduce(x)
        model = nn.parallel.DistributedDataParallel(
            nn.Linear(2, 1).to(XLA), gradient_as_bucket_view=True
        )
        model(x).sum().backward()
        return model.module.weight.grad.tolist() == x.tolist() == [[1, 1]]
    finally:
        torch.distributed.destroy_process_group()


def kept_steps() -> bool:
    where = tempfile.mkdtemp()
    manager = CheckpointManager(where, save_interval=1, chkpt_on_preemption=False)
    state = {"a": ones()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is one process
        is_saved = manager.save(1, state) and manager.save_async(2, state)
        manager.join()
        loaded_state = {"a": torch.zeros(2, device=XLA)}
        manager.restore(2, loaded_state)
    is_preempted = manager.reached_preemption(2)
    return is_saved and not is_preempted and manager.all_steps() == [1, 2] and (
        loaded_state["a"].tolist() == [1, 1]
    )  # fmt: skip


def barrier_put() -> bool:
    t = ones() + 1
    xm.optimization_barrier_([t])
    return t.tolist() == [2, 2]


def virtual_device_used() -> bool:
    # There is no way back: in a process of its own.
    program = "import torch_xla.runtime as xr\nxr.use_spmd(auto=True)\nprint(xr.is_spmd())"
    return run_in_process(program) == "True"


def quantized() -> bool:
    layer = XlaQuantizedLinear(2, 1, is_symmetric=True, block_size=-1, int4_weight=False).to(XLA)
    layer.load_quantized_weight(torch.tensor([[3, 4]], dtype=torch.int8), torch.tensor([0.5]))
    return layer(ones(1, 2)).tolist() == [[3.5]]


def planned() -> bool:
    """Saved and loaded by the planners for meshes."""
    where = tempfile.mkdtemp()
    state = {"a": torch.zeros(2, device=XLA)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is one process
        writer = dcp.FileSystemWriter(where)
        dcp.save({"a": ones() * 3}, storage_writer=writer, planner=SPMDSavePlanner(), no_dist=True)
        reader = dcp.FileSystemReader(where)
        dcp.load(state, storage_reader=reader, planner=SPMDLoadPlanner(), no_dist=True)
    return state["a"].tolist() == [3, 3]


A1: dict[str, Callable[[], Any]] = {
    "device": lambda: torch_xla.device() == torch_xla.device(index=0) == torch.device(XLA),
    "devices": lambda: torch_xla.devices()[0] == torch.device(XLA),
    "real_devices": lambda: torch_xla.real_devices()[0].endswith(":0"),
    "device_count": lambda: torch_xla.device_count() >= 1,
    "sync": lambda: torch_xla.sync(wait=True, reset_scope=True) is None,
    "step": lambda: entered(torch_xla.step()) is None,
    "manual_seed": lambda: torch_xla.manual_seed(3, device=XLA) is None,
    "launch": lambda: launched(torch_xla.launch, start_method="spawn", debug_single_process=False),
    "__version__": lambda: re.match(r"2\.\d+", torch_xla.__version__),
    "backends.set_mat_mul_precision": lambda: (
        torch_xla.backends.set_mat_mul_precision("default") is None
    ),
    "backends.get_mat_mul_precision": lambda: (
        torch_xla.backends.get_mat_mul_precision() == "default"
    ),
    "torch.device": lambda: torch.ones(1).to("xla").device == torch.device("xla", 0),
}

A2: dict[str, Callable[[], Any]] = {
    "xla_device": lambda: xm.xla_device(n=0, devkind=None) == torch.device(XLA),
    "get_xla_supported_devices": lambda: xm.get_xla_supported_devices(max_devices=1) == [XLA],
    "get_xla_supported_devices-L": lambda: (
        xm.get_xla_supported_devices(devkind=None, max_devices=1) == [XLA]
    ),
    "xrt_world_size-L": lambda: xm.xrt_world_size(defval=1) == 1,
    "get_ordinal-L": lambda: xm.get_ordinal(defval=0) == 0,
    "get_local_ordinal": lambda: xm.get_local_ordinal() == 0,
    "is_master_ordinal": lambda: xm.is_master_ordinal(local=True) is True,
    "master_print": printed,
    "mark_step": lambda: xm.mark_step(wait=False, reset_scope=True) is None,
    "optimizer_step": lambda: stepped(
        barrier=True, optimizer_args={}, groups=None, pin_layout=True
    ),
    "reduce_gradients": lambda: (
        xm.reduce_gradients(
            torch.optim.SGD([nn.Parameter(ones())], lr=1.0), groups=None, pin_layout=True
        )
        is None
    ),
    "all_reduce_bucketized_gradients": lambda: (
        xm.all_reduce_bucketized_gradients([ones()], 1.0) is None
    ),
    "all_reduce": lambda: (
        xm.all_reduce(xm.REDUCE_SUM, ones(), scale=2.0, groups=None, pin_layout=True).tolist()
        == [2, 2]
    ),
    "REDUCE_*": lambda: (
        {
            xm.REDUCE_SUM,
            xm.REDUCE_MUL,
            xm.REDUCE_AND,
            xm.REDUCE_OR,
            xm.REDUCE_MIN,
            xm.REDUCE_MAX,
        }
        == {"sum", "mul", "and", "or", "min", "max"}
    ),
    "all_gather": lambda: (
        xm.all_gather(
            ones(),
            dim=0,
            groups=None,
            output=None,
            pin_layout=True,
            channel_id=None,
            use_global_device_ids=None,
        ).tolist()
        == [1, 1]
    ),
    "reduce_scatter": lambda: (
        xm.reduce_scatter(xm.REDUCE_SUM, ones(), scale=1.0, scatter_dim=0, shard_count=1).tolist()
        == [1, 1]
    ),
    "all_gather_bucketized": lambda: len(xm.all_gather_bucketized([ones()], bucket_cap_mb=160)),
    "reduce_scatter_bucketized": lambda: len(
        xm.reduce_scatter_bucketized(xm.REDUCE_SUM, [ones()], 1.0, 0, 1, bucket_cap_mb=160)
    ),
    "CoalescingBuckets": lambda: len(xm.CoalescingBuckets(lambda ts: ts, [ones()])()) == 1,
    "all_to_all": lambda: xm.all_to_all(ones(2, 2), 0, 1, 1, groups=None).shape == (2, 2),
    "collective_permute": lambda: xm.collective_permute(ones(), [[0, 0]]).tolist() == [1, 1],
    "collective_broadcast": lambda: xm.collective_broadcast([ones()], root_ordinal=0) is None,
    "send": lambda: xm.send(ones(), channel_id=7).tolist() == [1, 1],
    "recv": lambda: xm.recv(torch.zeros(2, device=XLA), channel_id=7).tolist() == [1, 1],
    "broadcast_master_param": lambda: xm.broadcast_master_param(nn.Linear(1, 1).to(XLA)) is None,
    "rendezvous": lambda: xm.rendezvous("tag", payload=b"p", replicas=[]) == [b"p"],
    "xla_rendezvous": lambda: xm.xla_rendezvous(payload=b"p", ordinals=None, tag="t") == [b"p"],
    "mesh_reduce": lambda: xm.mesh_reduce("tag", 4, sum) == 4,
    "do_on_ordinals": lambda: xm.do_on_ordinals(lambda x: None, data=(1,), ordinals=(0,)) is None,
    "add_step_closure": lambda: closed(run_async=False) and closed(run_async=True),
    "wait_device_ops": lambda: xm.wait_device_ops(devices=[]) is None,
    "set_rng_state": lambda: xm.set_rng_state(7, device=XLA) is None and xm.get_rng_state() == 7,
    "get_rng_state": lambda: isinstance(xm.get_rng_state(device=XLA), int),
    "fork_rng": lambda: entered(xm.fork_rng(device=XLA, enabled=True)) is None,
    "get_memory_info": lambda: ones().nbytes and xm.get_memory_info(device=XLA)["bytes_limit"] > 0,
    "send_cpu_data_to_device": lambda: (
        xm.send_cpu_data_to_device([torch.ones(1)], XLA, input_sharding=None)[0].device
        == torch.device(XLA)
    ),
    "is_xla_tensor": lambda: xm.is_xla_tensor(ones()) and not xm.is_xla_tensor(torch.ones(1)),
    "unlazy": lambda: xm.unlazy([ones() + 1]) is None,
    "check_view_sharing": lambda: xm.check_view_sharing([ones(), ones()]) is None,
    "xla_real_devices": lambda: xm.xla_real_devices(devices=[XLA])[0].endswith(":0"),
    "xla_device_hw": lambda: xm.xla_device_hw(XLA) == xr.device_type(),
    "xla_device_kind": lambda: isinstance(xm.xla_device_kind(device=None), str),
    "set_replication": lambda: xm.set_replication(XLA, [XLA]) is None,
    "xla_replication_devices": lambda: len(xm.xla_replication_devices(local_devices=None)) == 1,
    "RateTracker": rated,
    "ToXlaTensorArena": lambda: (
        xm.ToXlaTensorArena(lambda ts: [t + 1 for t in ts], lambda v: isinstance(v, torch.Tensor))
        .transform({"a": [ones()]})["a"][0]
        .tolist()
        == [2, 2]
    ),
    "optimization_barrier_": barrier_put,
    "_fetch_gradients": lambda: (
        xm._fetch_gradients(torch.optim.SGD([nn.Parameter(ones())], lr=1.0)) == []
    ),
    "_maybe_convert_to_cpu": lambda: (
        xm._maybe_convert_to_cpu(ones(), convert=True).device.type == "cpu"
    ),
    "_run_step_closures": lambda: xm._run_step_closures() is None,
    "parse_xla_device-L": lambda: xm.parse_xla_device(XLA) == ("xla", 0),
}

A3: dict[str, Callable[[], Any]] = {
    "set_device_type": lambda: xr.set_device_type(xr.device_type()) is None,
    "device_type": lambda: isinstance(xr.device_type(), str),
    "world_size": lambda: xr.world_size() == 1,
    "global_ordinal": lambda: xr.global_ordinal() == xr.local_ordinal() == 0,
    "process_index": lambda: xr.process_index() == xr.host_index() == 0,
    "process_count": lambda: xr.process_count() == xr.local_process_count() == 1,
    "global_device_count": lambda: (
        xr.global_device_count() == xr.local_device_count() == xr.addressable_device_count()
    ),
    "global_runtime_device_count": lambda: (
        xr.global_runtime_device_count() == xr.addressable_runtime_device_count()
    ),
    "runtime_device_attributes": lambda: "name" in xr.runtime_device_attributes(XLA),
    "global_runtime_device_attributes": lambda: len(xr.global_runtime_device_attributes()),
    "use_spmd": virtual_device_used,
    "is_spmd": lambda: xr.is_spmd() is False,
    "initialize_cache": lambda: attempt(
        lambda: (ones() + 1).tolist() and xr.initialize_cache("x", readonly=False), RuntimeError
    ),
    "get_num_cached_compilation_graph": lambda: xr.get_num_cached_compilation_graph() >= 0,
    "clear_computation_cache": lambda: xr.clear_computation_cache() is None,
    "is_bf16_supported": lambda: xr.is_bf16_supported() is True,
    "get_master_ip": lambda: isinstance(xr.get_master_ip(), str),
    "using_pjrt-L": lambda: xr.using_pjrt() is True,
    "xla_device-L": lambda: xr.xla_device() == torch.device(XLA),
}

MESH = ([0], (1, 1), ("data", "model"))

A4: dict[str, Callable[[], Any]] = {
    "xmp.spawn": lambda: launched(
        xmp.spawn, nprocs=None, join=True, daemon=False, start_method="spawn"
    ),
    "xmp.MpModelWrapper": lambda: isinstance(
        xmp.MpModelWrapper(nn.Linear(1, 1)).to(XLA), nn.Linear
    ),
    "xmp.MpSerialExecutor": lambda: xmp.MpSerialExecutor().run(lambda: 3) == 3,
    "pl.MpDeviceLoader": lambda: (
        len(
            list(pl.MpDeviceLoader([torch.ones(1)] * 2, torch.device(XLA), batches_per_execution=2))
        )
        == 2
    ),
    "pl.ParallelLoader": lambda: loaded(
        batchdim=0,
        batches_per_execution=1,
        loader_prefetch_size=16,
        device_prefetch_size=8,
        host_to_device_transfer_threads=1,
        input_sharding=None,
    ),
    "pl.ParallelLoader.next_item": lambda: (
        pl.ParallelLoader([torch.ones(2)], [XLA]).next_item(torch.device(XLA)).tolist() == [1, 1]
    ),
    "pl.ParallelLoader-L": lambda: loaded(
        batchdim=0, fixed_batch_size=False, loader_prefetch_size=8, device_prefetch_size=4
    ),
    "dp.DataParallel": lambda: (
        dp.DataParallel(nn.Linear(1, 1), device_ids=[XLA])(
            lambda model, loader, device, context: len(list(loader)),
            [torch.ones(1, 1)],
            fixed_batch_size=False,
            batchdim=0,
        )
        == [1]
    ),
    "dp.Context": lambda: dp.Context(torch.device(XLA)).getattr_or("n", 3) == 3,
    "spmd.Mesh": lambda: xs.Mesh(*MESH).size() == 1,
    "spmd.HybridMesh": lambda: (
        xs.HybridMesh(ici_mesh_shape=(1,), dcn_mesh_shape=None, axis_names=("x",)).size() == 1
    ),
    "spmd.set_global_mesh": lambda: xs.set_global_mesh(xs.Mesh(*MESH)) is None,
    "spmd.get_global_mesh": lambda: xs.get_global_mesh() is None or xs.get_global_mesh().size(),
    "spmd.get_1d_mesh": lambda: xs.get_1d_mesh("x").mesh_shape == (torch_xla.device_count(),),
    "spmd.mark_sharding": lambda: (
        type(xs.mark_sharding(ones(2, 2), xs.Mesh(*MESH), ("data", None))) is xs.XLAShardedTensor
    ),
    "spmd.mark_sharding_with_gradients": lambda: (
        xs.mark_sharding_with_gradients(ones(2), xs.Mesh(*MESH), (None,)) is not None
    ),
    "spmd.clear_sharding": lambda: xs.clear_sharding(ones()) is not None,
    "spmd.annotate_custom_sharding": lambda: (
        type(xs.annotate_custom_sharding(ones(2), xs.Mesh(*MESH), (None,))) is xs.XLAShardedTensor
    ),
    "spmd.shard_as": lambda: len(xs.shard_as(ones(), ones())) == 2,
    "spmd.enable_manual_sharding": lambda: (
        xs.enable_manual_sharding(ones(), (None,), mesh=xs.Mesh(*MESH)).global_tensor.tolist()
        == [1, 1]
    ),
    "spmd.disable_manual_sharding": lambda: (
        xs.disable_manual_sharding(ones(), (None,), (2,), mesh=xs.Mesh(*MESH)).tolist() == [1, 1]
    ),
    "spmd.auto_policy": lambda: callable(xs.auto_policy),
    "spmd.debugging.visualize_tensor_sharding": lambda: debugging.visualize_tensor_sharding(ones()),
    "spmd.debugging.visualize_sharding": lambda: debugging.visualize_sharding(
        "{replicated}", use_color=True, scale=1.0, min_width=9, max_width=80
    ),
    "xmp.create_optimized_replica_groups": lambda: (
        xm.all_reduce("sum", ones(), groups=xmp.create_optimized_replica_groups()).tolist()
        == [1, 1]
    ),
    "spmd.XLAShardedTensor": sharded,
    "spmd.wrap_if_sharded": lambda: xs.wrap_if_sharded(3) == 3,
    "spmd.ShardingSpec": lambda: xs.ShardingSpec(xs.Mesh(*MESH), ("data",), minibatch=False),
    "spmd.ShardingType": lambda: xs.ShardingType.REPLICATED == 0,
    "spmd.xla_distribute_tensor": lambda: (
        xs.xla_distribute_tensor(
            torch.ones(2),
            types.SimpleNamespace(
                device_type="xla", mesh=torch.tensor([0]), mesh_dim_names=("data",)
            ),
            placements=None,
        ).device
        == torch.device(XLA)
    ),
    "spmd.apply_xla_patch_to_nn_linear": lambda: xs.apply_xla_patch_to_nn_linear(nn.Linear(2, 1)),
    "spmd.XLAPatchedLinear": lambda: (
        xs.XLAPatchedLinear.apply(ones(1, 2), ones(3, 2)).shape == (1, 3)
    ),
    "spmd.xla_patched_nn_linear_forward": lambda: (
        xs.xla_patched_nn_linear_forward(nn.Linear(2, 3).to(XLA), ones(1, 2)).shape == (1, 3)
    ),
    "spmd.xla_distribute_module": lambda: callable(xs.xla_distribute_module),
    "spmd.apply_backward_optimization_barrier": barred,
    "spmd.EinsumLinear": lambda: xs.EinsumLinear(2, 1).to(XLA)(ones(1, 2)).shape == (1, 1),
    "fsdp.XlaFullyShardedDataParallel": lambda: (
        fsdp.XlaFullyShardedDataParallel(
            nn.Linear(2, 1).to(XLA),
            reshard_after_forward=True,
            flatten_parameters=False,
            execute_sharding_on_init=True,
            optimization_barrier_in_forward=True,
            optimization_barrier_in_backward=True,
            compute_dtype=None,
            buffer_dtype=None,
            fp32_reduce_scatter=False,
            shard_param_on_dim_0=False,
            pin_layout_in_collective_ops=True,
            coalesce_all_gather_ops=False,
            auto_wrap_policy=None,
            auto_wrapper_callable=None,
            param_init_fn=None,
        )(ones(1, 2)).shape
        == (1, 1)
    ),
    "fsdp.checkpoint_module": lambda: fsdp.checkpoint_module(nn.Linear(2, 1)),
    "fsdp.consolidate_sharded_model_checkpoints": lambda: attempt(
        lambda: fsdp.consolidate_sharded_model_checkpoints(
            "/nothing", ckpt_suffix="*.pth", save_path="", save_model=True
        ),
        FileNotFoundError,
    ),
    "fsdp.wrap.always_wrap_policy": lambda: fsdp.wrap.always_wrap_policy(),
    "fsdp.wrap.size_based_auto_wrap_policy": lambda: (
        not fsdp.wrap.size_based_auto_wrap_policy(
            nn.Linear(1, 1), False, 5, min_num_params=int(1e8)
        )
    ),
    "fsdp.consolidate_sharded_state_dicts": lambda: callable(fsdp.consolidate_sharded_state_dicts),
    "fsdp.wrap.lambda_auto_wrap_policy": lambda: fsdp.wrap.lambda_auto_wrap_policy(
        nn.Linear(1, 1), False, 5, lambda_fn=lambda module: True
    ),
    "fsdp.wrap.transformer_auto_wrap_policy": lambda: fsdp.wrap.transformer_auto_wrap_policy(
        nn.Linear(1, 1), False, 5, transformer_layer_cls={nn.Linear}
    ),
    "fsdp.wrap.recursive_wrap": lambda: (
        fsdp.wrap.recursive_wrap(nn.Linear(2, 1), fsdp.wrap.always_wrap_policy, nn.Sequential)[1]
        == 3
    ),
    "ZeroRedundancyOptimizer": lambda: (
        xdist.ZeroRedundancyOptimizer(
            [nn.Parameter(ones())],
            torch.optim.SGD,
            optimizer_dtype=None,
            grad_clipping=True,
            max_norm=None,
            pin_layout=True,
            sharding_groups=None,
            grad_norm_groups=None,
            lazy_init=False,
            save_master_weights=False,
            lr=0.1,
        ).step()
        is None
    ),
    "xla_backend": lambda: grouped("xla://"),
    "xla_backend pjrt": lambda: grouped("pjrt://"),
}

A5: dict[str, Callable[[], Any]] = {
    "metrics_report": lambda: isinstance(met.metrics_report(), str),
    "short_metrics_report": lambda: isinstance(
        met.short_metrics_report(counter_names=["MarkStep"], metric_names=["ExecuteTime"]), str
    ),
    "counter_names": lambda: (ones() + 1).tolist() and "xla::ones" in met.counter_names(),
    "counter_value": lambda: met.counter_value("nothing") is None,
    # A result may be there before its program's end is counted.
    "metric_names": lambda: (
        (ones() + 1).tolist()
        and xm.wait_device_ops() is None
        and "ExecuteTime" in met.metric_names()
    ),
    "metric_data": lambda: (
        (ones() + 1).tolist()
        and xm.wait_device_ops() is None
        and met.metric_data("ExecuteTime")[0] >= 1
    ),
    "clear_counters": lambda: met.clear_counters() is None,
    "clear_metrics": lambda: met.clear_metrics() is None,
    "clear_all": lambda: met.clear_all() is None and met.counter_names() == [],
    "executed_fallback_ops": lambda: met.executed_fallback_ops() == [],
}

A6: dict[str, Callable[[], Any]] = {
    "amp.autocast": lambda: entered(
        xamp.autocast(XLA, enabled=True, dtype=torch.bfloat16, cache_enabled=True)
    ),
    "torch.autocast": lambda: entered(torch.autocast("xla")),
    "amp.GradScaler": lambda: xamp.GradScaler(init_scale=4.0, use_zero_grad=False).is_enabled(),
    "amp.syncfree.SGD": lambda: xamp.syncfree.SGD([nn.Parameter(ones())], lr=0.1),
    "amp.syncfree.Adam": lambda: xamp.syncfree.Adam([nn.Parameter(ones())]),
    "amp.syncfree.AdamW": lambda: (
        xamp.syncfree.AdamW([nn.Parameter(ones())]).step(
            closure=None, found_inf=torch.zeros(1, device=XLA)
        )
        is None
    ),
    "functions.all_reduce": lambda: xf.all_reduce("sum", ones(), scale=1.0).tolist() == [1, 1],
    "functions.all_gather": lambda: xf.all_gather(ones(), dim=0).tolist() == [1, 1],
    "functions.SyncBatchNorm": lambda: (
        xf.SyncBatchNorm(2, eps=1e-5, momentum=0.1).to(XLA)(ones(3, 2)).shape == (3, 2)
    ),
    "functions.distributed_mm": lambda: (
        xf.distributed_mm(ones(2, 2), ones(2, 2), split=1).sum().item() == 8
    ),
    "xla_env_vars": lambda: (
        (xenv.PJRT_DEVICE, xenv.SAVE_TENSORS_FILE, xenv.XLA_USE_BF16)
        == ("PJRT_DEVICE", "XLA_SAVE_TENSORS_FILE", "XLA_USE_BF16")
    ),
}

A7: dict[str, Callable[[], Any]] = {
    "xla_quantized_matmul.XlaQuantizedLinear": quantized,
    "xla_marker": lambda: (
        xla_marker.serialize_composite_attr({"a": 1})
        and torch.ops.xla.mark_tensor(ones(), "v.op", 0, "0", True, None).tolist() == [1, 1]
    ),
    "torch.ops.xla.dynamo_mark_sharding": lambda: (
        torch.ops.xla.dynamo_mark_sharding(ones(), [0], [1], "('x',)", "('x',)").tolist() == [1, 1]
    ),
    "torch.ops.xla.dynamo_set_buffer_donor_": lambda: (
        torch.ops.xla.dynamo_set_buffer_donor_(ones(), False).tolist() == [1, 1]
    ),
    "plugins.DevicePlugin": lambda: attempt(
        plugins.DevicePlugin().library_path, NotImplementedError
    ),
    "plugins.DevicePlugin methods": lambda: (
        plugins.DevicePlugin().configure_single_process() is None
        and isinstance(plugins.DevicePlugin().configure_multiprocess(0, 1), int)
        and plugins.DevicePlugin().physical_chip_count() >= 0
        and plugins.DevicePlugin().client_create_options() == {}
        and plugins.DevicePlugin().requires_xla_coordinator() is False
    ),
    "plugins.use_dynamic_plugins": lambda: plugins.use_dynamic_plugins() is None,
    "plugins.using_dynamic_plugins": lambda: plugins.using_dynamic_plugins() is True,
    "plugins.register_installed_plugins": lambda: plugins.register_installed_plugins() is None,
    "custom_kernel.flash_attention": lambda: (
        custom_kernel.flash_attention(
            *[ones(1, 1, 2, 2)] * 3,
            causal=False,
            sm_scale=1.0,
            ab=None,
            partition_spec=None,
            mesh=None,
        ).shape
        == (1, 1, 2, 2)
    ),
    "callback.on_ready_event": lambda: callback.on_ready_event(ones()).wait(20),
    "CheckpointManager": lambda: CheckpointManager(
        tempfile.mkdtemp(),
        save_interval=2,
        max_to_keep=0,
        max_pending_async=1,
        num_of_threads=1,
        process_group=None,
        chkpt_on_preemption=False,
    ).should_save(4),
    "CheckpointManager methods": kept_steps,
    "SPMDSavePlanner": planned,
    "prime_optimizer": lambda: prime_optimizer(torch.optim.Adam([nn.Parameter(ones())])),
    "SpmdFullyShardedDataParallel": lambda: (
        SpmdFullyShardedDataParallel(
            nn.Linear(2, 1).to(XLA), mesh=xs.Mesh([0], (1,), ("fsdp",)), shard_output=None
        )(ones(1, 2)).shape
        == (1, 1)
    ),
    "plugins.register_plugin": lambda: (
        plugins.register_plugin("TABLE", plugins.DevicePlugin()) is None
    ),
}

A8: dict[str, Callable[[], Any]] = {
    "SampleGenerator": lambda: len(list(xu.SampleGenerator(data=1, sample_count=3))) == 3,
    "FnDataGenerator": lambda: (
        len(list(xu.FnDataGenerator(lambda x: x + 1, 2, torch.zeros, dims=(3,), count=2))) == 2
    ),
    "getenv_as": lambda: xu.getenv_as("NO_SUCH_VARIABLE", int, defval=3) == 3,
    "check_env_flag": lambda: xu.check_env_flag("NO_SUCH_VARIABLE", default="1") is True,
    "get_free_tcp_ports": lambda: len(set(xu.get_free_tcp_ports(n=3))) == 3,
    "for_each_instance": lambda: xu.for_each_instance([1], lambda v: False, print) is None,
    "for_each_instance_rewrite": lambda: (
        xu.for_each_instance_rewrite([ones()], lambda v: isinstance(v, torch.Tensor), torch.neg)[
            0
        ].tolist()
        == [-1, -1]
    ),
    "timed": lambda: xu.timed(lambda: 3, msg="took ", printfn=lambda text: None) == 3,
    "TimedScope": lambda: entered(xu.TimedScope(msg="took ", printfn=lambda text: None)),
    "DataWrapper": lambda: attempt(xu.DataWrapper().get_tensors, NotImplementedError),
    "parallel_work": lambda: xu.parallel_work(2, lambda a, b: a + b, [1, 2], [3, 4]) == [4, 6],
    "keyd_queue.Queue": lambda: keyd_queue.Queue(maxsize=1024).max_size() == 1024,
    "keyd_queue.KeydQueue": lambda: keyd_queue.KeydQueue(maxsize=1024).max_size() == 1024,
    "AsyncClosureHandler": lambda: AsyncClosureHandler(max_queue_size=100).run_all([]) is None,
    "dlpack": lambda: dlpack.from_dlpack(dlpack.to_dlpack(ones())).tolist() == [1, 1],
    "gcsfs-L": lambda: attempt(lambda: gcsfs.generic_open("gs://x/y"), NotImplementedError),
    "_XLAC._xla_runtime_is_initialized": lambda: (
        ones().tolist() and torch_xla._XLAC._xla_runtime_is_initialized()
    ),
    "_XLAC._xla_increment_counter": lambda: (
        torch_xla._XLAC._xla_increment_counter("mine", 2) is None and met.counter_value("mine") == 2
    ),
    "_internal.tpu": lambda: (
        importlib.import_module("torch_xla._internal.tpu").num_available_devices() >= 0
    ),
    "_internal.tpu.version": lambda: attempt(
        importlib.import_module("torch_xla._internal.tpu").version, RuntimeError
    ),
    "_internal.pjrt": lambda: launched(
        importlib.import_module("torch_xla._internal.pjrt").spawn, nprocs=None
    ),
}

A9_NAMES = [
    "PJRT_DEVICE",
    "PJRT_SELECT_DEFAULT_DEVICE",
    "PJRT_LIBRARY_PATH",
    "TPU_LIBRARY_PATH",
    "XPU_LIBRARY_PATH",
    "NEURON_LIBRARY_PATH",
    "PJRT_DYNAMIC_PLUGINS",
    "XLA_REGISTER_INSTALLED_PLUGINS",
    "CPU_NUM_DEVICES",
    "XLA_USE_BF16",
    "XLA_DOWNCAST_BF16",
    "XLA_USE_FP16",
    "XLA_DOWNCAST_FP16",
    "XLA_USE_32BIT_LONG",
    "XLA_NO_SPECIAL_SCALARS",
    "XLA_FLAGS",
    "XLA_PERSISTENT_CACHE_PATH",
    "XLA_PERSISTENT_CACHE_READ_ONLY",
    "XLA_COMPILATION_CACHE_SIZE",
    "XLA_ENABLE_PARAM_ALIASING",
    "PT_XLA_DEBUG",
    "PT_XLA_DEBUG_LEVEL",
    "PT_XLA_DEBUG_FILE",
    "PT_XLA_DEBUG_MAX_FRAME",
    "XLA_IR_DEBUG",
    "XLA_HLO_DEBUG",
    "XLA_SAVE_TENSORS_FILE",
    "XLA_SAVE_TENSORS_FMT",
    "XLA_METRICS_FILE",
    "XLA_METRICS_SAMPLES",
    "XLA_METRICS_PERCENTILES",
    "LIBTPU_INIT_ARGS",
    "TPU_NUM_DEVICES",
    "XLA_DUMP_FATAL_STACK",
    "XLA_DUMP_HLO_GRAPH",
    "XLA_DUMP_POST_OPTIMIZATIONS",
    "XLA_EXPERIMENTAL",
    "XLA_IR_SHAPE_CACHE_SIZE",
    "XLA_SAVE_HLO_FILE",
    "XLA_USE_EAGER_DEBUG_MODE",
]


# Those that others read, or that have a successor: a page says which.
A9_EXPLAINED = [
    "PJRT_LOCAL_PROCESS_RANK",
    "PJRT_LOCAL_PROCESS_COUNT",
    "PJRT_DIST_SERVICE_ADDR",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "XLA_COORDINATOR_PORT",
    "XLA_USE_SPMD",
    "XLA_AUTO_SPMD",
    "XLA_AUTO_SPMD_MESH",
    "XLA_AUTO_USE_GROUP_SHARDING",
    "CONVERT_SHLO_TO_SHARDY",
    "TF_CPP_MIN_LOG_LEVEL",
    "TF_CPP_VMODULE",
    "TORCH_SHOW_CPP_STACKTRACES",
]


def is_explained(name: str) -> Callable[[], bool]:
    return lambda: f"`{name}`" in EXPLANATIONS


def is_setting(name: str) -> Callable[[], bool]:
    """Environment variables are settings, with a row in the documentation."""
    return lambda: torch_xla._XLAC._get_setting(name) is not None and f"`{name}`" in SETTINGS_PAGE


SETTINGS_PAGE = ROOT.joinpath("docs", "settings.md").read_text()
EXPLANATIONS = ROOT.joinpath("docs", "environment_variables.md").read_text()
A9 = {name: is_setting(name) for name in A9_NAMES} | {
    name: is_explained(name) for name in A9_EXPLAINED
}

ROWS = {
    f"{section}.{name}": call
    for section, rows in {
        "A1": A1, "A2": A2, "A3": A3, "A4": A4, "A5": A5, "A6": A6, "A7": A7, "A8": A8, "A9": A9,
    }.items()
    for name, call in rows.items()
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_name_takes_its_documented_arguments(row):
    assert ROWS[row]()


# Names of the list that are not there, with what they would be for. One that comes leaves it.
MISSING = {
    "utils.cached_dataset.CachedDataset": "removed from torch_xla, too",
    "utils.tf_record_reader": "removed from torch_xla, too",
    "tf_saved_model_integration": "needs TensorFlow",
}


@pytest.mark.parametrize("name", MISSING)
def test_missing_name_is_still_missing(name):
    path = name.split(".")
    found: Any = torch_xla
    for i, part in enumerate(path):
        if not hasattr(found, part):
            try:
                found = importlib.import_module("torch_xla." + ".".join(path[: i + 1]))
            except ImportError:
                return
        else:
            found = getattr(found, part)
    pytest.fail(f"torch_xla.{name} is there: give it a row")
