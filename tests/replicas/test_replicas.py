"""What programs for several replicas call, with one: launching, exchanging, meshes, groups."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from processes import run_in_process

import torch_xla
import torch_xla.core.functions as xf
import torch_xla.core.xla_model as xm
import torch_xla.distributed.spmd as xs
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr


def test_launch_calls_with_the_index():
    seen = []
    for start in (
        lambda: torch_xla.launch(lambda i, *a: seen.append((i, *a)), args=(7,)),
        lambda: torch_xla.launch(lambda i: seen.append(i), debug_single_process=True),
        lambda: xmp.spawn(lambda i, a: seen.append((i, a)), args=("x",), nprocs=1),
    ):
        assert start() is None
    assert seen == [(0, 7), 0, (0, "x")]


def test_launch_passes_errors_on():
    def fail(index):
        raise LookupError("in the replica")

    with pytest.raises(LookupError, match="in the replica"):
        torch_xla.launch(fail)


def test_launch_under_torchrun(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    monkeypatch.setenv("WORLD_SIZE", "1")
    seen = []
    torch_xla.launch(seen.append)
    assert seen == [0]


def test_a_process_for_each_device():
    with pytest.raises(ValueError, match="nprocs must be None"):
        xmp.spawn(print, nprocs=8)
    out = run_in_process("import torch_xla; torch_xla.launch(print)", CPU_NUM_DEVICES="2")
    assert sorted("".join(out.split())) == ["0", "1"]  # a line's end may come after both


def test_no_thread_of_ours_runs_beside_a_fork():
    """It might hold a lock, as the store's did in looking up a name: the replica hung for ever."""
    out = run_in_process(
        """
        import os, torch_xla
        threads = []
        os.register_at_fork(before=lambda: threads.append(len(os.listdir("/proc/self/task"))))
        def run(index): pass
        torch_xla.launch(run, start_method="fork")
        print(threads[1:])  # what imports have started may be about to end at the first
        """,
        CPU_NUM_DEVICES="4",
    )
    assert out == "[1, 1, 1]"


def test_model_wrapper_and_serial_executor(device):
    model = torch.nn.Linear(2, 1)
    assert next(xmp.MpModelWrapper(model).to(device).parameters()).device == device
    assert xmp.MpSerialExecutor().run(lambda: 5) == 5


def test_all_reduce(device):
    x = torch.tensor([1.0, 2.0], device=device)
    total = xm.all_reduce(xm.REDUCE_SUM, x)
    assert total is not x and total.tolist() == [1, 2]
    assert xm.all_reduce(xm.REDUCE_MAX, x, scale=0.5, groups=[[0]]).tolist() == [0.5, 1]
    tensors = [x, x.clone()]
    assert xm.all_reduce(xm.REDUCE_SUM, tensors, scale=2.0) is tensors
    assert x.tolist() == [2, 4]
    with pytest.raises(ValueError, match="must be one of sum"):
        xm.all_reduce("average", x)
    with pytest.raises(ValueError, match="there is one, 0, got"):
        xm.all_reduce(xm.REDUCE_SUM, x, groups=[[0, 1]])
    xm.all_reduce_bucketized_gradients(tensors, scale=0.5)
    assert x.tolist() == [1, 2]


def test_gathers_and_scatters(device):
    x = torch.arange(4.0, device=device).reshape(2, 2)
    out = torch.zeros(2, 2, device=device)
    assert xm.all_gather(x, dim=1).tolist() == x.tolist()
    assert xm.all_gather(x, output=out) is out and out.tolist() == x.tolist()
    assert [t.tolist() for t in xm.all_gather([x, x])] == [x.tolist()] * 2
    scattered = xm.reduce_scatter(xm.REDUCE_SUM, x, 0.5, scatter_dim=0, shard_count=1)
    assert scattered.tolist() == (x * 0.5).tolist()
    with pytest.raises(ValueError, match="shard_count: expected as many parts as replicas, 1"):
        xm.reduce_scatter(xm.REDUCE_SUM, x, 1.0, scatter_dim=0, shard_count=2)
    (piece,) = xm.reduce_scatter_bucketized(xm.REDUCE_SUM, [x], 2.0, 0, 1)
    assert piece.tolist() == (x * 2).tolist()
    assert xm.all_gather_bucketized([x])[0].tolist() == x.tolist()
    assert xm.all_to_all(x, 0, 1, 1).tolist() == x.tolist()
    assert xm.collective_permute(x, [[0, 0]]).tolist() == x.tolist()
    assert xm.collective_permute(x, []).sum().item() == 0
    with pytest.raises(ValueError, match="may be one source"):
        xm.collective_permute(x, [[0, 1]])
    xm.collective_broadcast([x], 0)
    with pytest.raises(ValueError, match="no replica 3"):
        xm.collective_broadcast([x], 3)


