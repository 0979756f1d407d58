"""What `import torch_xla` costs beyond `import torch`: time and memory, before a device is used.

Each sample is a fresh process, which imports torch first and then reads its own clocks around the
second import.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

from measure import print_table, ratio

LIMIT_SECONDS = 0.5
LIMIT_MEGABYTES = 60.0

CHILD = """
import time
import torch
def resident():
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024
memory, wall, cpu = resident(), time.perf_counter(), time.process_time()
import torch_xla
print(time.perf_counter() - wall, time.process_time() - cpu, resident() - memory)
assert not torch_xla._XLAC._xla_runtime_is_initialized()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=5, help="fresh processes")
    args = parser.parse_args()
    samples = []
    for _ in range(args.samples):
        result = subprocess.run(
            [sys.executable, "-P", "-c", CHILD], stdout=subprocess.PIPE, text=True, check=True
        )
        samples.append([float(word) for word in result.stdout.split()])
    wall, cpu, memory = (list(column) for column in zip(*samples, strict=True))
    rows = [
        [
            name,
            f"{statistics.median(values):{digits}f}",
            f"{min(values):{digits}f}",
            f"{limit:g}",
            ratio(statistics.median(values) / limit, 1.0),
        ]
        for name, values, limit, digits in (
            ("seconds", wall, LIMIT_SECONDS, ".3"),
            ("seconds of CPU", cpu, LIMIT_SECONDS, ".3"),
            ("MB", memory, LIMIT_MEGABYTES, ".1"),
        )
    ]
    print_table("import torch_xla", ["", "median", "best", "limit", "of the limit"], rows)


if __name__ == "__main__":
    main()
