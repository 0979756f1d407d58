"""The recipes for clusters are what their programs take: Slurm's runs with programs in the place of
Slurm's own, JobSet's is read, Ray's runs where Ray is installed."""

from __future__ import annotations

import os
import pathlib
import re
import stat
import subprocess
import sys

import pytest
from clone import ROOT
from quick_options import COMPILING_QUICKLY
from torch.distributed.run import get_args_parser

RECIPES = ROOT / "examples" / "clusters"

# Two tasks on each of two hosts; this machine is all of them.
SRUN = f"""#!{sys.executable}
import os, subprocess, sys
command = sys.argv[1:]
assert command.pop(0) == "--kill-on-bad-exit=1"
tasks = []
for number in range(2):
    task = dict(SLURM_PROCID=str(number), SLURM_LOCALID="0", SLURM_NODEID=str(number))
    tasks.append(subprocess.Popen(command, env=dict(os.environ, **task)))
sys.exit(max(task.wait() for task in tasks))
"""
SCONTROL = """#!/bin/bash
[ "$*" = "show hostnames 127.0.0.1,host[2-3]" ] && printf '127.0.0.1\\nhost2\\nhost3\\n'
"""


def write_program(path: pathlib.Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_slurm_starts_a_replica_for_each_task(tmp_path):
    write_program(tmp_path / "srun", SRUN)
    write_program(tmp_path / "scontrol", SCONTROL)
    write_program(tmp_path / "python", f'#!/bin/bash\nexec {sys.executable} "$@"\n')
    done = subprocess.run(
        ["bash", str(RECIPES / "slurm.sbatch"), "--epochs", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={
            **os.environ,
            **COMPILING_QUICKLY,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "SLURM_JOB_ID": str(os.getpid()),
            "SLURM_JOB_NODELIST": "127.0.0.1,host[2-3]",
            "SLURM_NTASKS": "2",
            "SLURM_NTASKS_PER_NODE": "1",
        },
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"test accuracy [\d.]+% on 2 replicas", done.stdout)


def test_options_of_slurm_are_comments_before_any_command():
    lines = (RECIPES / "slurm.sbatch").read_text().splitlines()
    options = [number for number, line in enumerate(lines) if line.startswith("#SBATCH --")]
    commands = [number for number, line in enumerate(lines) if line and not line.startswith("#")]
    assert len(options) == 4 and max(options) < min(commands)


def test_pods_of_the_jobset_find_each_other():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    jobset = yaml.safe_load((RECIPES / "jobset.yaml").read_text())
    assert (jobset["apiVersion"], jobset["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    (replicated,) = jobset["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    program, *arguments = container["command"]
    assert program == "torchrun"
    options = get_args_parser().parse_args(arguments)
    # Pods are named JobSet-job-number-pod, in the JobSet's domain.
    name = jobset["metadata"]["name"]
    first = f"{name}-{replicated['name']}-0-0.{name}"
    (port,) = (port["containerPort"] for port in container["ports"])
    assert options.rdzv_endpoint == f"{first}:{port}"
    assert (options.rdzv_backend, options.rdzv_id) == ("c10d", name)
    assert int(options.nnodes) == job["parallelism"] == job["completions"]
    assert replicated["replicas"] == 1
    # The JobSet starts all of them again, not Kubernetes one of them.
    assert job["backoffLimit"] == 0 and pod["restartPolicy"] == "Never"
    assert (ROOT / options.training_script).exists()


def test_ray_trains():
    path = RECIPES / "ray_train.py"
    compile(path.read_text(), str(path), "exec")
    pytest.importorskip("ray", reason="Ray is not installed")
    done = subprocess.run(
        [sys.executable, str(path), "--workers", "2", "--epochs", "3"],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"test accuracy [\d.]+% on 2 replicas", done.stdout + done.stderr)