def test_buckets_cut_by_size(device):
    calls = []
    tensors = [torch.full((1024, 128), float(i), device=device) for i in range(5)]  # 0.5 MB each

    def double(inputs):
        calls.append(len(inputs))
        return [t * 2 for t in inputs]

    results = xm.CoalescingBuckets(double, tensors, bucket_cap_mb=1)()
    assert calls == [2, 2, 1]
    assert [t[0, 0].item() for t in results] == [0, 2, 4, 6, 8]


def test_meetings_of_replicas(device):
    assert xm.xla_rendezvous(b"x", tag="t") == xm.rendezvous("t", b"x", [0]) == [b"x"]
    data = {"loss": torch.tensor([2.0], device=device), "n": 3}
    reduced = xm.mesh_reduce("t", data, lambda parts: parts[0]["loss"] * parts[0]["n"])
    assert reduced.device.type == "cpu" and reduced.item() == 6
    seen = []
    xm.do_on_ordinals(lambda t: seen.append(t.device.type), (torch.ones(1, device=device),))
    xm.do_on_ordinals(seen.append, ("not here",), ordinals=(1,))
    assert seen == ["cpu"]
    xm.broadcast_master_param(torch.nn.Linear(1, 1).to(device))
    xm.set_replication(device, [device])
    with pytest.raises(NotImplementedError, match="start a process for each"):
        xm.set_replication(device, ["xla:0", "xla:1"])
    assert xm.xla_replication_devices(["xla:0"]) == torch_xla.real_devices()[:1]


def test_exchanges_have_gradients(device):
    x = torch.tensor([1.0, 2.0], device=device, requires_grad=True)
    (xf.all_reduce(xm.REDUCE_SUM, x, scale=3.0) * x).sum().backward()
    assert x.grad.tolist() == [6, 12]
    x.grad = None
    (xf.all_gather(x) ** 2).sum().backward()
    assert x.grad.tolist() == [2, 4]
    with pytest.raises(NotImplementedError, match="not defined"):
        xf.all_reduce(xm.REDUCE_MAX, x).sum().backward()


def test_layers_over_replicas(device):
    norm, want = xf.SyncBatchNorm(3).to(device), torch.nn.BatchNorm2d(3)
    x = torch.randn(4, 3, 2, 2)
    torch.testing.assert_close(norm(x.to(device)).cpu(), want(x))
    w, v = torch.randn(3, 4), torch.randn(4, 2)
    got = xf.distributed_mm(w.to(device), v.to(device), split=2)
    torch.testing.assert_close(got.cpu(), w @ v)


def test_mesh(device):
    mesh = xs.Mesh([0], (1, 1), ("data", "model"))
    assert mesh.size() == 1 and dict(mesh.shape()) == {"data": 1, "model": 1}
    assert mesh.get_axis_name_idx("model") == 1 and mesh.get_axis_name_idx("x") is None
    assert mesh.get_logical_mesh().tolist() == [[0]]
    xs.set_global_mesh(mesh)
    assert xs.get_global_mesh() is mesh == xs.Mesh([0], (1, 1), ("data", "model"))
    assert xs.get_1d_mesh("x").axis_names == ("x",)
    assert xs.HybridMesh(ici_mesh_shape=(1, 1), axis_names=("a", "b")).size() == 1
    for arguments in (([0, 1], (2,)), ([0], (2,)), ([0], (1, 1), ("a", "a"))):
        with pytest.raises(ValueError, match="Mesh"):
            xs.Mesh(*arguments)


