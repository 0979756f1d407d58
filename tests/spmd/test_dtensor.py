"""DTensor, tensor parallelism and `fully_shard` under SPMD: annotations give what gloo gives."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

import pytest
import torch
from quick_options import COMPILING_QUICKLY

PROGRAM = pathlib.Path(__file__).with_name("dtensor_programs.py")
NAMES = [
    *("tensors", "parts_of_meshes", "gradients", "modules"),
    *("tensor_parallelism", "sequence_parallelism", "fully_sharded", "both", "both_by_names"),
    *("mixed_precision", "checkpointed"),
]
# Of the programs that compute in bfloat16.
ROUNDING = {"mixed_precision": 0.02, "checkpointed": 0.02}


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def result_of(process: subprocess.Popen[str]) -> Any:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


@functools.cache
def on_gloo() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        ranks = [start("gloo", str(rank), f"{folder}/store") for rank in range(2)]
        first, _ = [result_of(rank) for rank in ranks]
        return first


@functools.cache
def on_xla(count: int) -> Any:
    return result_of(start("xla", CPU_NUM_DEVICES=str(count), **COMPILING_QUICKLY))


def check_close(have: Any, want: Any, rtol: float = 2e-4) -> None:
    assert type(have) is type(want), (have, want)
    if isinstance(want, dict):
        assert have.keys() == want.keys()
        for key in want:
            check_close(have[key], want[key], rtol)
    elif isinstance(want, list) and want and isinstance(want[0], list):
        for one, other in zip(have, want, strict=True):
            check_close(one, other, rtol)
    else:
        close = {"rtol": rtol, "atol": rtol / 10}
        torch.testing.assert_close(torch.tensor(have), torch.tensor(want), **close)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [2, 4])
def test_as_on_gloo(count, name):
    want, have = on_gloo()[name], on_xla(count)[name]
    assert not isinstance(want, str), want
    assert not isinstance(have, str), have
    check_close(have, want, ROUNDING.get(name, 2e-4))


def test_what_makes_no_sense_is_an_error():
    said = on_xla(4)["errors"]
    assert isinstance(said, list), said
    for text, part in zip(
        said,
        [
            "distribute_tensor: a tensor of shape (4,) can't be placed as P",
            "shape (4,) can't be placed as",
            "a placement of the tensor of shape (4,) for each of the 1 dimensions",
            "each of the 4 devices once",
            "ColwiseParallel: expected an nn.Linear or nn.Embedding, got LayerNorm",
            "mp_policy.reduce_dtype=torch.float32 is not supported under SPMD",
            "dp_mesh_dims.shard must be of DeviceMesh",
            "offload_policy=CPUOffloadPolicy(pin_memory=True) is not supported under SPMD",
            "reshard_after_forward=2 is not supported under SPMD",
            "shard_placement_fn that returns DeviceMesh",
            "forward_dtype=torch.bfloat16 is not supported under SPMD",
            "distribute_tensor takes the whole tensor",
        ],
        strict=True,
    ):
        assert part in text, text
