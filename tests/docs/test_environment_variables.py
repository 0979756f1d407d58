"""Every environment variable of torch_xla is a setting, or a page says what became of it."""

from __future__ import annotations

import re
import sys
from importlib import metadata

import pytest
import torch
from clone import ROOT
from processes import run_in_process

import torch_xla.core.xla_env_vars as xenv
from torch_xla import _XLAC
from torch_xla._dynamo import dynamo_backend2

DOCS = ROOT / "docs"
LISTED = """
    PJRT_DEVICE PJRT_SELECT_DEFAULT_DEVICE PJRT_LIBRARY_PATH TPU_LIBRARY_PATH XPU_LIBRARY_PATH
    NEURON_LIBRARY_PATH PJRT_DYNAMIC_PLUGINS XLA_REGISTER_INSTALLED_PLUGINS CPU_NUM_DEVICES
    TPU_NUM_DEVICES PJRT_CPU_ASYNC_CLIENT PJRT_TPU_MAX_INFLIGHT_COMPUTATIONS
    PJRT_LOCAL_PROCESS_RANK PJRT_LOCAL_PROCESS_COUNT PJRT_DIST_SERVICE_ADDR RANK LOCAL_RANK
    WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT XLA_COORDINATOR_PORT XLA_USE_BF16
    XLA_DOWNCAST_BF16 XLA_USE_32BIT_LONG XLA_USE_FP16 XLA_DOWNCAST_FP16 XLA_NO_SPECIAL_SCALARS
    XLA_DISABLE_FUNCTIONALIZATION XLA_USE_EAGER_DEBUG_MODE XLA_EXPERIMENTAL
    EXPERIMENTAL_XLA_UNBOUNDED_DYNAMISM XLA_STABLEHLO_COMPILE XLA_FLAGS LIBTPU_INIT_ARGS
    XLA_PERSISTENT_CACHE_PATH XLA_PERSISTENT_CACHE_READ_ONLY XLA_COMPILATION_CACHE_SIZE
    XLA_IR_SHAPE_CACHE_SIZE XLA_ENABLE_PARAM_ALIASING XLA_PARAMETER_WRAPPING_THREADSHOLD
    XLA_TENSOR_UPDATE_SYNC XLA_SYNC_WAIT XLA_EMIT_STEPLOG XLA_ALWAYS_ALLREDUCE
    ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB DISABLE_NUMERIC_CC_TOKEN ENABLE_COLLECTIVE_MATMUL_IN_MP
    XLA_RNG_BIT_GENERATOR XLA_USE_SPMD XLA_AUTO_SPMD XLA_AUTO_SPMD_MESH
    XLA_AUTO_USE_GROUP_SHARDING CONVERT_SHLO_TO_SHARDY XLA_LAYOUTS XLA_MAX_PADDING_FACTOR
    XLA_RESIZE_SPLIT_FACTOR XLA_DENSE_GATHER_FACTOR XLA_DENSE_SCATTER_FACTOR XLA_THREAD_POOL_SIZE
    XLA_IO_THREAD_POOL_SIZE XLA_RELEASE_GIL_DURING_TRANSFER PT_XLA_DEBUG PT_XLA_DEBUG_LEVEL
    PT_XLA_DEBUG_FILE PT_XLA_DEBUG_MAX_FRAME XLA_IR_DEBUG XLA_HLO_DEBUG XLA_SAVE_TENSORS_FILE
    XLA_SAVE_TENSORS_FMT XLA_SAVE_HLO_FILE XLA_DUMP_HLO_GRAPH XLA_DUMP_POST_OPTIMIZATIONS
    XLA_DUMP_FATAL_STACK XLA_METRICS_FILE XLA_METRICS_SAMPLES XLA_METRICS_PERCENTILES
    XLA_FNTRACKER_FILE XLA_FNTRACKER_LEVEL XLA_FNTRACKER_LIST XLA_DYNAMO_DEBUG
    XLA_SLOW_COMPILE_HLO_FOLDER TF_CPP_MIN_LOG_LEVEL TF_CPP_VMODULE TORCH_SHOW_CPP_STACKTRACES
    XLA_USE_DUMMY_STORE TORCH_DIST_INIT_BARRIER XLA_MAX_ASYNC_QUEUE RATE_TRACKER_SMOOTHING
    SAVE_GRAPH_FMT MODELCMP_SAVEDIR TPU_PROCESS_BOUNDS TPU_VISIBLE_CHIPS TPU_MEGACORE
    XLA_GET_TENSORS_OPBYOP XLA_SYNC_TENSORS_OPBYOP XLA_SHOW_CPP_ERROR_CONTEXT
    TPU_CHIPS_PER_PROCESS_BOUNDS TPU_PROCESS_ADDRESSES TPU_PROCESS_PORT TPU_SKIP_MDS_QUERY
    TPU_ACCELERATOR_TYPE TPU_WORKER_ID TPU_WORKER_HOSTNAMES TPU_HOST_BOUNDS
    TPU_CHIPS_PER_HOST_BOUNDS TPU_MESH_CONTROLLER_ADDRESS TPU_MESH_CONTROLLER_PORT TPUVM_MODE
    CLOUD_TPU_TASK_ID ACCELERATOR_TYPE WORKER_ID XRT_HOST_ORDINAL XRT_HOST_WORLD_SIZE
"""
NAMES = LISTED.split()