def test_sharding_on_a_mesh_of_one(device):
    mesh = xs.Mesh([0], (1, 1), ("data", "model"))
    t = torch.randn(4, 2, device=device)
    assert xs.mark_sharding(t, mesh, ("data", None)).global_tensor is t
    assert xs.sharding_of(t).partition_spec == ("data", None)
    with pytest.raises(ValueError, match="clear_sharding"):
        xs.mark_sharding(t, mesh, (("data", "model"), None))
    xs.mark_sharding(xs.clear_sharding(t), mesh, (("data", "model"), None))
    xs.mark_sharding(xs.clear_sharding(t), mesh, (0, 1))
    assert torch.equal(xs.local_shards(t)[0].data, t.cpu())
    assert xs.sharding_of(xs.clear_sharding(t)) is None
    for bad in (("data",), ("batch", None), ("data", "data"), (2, None)):
        with pytest.raises(ValueError, match=r"mark_sharding|ShardingSpec"):
            xs.mark_sharding(t, mesh, bad)
    with pytest.raises(ValueError, match="expected an xla tensor"):
        xs.mark_sharding(torch.ones(2), mesh, (None,))
    assert xs.ShardingSpec(mesh, ("data", None)).can_apply(t)


class FakeDeviceMesh:
    """What is asked of a DeviceMesh; making a real one starts a process group."""

    device_type, mesh, mesh_dim_names = "xla", torch.tensor([[0]]), ("data", "model")


def test_distributed_tensors_on_a_mesh_of_one(device):
    from torch.distributed.tensor import Partial, Replicate, Shard

    mesh = FakeDeviceMesh()
    t = xs.xla_distribute_tensor(torch.ones(4, 2), mesh, [Replicate(), Shard(0)])
    assert t.device == device and xs.sharding_of(t).partition_spec == (1, None)
    whole = xs.xla_distribute_tensor(xs.clear_sharding(t), mesh)
    assert xs.sharding_of(whole).partition_spec == (None, None)
    with pytest.raises(ValueError, match="can't be placed"):
        xs.xla_distribute_tensor(t, mesh, [Partial(), Replicate()])
    seen = []
    module = xs.xla_distribute_module(
        torch.nn.Linear(2, 1),
        mesh,
        partition_fn=lambda name, m, where: seen.append((name, where)),
        output_fn=lambda m, outputs, where: outputs + 1,
    )
    assert seen == [("", mesh)] and module.weight.device == device
    want = torch.nn.functional.linear(t, module.weight, module.bias) + 1
    assert torch.equal(module(t), want)


def test_spmd_of_one_device_is_the_device():
    out = run_in_process(
        """
        import torch, torch_xla
        import torch_xla.runtime as xr
        xr.use_spmd()
        print(xr.is_spmd(), torch_xla.device(), torch.ones(2, device="xla").sum().item())
        try:
            torch_xla.launch(print)
        except RuntimeError as error:
            print(error)
        """
    )
    assert out.startswith("True xla:0 2.0") and "under SPMD" in out
    assert not xr.is_spmd()


def test_process_group_of_one(device):
    import torch_xla.distributed.xla_backend  # noqa: F401

    dist.init_process_group("xla", init_method="xla://")
    try:
        assert dist.get_world_size() == 1 and dist.get_rank() == 0
        x = torch.tensor([1.0, 2.0], device=device)
        dist.all_reduce(x)
        dist.broadcast(x, 0)
        dist.reduce(x, 0)
        dist.barrier()
        assert x.tolist() == [1, 2]
        gathered = [torch.zeros(2, device=device)]
        dist.all_gather(gathered, x)
        assert gathered[0].tolist() == [1, 2]
        out = torch.zeros(2, device=device)
        for exchange in (
            lambda: dist.all_gather_single(out, x),
            lambda: dist.reduce_scatter_single(out, x),
            lambda: dist.reduce_scatter(out, [x]),
            lambda: dist.scatter(out, [x], 0),
            lambda: dist.all_to_all_single(out, x),
            lambda: dist.all_to_all([out], [x]),
        ):
            out.zero_()
            exchange()
            assert out.tolist() == [1, 2]
        dist.gather(x, gathered, 0)
        model = torch.nn.parallel.DistributedDataParallel(
            torch.nn.Linear(2, 1).to(device), gradient_as_bucket_view=True
        )
        model(x).sum().backward()
        assert model.module.weight.grad.tolist() == [[1, 2]]
    finally:
        dist.destroy_process_group()
