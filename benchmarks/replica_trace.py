"""The calls of one step of DistributedDataParallel in each of its processes, as an image: when an
exchange of gradients begins and ends, and which kernels run meanwhile, on each thread.

    CPU_NUM_DEVICES=2 python benchmarks/replica_trace.py docs/images/overlap.svg
"""

from __future__ import annotations

import argparse
import pathlib
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_backend
import torch_xla.runtime as xr
from torch_xla import _XLAC

WIDTH, LAYERS, ROWS = 1024, 8, 512
WARMUPS = 5
# Of the image, in pixels.
LEFT, RIGHT, HEIGHT, ROW = 110, 1090, 36, 110
COLORS = {"kernel": "#b8c4d6", "start": "#e8891c", "finish": "#b3261e"}


class Call(NamedTuple):
    name: str
    thread: str
    start_ns: int
    end_ns: int

    @property
    def kind(self) -> str:
        part = self.name.rpartition(", ")[2]
        return part if part in COLORS else "kernel"


def calls_of_a_step() -> list[Call]:
    """Of this replica's program, in the order in which they began."""
    torch.manual_seed(0)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = DistributedDataParallel(
        nn.Sequential(*layers).to("xla"), bucket_cap_mb=2, gradient_as_bucket_view=True
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(ROWS, WIDTH, device="xla")
    for step in range(WARMUPS + 1):
        xm.rendezvous("step")
        if step == WARMUPS:
            _XLAC._start_tracing(None)
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        torch_xla.sync(wait=True)
    calls = [
        Call(name, thread, start_ns, start_ns + duration_ns)
        for name, thread, _, start_ns, duration_ns in _XLAC._stop_tracing()
        if "XLAEigen" in thread
    ]
    return sorted(calls, key=lambda call: call.start_ns)


def bars(calls: list[Call], top: int, first_ns: int, scale: float) -> list[str]:
    threads = sorted({call.thread for call in calls})
    lane = HEIGHT / len(threads)
    out = []
    for call in calls:
        x = LEFT + (call.start_ns - first_ns) * scale
        width = max((call.end_ns - call.start_ns) * scale, 1.2)
        y = top + threads.index(call.thread) * lane
        if call.kind != "kernel":
            y += HEIGHT + 6
        out.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{lane - 1:.1f}" '
            f'fill="{COLORS[call.kind]}"><title>{call.name}: '
            f"{(call.end_ns - call.start_ns) * 1e-6:.2f} ms</title></rect>"
        )
    return out


def image(of_all: list[list[Call]]) -> str:
    first = min(calls[0].start_ns for calls in of_all)
    last = max(call.end_ns for calls in of_all for call in calls)
    scale = (RIGHT - LEFT) / (last - first)
    height = ROW * len(of_all) + 60
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{RIGHT + 20}" height="{height}" '
        'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for i, calls in enumerate(of_all):
        top = 20 + i * ROW
        out += [
            f'<text x="8" y="{top + 14}">process {i}</text>',
            f'<text x="8" y="{top + 30}" fill="#666">kernels</text>',
            f'<text x="8" y="{top + HEIGHT + 26}" fill="#666">all_reduce</text>',
            *bars(calls, top, first, scale),
        ]
    x = LEFT
    for kind, color in COLORS.items():
        out.append(f'<rect x="{x}" y="{height - 32}" width="14" height="14" fill="{color}"/>')
        out.append(f'<text x="{x + 20}" y="{height - 20}">{kind}</text>')
        x += 110
    span = f"{(last - first) * 1e-6:.1f} ms"
    out.append(f'<text x="{RIGHT}" y="{height - 20}" text-anchor="end">{span}</text>')
    return "\n".join([*out, "</svg>\n"])


def run(index: int, path: str) -> None:
    del index
    torch.set_num_threads(1)
    dist.init_process_group("xla", init_method="xla://")
    of_all: list[list[Call] | None] = [None] * xr.world_size()
    dist.all_gather_object(of_all, [tuple(call) for call in calls_of_a_step()])
    if xm.is_master_ordinal():
        replicas = [[Call(*call) for call in calls] for calls in of_all if calls is not None]
        pathlib.Path(path).write_text(image(replicas))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("path", help="the image, an SVG")
    torch_xla.launch(run, args=(parser.parse_args().path,))


if __name__ == "__main__":
    main()
