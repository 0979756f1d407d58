"""What grows with the number of replicas: making a group, the small message before an exchange, an
exchange, a rendezvous. The members are threads of this process, without devices, so that there may
be more of them than cores; they share the cores, which are counted.

    python benchmarks/many.py --members 2,8,32,64
"""

from __future__ import annotations

import argparse
import os
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from measure import print_table
from torch._C._distributed_c10d import HashStore, TCPStore
from torch.distributed import ProcessGroupGloo

from torch_xla._replicas import meetings

# Words that the members of a group tell each other before they exchange something: see
# src/aten/agreement.cpp.
AGREEMENT_WORDS = 64
GRADIENTS = 1 << 16  # 256 KB


class Members:
    """So many threads, which do things together."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._threads = ThreadPoolExecutor(count)
        self._start = threading.Barrier(count)

    def seconds(self, run: Callable[[int], object], samples: int = 1) -> float:
        """The median of how long all of them take for `run(member)`."""

        def one(member: int) -> tuple[float, float]:
            self._start.wait()
            begin = time.perf_counter()
            run(member)
            return begin, time.perf_counter()

        found = []
        for _ in range(samples):
            spans = list(self._threads.map(one, range(self.count)))
            found.append(max(end for _, end in spans) - min(begin for begin, _ in spans))
        return statistics.median(found)

    def of_each(self, make: Callable[[int], Any]) -> list[Any]:
        return list(self._threads.map(make, range(self.count)))


def measured(count: int, samples: int) -> list[str]:
    """A row of the table."""
    members, shared = Members(count), HashStore()
    groups: dict[int, ProcessGroupGloo] = {}

    def connect(member: int) -> None:
        groups[member] = ProcessGroupGloo(shared, member, count, meetings.timeout())

    before = len(os.listdir("/proc/self/fd"))
    connecting = members.seconds(connect)
    connections = len(os.listdir("/proc/self/fd")) - before
    row = torch.zeros(AGREEMENT_WORDS, dtype=torch.int64)
    rows = [list(torch.zeros(count, AGREEMENT_WORDS, dtype=torch.int64)) for _ in range(count)]
    agreeing = members.seconds(
        lambda member: groups[member].allgather([rows[member]], [row]).wait(), samples
    )
    gradients = members.of_each(lambda _: torch.zeros(GRADIENTS))
    reducing = members.seconds(
        lambda member: groups[member].allreduce([gradients[member]]).wait(), samples
    )

    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    clients = members.of_each(lambda _: TCPStore("127.0.0.1", server.port, wait_for_workers=False))
    rounds = [0] * count

    def meet(member: int) -> None:
        rounds[member] += 1
        everyone = range(count)
        place = f"meeting/{rounds[member]}"
        meetings.meet("meeting", place, b"x" * 100, everyone, clients[member], member)

    meeting = members.seconds(meet, samples)
    milliseconds = (connecting, agreeing, reducing, meeting)
    return [str(count), str(connections), *(f"{each * 1e3:.2f}" for each in milliseconds)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", default="2,4,8,16,32,64")
    parser.add_argument("--samples", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measured(int(count), options.samples) for count in options.members.split(",")]
    header = ["members", "sockets of all", "group ms", "agreement ms", "256 KB ms", "rendezvous ms"]
    print_table("members are threads of this process", header, rows)


if __name__ == "__main__":
    main()
