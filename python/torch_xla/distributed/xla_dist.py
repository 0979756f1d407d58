"""The command that started a program on every host of a TPU pod. It is gone; this says what takes
its place."""

from __future__ import annotations

import sys


def main() -> int:
    """The command: says what takes its place."""
    print(
        "torch_xla.distributed.xla_dist is not here: start the program on each host, with torchrun "
        "(torchrun --nnodes=N --nproc-per-node=gpu program.py) or as docs/clusters.md says for "
        "Slurm, Kubernetes and Ray",
        file=sys.stderr,
    )
    return 2


if __name__ == "__main__":
    sys.exit(main())
