"""What names do that programs of torch_xla 2.9 import and this package has for them alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
from processes import run_in_process
from torch import nn

import torch_xla
import torch_xla.core.xla_env_vars as xenv
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.utils.utils as xu
from torch_xla import _XLAC, stablehlo
from torch_xla._internal import pjrt
from torch_xla.amp.syncfree import _functional as syncfree
from torch_xla.debug import frame_parser_util, metrics, metrics_compare_utils, model_comparator
from torch_xla.distributed.fsdp import (
    XlaFullyShardedDataParallel,
    xla_fully_sharded_data_parallel as fsdp,
)
from torch_xla.distributed.zero_redundancy_optimizer import ZeroRedundancyOptimizer
from torch_xla.experimental import custom_kernel, quantized
from torch_xla.utils import closures, keyd_queue, serialization


def data(*sizes):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(0))


def test_small_things_of_utils(capsys):
    assert xu.as_list((1, 2)) == [1, 2] and xu.as_list("ab") == ["ab"]
    before = [1]
    assert xu.list_copy_append(before, 2) == [1, 2] and before == [1]
    assert xu.flatten_nested_tuple((1, (2, [3]), ())) == (1, 2, 3)
    assert xu.shape([[1, 2, 3], [4, 5, 6]]) == (2, 3) == xu.shape(torch.ones(2, 3))
    xu.get_print_fn(debug=False)("silent")
    xu.get_print_fn(debug=True)("told")
    xu.null_print("silent", file=sys.stderr)
    calls = []
    lazy = xu.LazyProperty(lambda: calls.append(1) or 5)
    assert not calls and lazy.value == lazy.value == 5 and calls == [1]
    cleaner = xu.Cleaner(lambda: calls.append(2))
    del cleaner
    assert calls == [1, 2]
    with xu.TmpFolder() as folder:
        assert os.path.isdir(folder)
    assert not os.path.exists(folder)
    told = []
    with xu.TimedScope("t ", printfn=told.append) as scope:
        scope.set_error("late")
    assert told[0].startswith("t ") and told[0].endswith("(late)")
    assert capsys.readouterr() == ("", "told\n")


def test_closures_run_at_once_or_in_a_thread():
    seen = []
    closures.ClosureHandler().run_all([lambda: seen.append(1), lambda: seen.append(2)])
    assert seen == [1, 2]
    handler = closures.AsyncClosureHandler(max_queue_size=2)
    assert isinstance(handler, closures.ClosureHandler)
    handler.start_event_loop()
    handler.run_all([lambda: seen.append(3)])
    assert seen == [1, 2, 3]


def test_queues_end():
    by_key = keyd_queue.KeydQueue(maxsize=2)
    assert isinstance(by_key, keyd_queue.QueueBase) and by_key.put("a", 1)
    by_key.close_write()
    assert not by_key.put("b", 2) and by_key.get("a") == 1 and by_key.get("b") is None
    with pytest.raises(ValueError, match="KeydQueue: maxsize must be positive"):
        keyd_queue.KeydQueue(0)


def test_metadata_of_programs_as_json():
    where = stablehlo.InputLocation.parameter("w")
    signature = stablehlo.VariableSignature([2, 3], "float32", [])
    text = json.dumps([where, signature], cls=stablehlo.StableHLOJSONSerializer)
    assert json.loads(text, object_hook=stablehlo.stablehlo_obj_hook) == [where, signature]
    assert stablehlo.stablehlo_obj_hook({"other": 1}) == {"other": 1}
    with pytest.raises(TypeError, match="not JSON serializable"):
        json.dumps(object(), cls=stablehlo.StableHLOJSONSerializer)


def test_frames_that_launched_graphs_are_counted(tmp_path, capsys):
    path = tmp_path / "graphs"
    run_in_process(
        """
        import torch, torch_xla
        x = torch.ones(3, device="xla")
        for _ in range(3):
            x = x + 1
            torch_xla.sync()
        print(x.sum().item())
        """,
        XLA_SAVE_TENSORS_FILE=str(path),
    )
    report = frame_parser_util.process_frames(f"{path}.0")
    assert capsys.readouterr().out == report
    stacks = report.split(" graphs:\n")
    assert stacks[0] == "3" and report.count(" graphs:") == 2
    assert "sync (" in stacks[1] or "<module> (" in stacks[1]
    frame = frame_parser_util.parse_frame_content("  f (/a b/c.py:7)")
    assert (frame.function, frame.file, frame.line) == ("f", "/a b/c.py", 7)
    assert frame_parser_util.parse_frame_content("Roots: 1") is None


@pytest.mark.parametrize("found_inf", [0.0, 1.0])
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_functional_steps_are_those_of_the_optimizers(optimizer, found_inf):
    start, grads = [data(3), data(2, 2)], [data(3) * 2, data(2, 2) + 1]
    weights = [nn.Parameter(t.clone()) for t in start]
    shared = {"lr": 0.1, "weight_decay": 0.01, "maximize": False}
    make = {
        "adam": lambda: torch.optim.Adam(weights, **shared),
        "adamw": lambda: torch.optim.AdamW(weights, **shared),
        "sgd": lambda: torch.optim.SGD(weights, momentum=0.9, dampening=0.1, **shared),
    }[optimizer]()
    ours = [t.to("xla") for t in start]
    given = [g.to("xla") for g in grads]
    steps = [torch.zeros((), device="xla") for _ in ours]
    first, second = ([torch.zeros_like(t) for t in ours] for _ in range(2))
    inf = torch.tensor(found_inf, device="xla")
    for _ in range(3):
        for weight, grad in zip(weights, grads, strict=True):
            weight.grad = grad.clone()
        if not found_inf:
            make.step()
        if optimizer == "sgd":
            syncfree.sgd_step(
                inf, steps, ours, given, first, momentum=0.9, dampening=0.1, nesterov=False,
                **shared,
            )  # fmt: skip
        else:
            syncfree.adam_step(
                inf, steps, ours, given, first, second, [], amsgrad=False, beta1=0.9, beta2=0.999,
                eps=1e-8, use_adamw=optimizer == "adamw", **shared,
            )  # fmt: skip
    for weight, mine in zip(weights, ours, strict=True):
        torch.testing.assert_close(mine.cpu(), weight.detach())
    assert [step.item() for step in steps] == [0.0 if found_inf else 3.0] * 2


def test_grouped_products_and_their_gradients():
    lhs, rhs = data(6, 4), data(2, 4, 3)
    sizes = torch.tensor([2, 4])
    want = torch.cat([lhs[:2] @ rhs[0], lhs[2:] @ rhs[1]])
    a, b, n = (t.to("xla") for t in (lhs, rhs, sizes))
    product = custom_kernel.gmm(a, b.mT.contiguous(), n, group_offset=None, transpose_rhs=True)
    torch.testing.assert_close(product.cpu(), want, rtol=1e-4, atol=1e-4)
    a.requires_grad_()
    b.requires_grad_()
    lhs.requires_grad_()
    rhs.requires_grad_()
    custom_kernel.GMM.apply(a, b, n).sum().backward()
    torch.cat([lhs[:2] @ rhs[0], lhs[2:] @ rhs[1]]).sum().backward()
    torch.testing.assert_close(a.grad.cpu(), lhs.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(b.grad.cpu(), rhs.grad, rtol=1e-4, atol=1e-4)
    with pytest.raises(NotImplementedError, match="gmm: a group_offset is for groups"):
        custom_kernel.gmm(a, b, n, group_offset=1)
    with pytest.raises(NotImplementedError, match="all 2 groups are here"):
        custom_kernel.tgmm(a.t(), a, n, num_actual_groups=1)


def test_what_surrounds_kernels():
    repeats = torch.tensor([2, 0, 3])
    got = custom_kernel.repeat_with_fixed_output_size(
        torch.tensor([5, 6, 7], device="xla"), repeats.to("xla"), 5
    )
    assert got.tolist() == [5, 5, 7, 7, 7]
    assert custom_kernel.safe_empty_like(None) is None
    assert custom_kernel.generate_ctx_need_grad(torch.ones(1).requires_grad_(), 1) == [True, False]
    assert custom_kernel.FlashAttention.DEFAULT_BLOCK_SIZES["block_q"] == 512
    jnp = pytest.importorskip("jax.numpy")
    assert custom_kernel.convert_torch_dtype_to_jax(torch.bfloat16) == jnp.bfloat16
    struct = custom_kernel.to_jax_shape_dtype_struct(torch.ones(2, 3))
    assert struct.shape == (2, 3) and struct.dtype == jnp.float32


def test_quantized_numbers():
    x = data(2, 3)
    arguments = (0.1, 3, -128, 127, torch.int8)
    want = (x / 0.1).round().add(3).clamp(-128, 127).to(torch.int8)
    got = quantized.xla_quantize_per_tensor(x.to("xla"), *arguments)
    assert torch.equal(got.cpu(), want)
    back = quantized.xla_dequantize_per_tensor(got, *arguments)
    torch.testing.assert_close(back.cpu(), (want.float() - 3) * 0.1)
    scales, zeros = torch.tensor([0.1, 0.2]).to("xla"), torch.tensor([1, 2]).to("xla")
    rest = (scales, zeros, 0, -128, 127, torch.int8)
    per_channel = quantized.xla_quantize_per_channel(x.to("xla"), *rest)
    back = quantized.xla_dequantize_per_channel(per_channel, *rest)
    torch.testing.assert_close(back.cpu(), x, atol=0.11, rtol=0)


def test_reports_and_files_that_tools_compare(tmp_path):
    torch.ones(2).to("xla").tolist()
    report = metrics.metrics_report()
    texts = metrics_compare_utils.parse_metrics_report(report, dehumanize=False)
    assert texts["TransferFromDeviceTime__TotalSamples"] == "1"
    assert texts["InboundData__Accumulator"] == "8.00B"
    first, second = tmp_path / "a", tmp_path / "b"
    torch.save(torch.zeros(3), first)
    torch.save(torch.tensor([0.0, 1.0, 0.0]), second)
    assert model_comparator.tensor_file_compare(first, first) == ""
    assert "[1]: 0.0 and 1.0" in model_comparator.tensor_file_compare(first, second)
    serialization.save([torch.ones(2)], tmp_path / "c")
    folder = serialization._get_tensors_folder(tmp_path / "c")
    assert os.path.exists(serialization._get_tensor_file(folder, 0))


def test_bindings_that_programs_call():
    assert _XLAC._xla_get_default_device() == "xla:0"
    _XLAC._init_computation_client()
    assert _XLAC._xla_device_kind("xla:0") == xm.xla_device_kind()
    assert _XLAC._xla_computation_cache_is_initialized()
    size = _XLAC._get_xla_tensor_dimension_size(torch.ones(2, 3, device="xla"), 1)
    assert size.item() == 3 and size.dtype == torch.int32
    assert not _XLAC._get_ir_debug()
    _XLAC._set_ir_debug(True)
    try:
        assert _XLAC._get_ir_debug()
    finally:
        _XLAC._set_ir_debug(False)
    assert xenv.HOST_ORDINAL == "XRT_HOST_ORDINAL" and xenv.LOCAL_RANK == "LOCAL_RANK"
    xm.XLA_LIB.define("name_of_a_test(Tensor x) -> Tensor")
    xm.XLA_LIB.impl("name_of_a_test", lambda x: x * 2, "CompositeImplicitAutograd")
    assert torch.ops.xla.name_of_a_test(torch.ones(1, device="xla")).item() == 2


def test_pinned_memory_is_not_needed():
    with pytest.raises(NotImplementedError, match="xla has no pinned memory of the host"):
        torch.ones(2).pin_memory("xla")
    code = """
        import warnings
        warnings.simplefilter("error")
        import torch, torch_xla
        from torch.utils.data import DataLoader
        print([x.tolist() for x in DataLoader(torch.arange(4.0), batch_size=2, pin_memory=True)])
        """
    assert run_in_process(code) == "[[0.0, 1.0], [2.0, 3.0]]"


def test_what_is_sharded_says_how():
    mesh = xs.get_1d_mesh("x")
    spec = xs.ShardingSpec(mesh, ("x", None))
    t = torch.zeros(2, 3, device="xla")
    spec.apply(t)
    assert xs.sharding_text(t) == spec.xla_spec(t) and spec.xla_spec(torch.zeros(2)) is None
    wrapped = xs.wrap_as_sharded_tensor(torch.ones(2, device="xla"), (1,), (0,))
    assert wrapped.partition_spec == (0,) and xs.unwrap_sharded_tensor(wrapped).tolist() == [1, 1]
    assert wrapped.local_shards[0].unpadded_data.tolist() == [1, 1]
    from torch.distributed.tensor import Replicate, Shard

    assert wrapped.redistribute(mesh, [Replicate()]).partition_spec == (None,)
    assert wrapped.redistribute(mesh, [Shard(0)], async_op=True).partition_spec == (0,)
    x = torch.ones(2, device="xla").requires_grad_()
    marked = xs.MarkShardingFunction.apply(x, mesh, (0,))
    assert xs.sharding_of(marked).partition_spec == (0,) and xs.sharding_of(x) is None
    marked.sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_loaders_and_buckets_by_hand():
    loader = pl.ParallelLoader([torch.ones(2)], ["xla:0"], batches_per_execution=2)
    assert loader.batches_per_execution == 2
    (batch,) = loader.send_cpu_data_to_device([{"x": torch.ones(2)}], "xla:0")
    assert batch["x"].device.type == "xla"
    loader.close()
    tensors = [torch.full((300_000,), float(i)) for i in range(3)]
    handed = []
    buckets = xm.CoalescingBuckets(
        lambda ts: handed.append(len(ts)) or ts, tensors, bucket_cap_mb=3
    )
    for i, tensor in enumerate(tensors):
        buckets.add(tensor, i)
    buckets.flush()
    assert handed == [2, 1]
    assert len(buckets()) == 6


def test_wrappers_tell_of_their_parameters():
    module = XlaFullyShardedDataParallel(nn.Linear(2, 2).to("xla"))
    assert module.params_with_grad == []
    module(torch.ones(1, 2, device="xla")).sum().backward()
    assert len(module.params_with_grad) == 2
    names = [name for name, _ in module.get_original_names_and_sharded_parameters()]
    assert names == list(module.state_dict())
    nested = {"a": [torch.ones(1)], "b": 2}
    assert fsdp.apply_to_tensors(lambda t: t + 1, nested)["a"][0].item() == 2
    assert len(fsdp.collect_tensors(nested)) == 1
    zero = ZeroRedundancyOptimizer(module.parameters(), torch.optim.SGD, lr=0.5, lazy_init=True)
    zero.sharding_groups = None
    zero.init_zero()
    assert zero.sharding_groups is None and zero.get_shape_info()[0] == (2, 2)
    before = module.module.weight.tolist()
    zero.allgather_weights_and_update_full_parameter()
    assert module.module.weight.tolist() == before
    with pytest.raises(RuntimeError, match="before init_zero"):
        zero.sharding_groups = [[0]]


def test_results_of_replicas_come_back():
    assert pjrt.run_multiprocess(divmod, 7, 2) == {0: (3, 1)}
    seen = []
    pjrt.spawn(lambda index, x: seen.append(index + x), None, "spawn", (5,))
    assert seen == [5]


def test_commands_of_old_scripts(tmp_path):
    def run(module, *arguments):
        command = [sys.executable, "-m", module, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    gone = run("torch_xla.distributed.xla_dist", "--tpu=pod", "--", "python", "train.py")
    assert gone.returncode == 2 and "torchrun" in gone.stderr
    part = {
        "model": {"w": torch.ones(2)},
        "shard_metadata": {"rank": 0, "world_size": 1, "shard_info": {}},
    }
    torch.save(part, tmp_path / "m_0.pth")
    prefix = f"--ckpt_prefix={tmp_path}/m"
    done = run("torch_xla.distributed.fsdp.consolidate_sharded_ckpts", prefix)
    assert done.returncode == 0, done.stderr
    saved = torch.load(tmp_path / "m_consolidated.pth", weights_only=True)
    assert saved["model"]["w"].tolist() == [1, 1]


def test_doctor_says_what_works(monkeypatch):
    from torch_xla import doctor

    lines = []
    assert doctor.main(lines.append) == 0
    report = dict(line.split(maxsplit=1) for line in lines[:4])
    assert f"torch_xla {torch_xla.__version__}" in report["versions"]
    assert report["plugin"].startswith("CPU, ") and "1 (CPU:0)" in report["devices"]
    assert any(line.startswith("product") and "right; " in line for line in lines)
    assert lines[-1].startswith("versions: ") and "conflicts: " in lines[-1]
    checks = {"plugin": lambda: 1 // 0, "sum": lambda: 2 // 0, "rest": lambda: "well"}
    monkeypatch.setattr(doctor, "_CHECKS", tuple(checks.items()))
    lines.clear()
    assert doctor.main(lines.append) == 1
    assert "FAILED: ZeroDivisionError" in lines[0] and lines[2].endswith("well")
    assert lines[1].endswith("FAILED: as plugin")  # told once


def test_doctor_says_that_shared_memory_is_missing(monkeypatch):
    from torch_xla import doctor

    assert not any("/dev/shm" in conflict for conflict in doctor._conflicts())
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: path != "/dev/shm")
    assert any(conflict.startswith("/dev/shm is not there") for conflict in doctor._conflicts())
