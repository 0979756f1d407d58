"""Replicas in processes of this machine, beside gloo with plain PyTorch CPU tensors: an exchange of
several sizes, and training steps beside those of DistributedDataParallel, and beside those of one
process on as many cores as each of them has.

    CPU_NUM_DEVICES=2 python benchmarks/scale.py

The two take turns in every process. Figures are those of the slowest process.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
from collections.abc import Callable

import torch
import torch.distributed as dist
from measure import print_table, ratio, take_turns
from torch.nn.parallel import DistributedDataParallel
from workloads import TrainingStep

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch_xla.debug import metrics

SIZES = {"4 B": 1, "4 KB": 1 << 10, "4 MB": 1 << 20, "64 MB": 1 << 24}
MODELS = ("MLP", "MNIST CNN", "GPT-2")
LIMIT = 1.2
# Of a step of one process that has its share of the cores to itself.
ONE_LIMIT = 1.15
# What a recorded exchange may cost beyond that.
OVERHEAD_SECONDS = 50e-6


def slowest(seconds: float) -> float:
    """Of all replicas."""
    return float(xm.mesh_reduce("slowest", seconds, max))


def by_turns(
    eager: Callable[[], object], ours: Callable[[], object], samples: int
) -> tuple[float, float]:
    """Medians of both; the replicas begin each sample together."""
    timings = take_turns([eager, ours], samples, warmups=2, after=dist.barrier)
    theirs, own = (slowest(timing.median()) for timing in timings)
    return theirs, own


def exchanges(samples: int) -> list[list[str]]:
    rows = []
    for label, count in SIZES.items():
        plain = torch.ones(count)
        tensor = torch.ones(count, device="xla")

        def exchange(tensor: torch.Tensor = tensor) -> None:
            result = xm.all_reduce(xm.REDUCE_SUM, tensor)
            torch_xla.sync(wait=True)
            del result

        def gloo(plain: torch.Tensor = plain) -> None:
            dist.all_reduce(plain.clone())

        theirs, own = by_turns(gloo, exchange, samples)
        is_over = own > theirs * LIMIT + OVERHEAD_SECONDS
        rows.append(
            [
                f"all_reduce, {label}",
                f"{theirs * 1e3:.3f}",
                f"{own * 1e3:.3f}",
                ratio(own / theirs, 0.0 if is_over else None),
            ]
        )
    return rows


class Replicated(TrainingStep):
    """A step whose gradients are averaged over the replicas."""

    def run(self) -> torch.Tensor:
        self.optimizer.zero_grad()
        outputs = self.model(self.inputs)
        loss: torch.Tensor = self.loss_of(outputs.flatten(0, -2), self.targets.flatten())
        loss.backward()
        xm.optimizer_step(self.optimizer)
        torch_xla.sync(wait=True)
        return loss


def by_one_process(num_cores: int, samples: int, medians: multiprocessing.Queue[float]) -> None:
    """Medians of the steps without other processes, on so many cores."""
    os.environ["CPU_NUM_DEVICES"] = "1"
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:num_cores])
    torch.set_num_threads(num_cores)
    for name in MODELS:
        step = Replicated(name, torch_xla.device())
        (timing,) = take_turns([step.run], samples, warmups=2)
        medians.put(timing.median())


def steps(samples: int, of_one: list[float]) -> list[list[str]]:
    rows = []
    for name, one in zip(MODELS, of_one, strict=True):
        theirs_step = TrainingStep(name, torch.device("cpu"))
        theirs_step.model = DistributedDataParallel(theirs_step.model)
        our_step = Replicated(name, torch_xla.device())
        theirs, own = by_turns(theirs_step.run, our_step.run, samples)
        rows.append(
            [f"step of {name}", f"{theirs * 1e3:.1f}", f"{own * 1e3:.1f}", ratio(own / theirs, 1.0)]
        )
        label = f"step of {name}, of one process on its share of the cores"
        rows.append([label, f"{one * 1e3:.1f}", f"{own * 1e3:.1f}", ratio(own / one, ONE_LIMIT)])
    return rows


def compilations() -> list[str]:
    """How many programs this replica has, how often its host's compiled one, and their ratio."""
    compiled = metrics.counter_value("UncachedCompile") or 0
    programs = compiled + xr.persistent_cache_stats()["hits"]
    total = xm.mesh_reduce("compiled", compiled, sum)
    return [str(programs), str(total), ratio(total / programs, 1.0)]


def run(index: int, samples: int, of_one: list[float]) -> None:
    del index
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // xr.world_size()))
    dist.init_process_group("gloo")
    rows = [*exchanges(samples), *steps(samples, of_one)]
    rows.append(["programs, compilations of a host", *compilations()])
    if xm.is_master_ordinal():
        title = f"{xr.world_size()} processes"
        print_table(title, ["what", "beside, ms", "xla, ms", "ratio"], rows)
    dist.destroy_process_group()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=15)
    arguments = parser.parse_args()
    num_replicas = int(os.environ.get("CPU_NUM_DEVICES", "1"))
    context = multiprocessing.get_context("spawn")
    medians = context.Queue()
    num_cores = max(1, (os.cpu_count() or 1) // num_replicas)
    child = context.Process(target=by_one_process, args=(num_cores, arguments.samples, medians))
    child.start()
    of_one = [medians.get() for _ in MODELS]
    child.join()
    with tempfile.TemporaryDirectory() as directory:  # nothing is there at first
        os.environ["XLA_PERSISTENT_CACHE_PATH"] = directory
        torch_xla.launch(run, args=(arguments.samples, of_one))


if __name__ == "__main__":
    main()
