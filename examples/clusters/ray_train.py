"""Trains ddp.py's network under Ray Train, which starts a worker for each device.

python examples/clusters/ray_train.py --workers 2
"""

import argparse
import dataclasses
import os
import pathlib
import socket
import sys

import ray.train
from ray.train.backend import Backend
from ray.train.torch import TorchConfig, TorchTrainer

EXAMPLES = str(pathlib.Path(__file__).resolve().parents[1])


def free_place() -> tuple[str, int]:
    """Where the first worker can keep the job's store."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return ray.util.get_node_ip_address(), probe.getsockname()[1]


def say_who_this_is(address: str, port: int) -> None:
    """In torchrun's variables, which torch_xla reads."""
    context = ray.train.get_context()
    os.environ.update(
        RANK=str(context.get_world_rank()),
        WORLD_SIZE=str(context.get_world_size()),
        LOCAL_RANK=str(context.get_local_rank()),
        LOCAL_WORLD_SIZE=str(context.get_local_world_size()),
        GROUP_RANK=str(context.get_node_rank()),
        MASTER_ADDR=address,
        MASTER_PORT=str(port),
    )


class XlaBackend(Backend):
    def on_training_start(self, worker_group: object, backend_config: object) -> None:
        worker_group.execute(say_who_this_is, *worker_group.execute_single(0, free_place))


@dataclasses.dataclass
class XlaConfig(TorchConfig):
    @property
    def backend_cls(self) -> type[Backend]:
        return XlaBackend


def train(options: dict[str, object]) -> None:
    # Only here, where the variables are set: which devices this process has depends on them.
    sys.path.insert(0, EXAMPLES)
    import ddp

    ddp.train(0, argparse.Namespace(**options))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    workers = ray.train.ScalingConfig(num_workers=parser.parse_args().workers)
    options = {"epochs": parser.parse_args().epochs, "batch_size": 64, "lr": 0.05}
    TorchTrainer(
        train, train_loop_config=options, torch_config=XlaConfig(), scaling_config=workers
    ).fit()


if __name__ == "__main__":
    main()
