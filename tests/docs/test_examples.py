"""The README's example trains, on its own digits and on MNIST's files."""

from __future__ import annotations

import gzip
import os
import pathlib
import re
import struct
import subprocess
import sys

import pytest
import torch
from clone import ROOT
from quick_options import COMPILING_QUICKLY
from sklearn.datasets import load_digits

EXAMPLE = ROOT / "examples" / "mnist.py"


def run_example(*args: str, example: pathlib.Path = EXAMPLE, devices: int = 1) -> str:
    # The first one is computed as on users' machines.
    quickly = COMPILING_QUICKLY if example != EXAMPLE else {}
    done = subprocess.run(
        [sys.executable, str(example), *args],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env={**os.environ, "CPU_NUM_DEVICES": str(devices), **quickly},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_idx(path: pathlib.Path, values: torch.Tensor) -> None:
    """`values` as an IDX file of bytes, packed if the name says so."""
    header = bytes([0, 0, 8, values.dim()]) + struct.pack(f">{values.dim()}I", *values.shape)
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wb") as file:
        file.write(header + values.to(torch.uint8).numpy().tobytes())


def test_digits_are_learnt_on_the_device():
    printed = run_example()
    shares = re.findall(r"test accuracy ([\d.]+)%", printed)
    assert len(shares) == 15
    assert float(shares[-1]) >= 97.0
    assert "fell back to the CPU: none" in printed
    # A step, the first one, which makes the momenta, an epoch's losses, the test's, its reads.
    compiled = re.search(r"compiled (\d+) programs", printed)
    assert compiled is not None and int(compiled[1]) <= 8


def test_idx_files_are_read(tmp_path):
    digits = load_digits()
    images = (
        torch.tensor(digits.images).repeat_interleave(4, 1).repeat_interleave(4, 2)[:, 2:30, 2:30]
    )
    labels = torch.tensor(digits.target)
    write_idx(tmp_path / "train-images-idx3-ubyte", images[:256] * 15)
    write_idx(tmp_path / "train-labels-idx1-ubyte.gz", labels[:256])
    write_idx(tmp_path / "t10k-images.idx3-ubyte", images[256:320] * 15)
    write_idx(tmp_path / "t10k-labels-idx1-ubyte", labels[256:320])
    printed = run_example("--data", str(tmp_path), "--epochs", "1")
    assert "256 images" in printed
    assert "epoch 1/1: loss" in printed


def test_missing_files_are_named(tmp_path):
    done = subprocess.run(
        [sys.executable, "-P", str(EXAMPLE), "--data", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode != 0
    assert "train-images-idx3-ubyte" in done.stderr


@pytest.mark.parametrize(
    "name", ["data_parallel.py", "ddp.py", "fsdp.py", "lightning_xla.py", "threads.py"]
)
def test_digits_are_learnt_by_two_replicas(name, tmp_path, monkeypatch):
    if name.startswith("lightning"):
        pytest.importorskip("lightning", reason="Lightning is not installed")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    path = EXAMPLE.with_name(name)
    assert len(path.read_text().splitlines()) < 100
    printed = run_example("--epochs", "6", example=path, devices=2)
    share = re.search(r"test accuracy ([\d.]+)% on 2 replicas", printed)
    assert share is not None and float(share[1]) >= 90.0


def test_digits_are_learnt_by_one_program_on_two_devices():
    printed = run_example(
        "--way", "fsdp", "--epochs", "3", example=EXAMPLE.with_name("spmd.py"), devices=2
    )
    share = re.search(r"test accuracy ([\d.]+)% on 2 devices", printed)
    assert share is not None and float(share[1]) >= 90.0


@pytest.mark.parametrize("way", ["data", "tensor", "2d", "fsdp"])
def test_gpt2_learns_whatever_is_split(way):
    command = "--steps 20 --batch-size 8 --length 16 --layers 1 --width 32"
    example = EXAMPLE.with_name("spmd_gpt2.py")
    pytest.importorskip("transformers")
    printed = run_example("--way", way, *command.split(), example=example, devices=4)
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", printed)]
    assert losses[-1] < losses[0]
    part = {"data": (32, 128), "tensor": (32, 32), "2d": (32, 64), "fsdp": (8, 128)}[way]
    assert f"has {part}" in printed and "compiled 1 programs" in printed


@pytest.mark.parametrize("more", [(), ("--fsdp",)])
def test_resnet_learns_on_a_mesh(more):
    # A batch norm over fewer values than these makes much of their rounding.
    command = "--batch-size 16 --image-size 32 --width 8 --blocks 1 1 1 1 --steps 9 --lr 0.05"
    example = EXAMPLE.with_name("spmd_resnet.py")
    printed = run_example(*command.split(), *more, example=example, devices=2)
    losses = re.search(r"loss ([\d.]+) to ([\d.]+) on 2 devices", printed)
    assert losses is not None and float(losses[2]) < float(losses[1])