def is_setting(name):
    try:
        return _XLAC._get_setting(name) is not None
    except AttributeError:
        return False


def test_each_is_a_setting_or_explained():
    explained = set(re.findall(r"`(\w+)`", (DOCS / "environment_variables.md").read_text()))
    assert [name for name in NAMES if not is_setting(name) and name not in explained] == []
    first_column = re.findall(r"(?m)^\| (`.*?) \|", (DOCS / "environment_variables.md").read_text())
    others = {name for cell in first_column for name in re.findall(r"`(\w+)`", cell)}
    assert [name for name in others if is_setting(name)] == []


def test_constants_are_names_of_variables():
    constants = {name: value for name, value in vars(xenv).items() if name.isupper()}
    assert [value for value in constants.values() if value not in NAMES] == []


def test_torchrun_with_one_process_and_variables_of_others_change_nothing():
    code = """
        import torch_xla, torch
        import torch_xla.runtime as xr
        torch_xla.launch(lambda index: print(index, torch.ones(2, device="xla").sum().item()))
        print(xr.world_size(), xr.global_ordinal(), xr.get_master_ip())
    """
    variables = {
        "TORCHELASTIC_RUN_ID": "1", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1",
        "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "12355",
        "XLA_LAYOUTS": "x", "XRT_TPU_CONFIG": "tpu_worker;0;10.0.0.2:8470",
    }  # fmt: skip
    assert run_in_process(code, **variables).split() == ["0", "2.0", "1", "0", "127.0.0.1"]


def test_backend_under_its_other_names(device):
    torch.compiler.reset()
    x = torch.ones(3, device=device, requires_grad=True)
    compiled = torch.compile(lambda t: t.sin() + 1, backend=dynamo_backend2.dynamo_backend)
    y = compiled(x)
    y.sum().backward()
    torch.testing.assert_close(y.detach().cpu(), torch.ones(3).sin() + 1)
    torch.testing.assert_close(x.grad.cpu(), torch.ones(3).cos())
    torch.compiler.reset()


def test_backend_of_old_programs_is_registered():
    pyproject = (ROOT / "pyproject.toml").read_text()
    entry = re.search(r'torchxla_trace_once = "(.*?):(.*?)"', pyproject)
    assert entry is not None
    assert getattr(sys.modules[entry[1]], entry[2]) is dynamo_backend2.dynamo_backend
    if not list(metadata.entry_points(group="torch_dynamo_backends", name="torchxla_trace_once")):
        pytest.skip("the package is not installed, so that PyTorch does not find its entry points")
    torch.compiler.reset()
    compiled = torch.compile(lambda t: t + 1, backend="torchxla_trace_once")
    assert compiled(torch.zeros(2, device="xla")).tolist() == [1, 1]
    torch.compiler.reset()
