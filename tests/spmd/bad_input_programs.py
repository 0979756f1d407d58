"""Run by test_bad_input.py with four devices: what makes no sense under SPMD, each with the error
that names the tensor, the mesh and the axis.

Prints a dictionary: by the case's name what was raised, as "ValueError: ...".
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import torch_xla
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch_xla.distributed.spmd import debugging
from torch_xla.experimental.distributed_checkpoint import CheckpointManager
from torch_xla.experimental.spmd_fully_sharded_data_parallel import SpmdFullyShardedDataParallel

XLA = "xla:0"
MESH = "Mesh({'data': 2, 'model': 2})"


def mesh() -> xs.Mesh:
    return xs.Mesh(range(4), (2, 2), ("data", "model"))


def tensor(*sizes: int) -> torch.Tensor:
    return torch.ones(*(sizes or (4, 6)), device=XLA)


def mark(spec: Any, *sizes: int, on: Any = None) -> Any:
    return xs.mark_sharding(tensor(*sizes), mesh() if on is None else on, spec)


def twice() -> None:
    t = mark(("data", None))
    xs.mark_sharding(t, mesh(), (None, "model"))


def after_a_program_and_a_read() -> None:
    t = mark(("data", None))
    torch_xla.sync()
    t.cpu()
    xs.mark_sharding(t.global_tensor, mesh(), ("model", None))


def shards_of_another_sharding() -> None:
    rows, columns = mark(("data", None)), mark((None, "model"))
    rows.load_local_shards_(columns.local_shards)


def too_few_shards() -> None:
    rows = mark(("data", None))
    rows.load_local_shards_(rows.local_shards[:1])


def batch_of_another_rank() -> None:
    split = {"x": xs.ShardingSpec(mesh(), ("data", None)), "n": None}
    batches = [{"x": torch.ones(4), "n": torch.ones(1)}]
    list(pl.MpDeviceLoader(batches, XLA, input_sharding=split))


def batch_with_other_keys() -> None:
    split = {"y": xs.ShardingSpec(mesh(), ("data", None))}
    list(pl.MpDeviceLoader([{"x": torch.ones(4, 4)}], XLA, input_sharding=split))


def checkpoint_of_another_model() -> None:
    with tempfile.TemporaryDirectory() as folder:
        manager = CheckpointManager(folder, save_interval=1)
        manager.save(1, {"model": nn.Linear(4, 4).to(XLA).state_dict()})
        other = nn.Linear(8, 4).to(XLA)
        xs.mark_sharding(other.weight, mesh(), ("data", None))
        manager.restore(1, {"model": other.state_dict()})


def manual_without_equal_parts() -> None:
    xs.enable_manual_sharding(tensor(5, 6), ("data", None), mesh=mesh())


def manual_of_another_shape() -> None:
    part = xs.enable_manual_sharding(tensor(), ("data", None), mesh=mesh())
    xs.disable_manual_sharding(part, ("data", None), (8, 6), mesh=mesh())


def mark_of_a_manual_part() -> None:
    part = xs.enable_manual_sharding(tensor(), ("data", None), mesh=mesh())
    xs.mark_sharding(part, mesh(), (None, "model"))


def mark_in_a_compiled_function() -> None:
    annotation = ([0, 1, 2, 3], [2, 2], "('data', 'model')", "('rows', None)")
    torch.ops.xla.dynamo_mark_sharding(tensor(), *annotation)


def shards_that_are_tensors() -> None:
    rows = mark(("data", None))
    rows.load_local_shards_([shard.data for shard in rows.local_shards])


def spread(module: Any) -> None:
    SpmdFullyShardedDataParallel(module, mesh=xs.Mesh(range(4), (4,), ("fsdp",)))


LIES = "a tensor of shape (4, 6) can't lie by"
# By name: the error's class, all its text or the parts of it, and the call.
CASES: dict[str, tuple[type[Exception], Any, Callable[[], Any]]] = {
    "an axis that does not exist": (
        ValueError,
        f"mark_sharding: {LIES} ('rows', None) on {MESH}: the mesh has no axis 'rows'",
        lambda: mark(("rows", None)),
    ),
    "an axis by a number too large": (
        ValueError,
        f"mark_sharding: {LIES} (None, 2) on {MESH}: the mesh has no axis 2",
        lambda: mark((None, 2)),
    ),
    "an axis that is no axis": (
        ValueError,
        f"mark_sharding: {LIES} (None, True) on {MESH}: the mesh has no axis True",
        lambda: mark((None, True)),
    ),
    "an axis used twice": (
        ValueError,
        f"mark_sharding: {LIES} ('data', ('model', 'data')) on {MESH}: each axis may split one "
        "dimension once, and 'data' is there again",
        lambda: mark(("data", ("model", "data"))),
    ),
    "an axis by its name and its number": (
        ValueError,
        f"mark_sharding: {LIES} ('data', 0) on {MESH}: each axis may split one dimension once, "
        "and 0 is there again",
        lambda: mark(("data", 0)),
    ),
    "a spec longer than the rank": (
        ValueError,
        f"mark_sharding: {LIES} ('data', None, None) on {MESH}: expected an entry for each of its "
        "2 dimensions",
        lambda: mark(("data", None, None)),
    ),
    "a spec shorter than the rank": (
        ValueError,
        f"annotate_custom_sharding: {LIES} ('data',) on {MESH}: expected an entry for each of its "
        "2 dimensions",
        lambda: xs.annotate_custom_sharding(tensor(), mesh(), ("data",)),
    ),
    "a spec that is a name": (
        TypeError,
        "mark_sharding: partition_spec must be a tuple with an entry for each dimension of the "
        "tensor, got 'data'",
        lambda: mark("data"),
    ),
    "a mesh that is torch's": (
        TypeError,
        ["mark_sharding: mesh must be a torch_xla.distributed.spmd.Mesh", "convert_to_xla_mesh"],
        lambda: mark(("data", None), on=init_device_mesh("xla", (4,))),
    ),
    "a mesh of fewer devices": (
        ValueError,
        "Mesh: expected each of the 4 devices once, got the numbers [0, 1] for a grid of (2, 1)",
        lambda: xs.Mesh([0, 1], (2, 1)),
    ),
    "a mesh of more devices": (
        ValueError,
        ["Mesh: expected each of the 4 devices once", "for a grid of (8,)"],
        lambda: xs.Mesh(range(8), (8,)),
    ),
    "a mesh with a device twice": (
        ValueError,
        ["Mesh: expected each of the 4 devices once, got the numbers [0, 1, 1, 2]"],
        lambda: xs.Mesh([0, 1, 1, 2], (2, 2)),
    ),
    "a grid that the devices do not fill": (
        ValueError,
        "Mesh: 4 devices do not fill a grid of (2, 3)",
        lambda: xs.Mesh(range(4), (2, 3)),
    ),
    "a grid of negative sizes": (
        ValueError,
        "Mesh: 4 devices do not fill a grid of (-2, -2)",
        lambda: xs.Mesh(range(4), (-2, -2)),
    ),
    "two axes of one name": (
        ValueError,
        "Mesh: expected a name of its own for each dimension of (2, 2), got ('a', 'a')",
        lambda: xs.Mesh(range(4), (2, 2), ("a", "a")),
    ),
    "names that are numbers": (
        ValueError,
        "Mesh: expected a name of its own for each dimension of (2, 2), got (0, 1)",
        lambda: xs.Mesh(range(4), (2, 2), (0, 1)),  # type: ignore[arg-type]
    ),
    "a hybrid mesh of two ranks": (
        ValueError,
        "HybridMesh: both shapes must have one rank, got (2, 2) and (1,)",
        lambda: xs.HybridMesh(ici_mesh_shape=(2, 2), dcn_mesh_shape=(1,)),
    ),
    "numbers of devices that are none": (
        TypeError,
        "Mesh: device_ids must be the numbers of devices, got [0.0, 1.0, 2.0, 3.0]",
        lambda: xs.Mesh([0.0, 1.0, 2.0, 3.0], (4,)),
    ),
    "no devices": (
        TypeError,
        "Mesh: device_ids must be the numbers of devices, got None",
        lambda: xs.Mesh(None, (4,)),
    ),
    "a grid that is a number": (
        TypeError,
        "Mesh: mesh_shape must be a tuple of sizes, got 4",
        lambda: xs.Mesh(range(4), 4),  # type: ignore[arg-type]
    ),
    "a grid of halves": (
        TypeError,
        "Mesh: mesh_shape must be a tuple of sizes, got (2.0, 2.0)",
        lambda: xs.Mesh(range(4), (2.0, 2.0)),  # type: ignore[arg-type]
    ),
    "names in one text": (
        TypeError,
        "Mesh: axis_names must be a tuple of names, got 'ab'",
        lambda: xs.Mesh(range(4), (2, 2), "ab"),
    ),
    "a hybrid mesh of a number": (
        TypeError,
        "HybridMesh: ici_mesh_shape must be a tuple of sizes, got 4",
        lambda: xs.HybridMesh(ici_mesh_shape=4),  # type: ignore[arg-type]
    ),
    "a global mesh that is a text": (
        TypeError,
        "set_global_mesh: expected a Mesh, got 'mesh'",
        lambda: xs.set_global_mesh("mesh"),  # type: ignore[arg-type]
    ),
    "a way of splitting that is a text": (
        TypeError,
        "use_spmd: auto must be a bool, got 'yes'",
        lambda: xr.use_spmd("yes"),  # type: ignore[arg-type]
    ),
    "launch": (
        RuntimeError,
        "launch: under SPMD one process drives all devices; call fn(0) instead",
        lambda: torch_xla.launch(print),
    ),
    "another device": (
        RuntimeError,
        ["device index 1 does not exist", "xla:0"],
        lambda: torch.ones(1, device="xla:1"),
    ),
    "a tensor on the CPU": (
        ValueError,
        f"mark_sharding: {LIES} ('data', None) on {MESH}: expected an xla tensor, got one on cpu; "
        "move it to 'xla' first",
        lambda: xs.mark_sharding(torch.ones(4, 6), mesh(), ("data", None)),
    ),
    "a tensor on the CPU within a computation": (
        ValueError,
        ["mark_sharding_with_gradients: a tensor of shape (2,)", "got one on cpu"],
        lambda: xs.mark_sharding_with_gradients(torch.ones(2), mesh(), ("data",)),
    ),
    "no tensor": (
        TypeError,
        "mark_sharding: expected an xla tensor, got [1.0]",
        lambda: xs.mark_sharding([1.0], mesh(), (None,)),  # type: ignore[arg-type]
    ),
    "no tensor within a computation": (
        TypeError,
        "mark_sharding_with_gradients: expected an xla tensor, got 3",
        lambda: xs.mark_sharding_with_gradients(3, mesh(), ("data",)),  # type: ignore[arg-type]
    ),
    "no tensor to clear": (
        TypeError,
        "clear_sharding: expected an xla tensor, got 3",
        lambda: xs.clear_sharding(3),  # type: ignore[arg-type]
    ),
    "no tensor to lie alike": (
        TypeError,
        "shard_as: expected an xla tensor, got 3",
        lambda: xs.shard_as(3, tensor()),  # type: ignore[arg-type]
    ),
    "tensors of two shapes": (
        ValueError,
        "shard_as: expected tensors of one shape, got (2, 2) and (3, 3)",
        lambda: xs.shard_as(tensor(2, 2), tensor(3, 3)),
    ),
    "no tensor with shards": (
        TypeError,
        "local_shards: expected an xla tensor, got 3",
        lambda: xs.local_shards(3),  # type: ignore[arg-type]
    ),
    "no tensor with a sharding": (
        TypeError,
        "sharding_of: expected an xla tensor, got 3",
        lambda: xs.sharding_text(3),  # type: ignore[arg-type]
    ),
    "no tensor that knows its shards": (
        TypeError,
        "XLAShardedTensor: expected an xla tensor, got [1.0]",
        lambda: xs.XLAShardedTensor([1.0]),  # type: ignore[arg-type]
    ),
    "a sharded tensor's spec without a mesh": (
        ValueError,
        "XLAShardedTensor: expected both a mesh and a partition_spec, or neither, got None and "
        "('data', None)",
        lambda: xs.XLAShardedTensor(tensor(), None, ("data", None)),
    ),
    "a sharded tensor's mesh without a spec": (
        ValueError,
        f"XLAShardedTensor: expected both a mesh and a partition_spec, or neither, got {MESH} and "
        "None",
        lambda: xs.XLAShardedTensor(tensor(), mesh()),
    ),
    "no tensor in a manual region": (
        TypeError,
        "enable_manual_sharding: expected an xla tensor, got [1]",
        lambda: xs.enable_manual_sharding([1], ("data",), mesh=mesh()),  # type: ignore[arg-type]
    ),
    "no tensor to distribute": (
        TypeError,
        "distribute_tensor: expected an xla tensor, got 3",
        lambda: xs.xla_distribute_tensor(3, init_device_mesh("xla", (4,))),  # type: ignore[arg-type]
    ),
    "a tensor to distribute on a mesh of another kind": (
        TypeError,
        f"expected a DeviceMesh of xla devices, got {MESH}",
        lambda: xs.xla_distribute_tensor(tensor(), mesh(), []),
    ),
    "a drawing of a tensor on the CPU": (
        ValueError,
        "visualize_tensor_sharding: expected an xla tensor, got one of shape (2,) on cpu",
        lambda: debugging.visualize_tensor_sharding(torch.ones(2)),
    ),
    "a drawing of no text": (
        TypeError,
        "visualize_sharding: sharding must be a text as XLA prints it, got 3",
        lambda: debugging.visualize_sharding(3),  # type: ignore[arg-type]
    ),
    "two specs": (
        ValueError,
        f"mark_sharding: {LIES} (None, 'model') on {MESH}: of this one was said that it lies by "
        f"('data', None) on {MESH}; clear_sharding(t) first, or annotate_custom_sharding",
        twice,
    ),
    "two specs of a tensor that was read": (
        ValueError,
        [f"{LIES} ('model', None)", "it lies by ('data', None)", "clear_sharding(t) first"],
        after_a_program_and_a_read,
    ),
    "host values of another sharding": (
        ValueError,
        "load_local_shards_: a tensor of shape (4, 6) lies by ('data', None) on "
        f"{MESH}: expected a shard of shape (2, 6) for device 0, got (4, 3)",
        shards_of_another_sharding,
    ),
    "too few host values": (
        ValueError,
        ["load_local_shards_: a tensor of shape (4, 6) lies by", "expected 4 shards, got 1"],
        too_few_shards,
    ),
    "host values that are tensors": (
        TypeError,
        ["load_local_shards_: a tensor of shape (4, 6) lies by", "expected an XLAShard", "tensor("],
        shards_that_are_tensors,
    ),
    "a batch of another rank": (
        ValueError,
        f"input_sharding['x']: a tensor of shape (4,) can't lie by ('data', None) on {MESH}: "
        "expected an entry for each of its 1 dimensions",
        batch_of_another_rank,
    ),
    "a batch with other keys": (
        ValueError,
        "input_sharding is for batches with the keys ['y'], got ['x']",
        batch_with_other_keys,
    ),
    "a loader's spec that does not fit its mesh": (
        ValueError,
        f"ShardingSpec: a tensor can't lie by ('rows',) on {MESH}: the mesh has no axis 'rows'",
        lambda: xs.ShardingSpec(mesh(), ("rows",)),
    ),
    "a loader's spec with hosts that are a text": (
        TypeError,
        "ShardingSpec: minibatch must be a bool, got 'yes'",
        lambda: xs.ShardingSpec(mesh(), ("data",), minibatch="yes"),  # type: ignore[arg-type]
    ),
    "a loader's sharding that is none": (
        TypeError,
        ["input_sharding must be a ShardingSpec, or a dict of them, got ('data', None)"],
        lambda: list(pl.MpDeviceLoader([torch.ones(4)], XLA, input_sharding=("data", None))),
    ),
    "a checkpoint of another model": (
        ValueError,
        ["CheckpointManager.restore: step 1", "model.weight", "[4, 8]", "[4, 4]"],
        checkpoint_of_another_model,
    ),
    "a manual region without equal parts": (
        ValueError,
        f"enable_manual_sharding: a tensor of shape (5, 6) can't lie by ('data', None) on {MESH}: "
        "expected dimension 0 to have 2 equal parts along 'data'",
        manual_without_equal_parts,
    ),
    "a manual region of another shape": (
        ValueError,
        f"disable_manual_sharding: a tensor of shape (8, 6) can't lie by ('data', None) on {MESH}: "
        "expected (4, 6), which is each device's part of it, got (2, 6)",
        manual_of_another_shape,
    ),
    "another spec of one device's part": (
        ValueError,
        ["a tensor of shape (2, 6) can't lie by (None, 'model')", "it is a part of a tensor"],
        mark_of_a_manual_part,
    ),
    "a manual region without a mesh": (
        ValueError,
        "enable_manual_sharding: there is no mesh; pass one, or set_global_mesh",
        lambda: xs.enable_manual_sharding(tensor(), ("data", None)),
    ),
    "an annotation within a compiled function": (
        ValueError,
        f"dynamo_mark_sharding: {LIES} ('rows', None) on {MESH}: the mesh has no axis 'rows'",
        mark_in_a_compiled_function,
    ),
    "a wrapper's mesh without its axis": (
        ValueError,
        f"SpmdFullyShardedDataParallel: expected a mesh with an axis named 'fsdp', got {MESH}",
        lambda: SpmdFullyShardedDataParallel(nn.Linear(2, 2), mesh=mesh()),
    ),
    "a wrapper of no module": (
        TypeError,
        "SpmdFullyShardedDataParallel: expected a module, got 3",
        lambda: spread(3),
    ),
    "a wrapper of a module on the CPU": (
        ValueError,
        "SpmdFullyShardedDataParallel: expected a module on an xla device, its parameter weight is "
        "on cpu; move it first",
        lambda: spread(nn.Linear(2, 2)),
    ),
    "linear layers of no module": (
        TypeError,
        "apply_xla_patch_to_nn_linear: expected a module, got 3",
        lambda: xs.apply_xla_patch_to_nn_linear(3),  # type: ignore[arg-type]
    ),
}  # fmt: skip


def raised_by(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def main() -> None:
    said = {}
    try:
        xs.get_1d_mesh("data")
    except RuntimeError as error:
        said["a mesh before use_spmd"] = str(error)
    xr.use_spmd()
    said.update({name: raised_by(call) for name, (_, _, call) in CASES.items()})
    print(json.dumps(said))


if __name__ == "__main__":
    main()
