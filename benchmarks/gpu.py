"""Training steps on an NVIDIA GPU, beside PyTorch's own CUDA kernels and torch.compile.

Each side runs in a process of its own. Needs PyTorch's CUDA build, torchvision, transformers and a
plugin for CUDA. Steps follow each other without a wait; the last one of a round is waited for.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from measure import print_table
from torch import Tensor, nn

Make = Callable[[torch.device], tuple[nn.Module, Callable[[nn.Module], Tensor]]]


def make_mlp(device: torch.device) -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    layers = (nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    x, y = torch.randn(128, 784, device=device), torch.randint(10, (128,), device=device)
    return nn.Sequential(*layers), lambda model: nn.functional.cross_entropy(model(x), y)


def make_resnet50(device: torch.device) -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    from torchvision.models import resnet50

    x, y = torch.randn(64, 3, 224, 224, device=device), torch.randint(1000, (64,), device=device)
    return resnet50(), lambda model: nn.functional.cross_entropy(model(x), y)


def make_gpt2(device: torch.device) -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0))
    x = torch.randint(50257, (8, 512), device=device)
    return model, lambda model: model(input_ids=x, labels=x, use_cache=False).loss


MODELS: dict[str, Make] = {"MLP": make_mlp, "ResNet-50": make_resnet50, "GPT-2": make_gpt2}
SIDES = ("eager", "torch.compile", "xla")


def measure(name: str, side: str, samples: int, steps: int) -> dict[str, float]:
    """Seconds until the first loss is read, and milliseconds of a step."""
    torch.manual_seed(0)
    device = torch.device("cuda")
    if side == "xla":
        import torch_xla

        device = torch_xla.device()
    model, loss_of = MODELS[name](device)
    model = model.to(device)
    if side == "xla":
        torch_xla.sync(wait=True)  # what the data is made by is no part of the first step
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    called = torch.compile(model) if side == "torch.compile" else model

    def step() -> Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            loss = loss_of(called)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if side == "xla":
            torch_xla.sync()
        return loss

    start = time.perf_counter()
    step().item()
    first = time.perf_counter() - start
    for _ in range(4):
        step().item()
    times = []
    for _ in range(samples):
        start = time.perf_counter()
        for _ in range(steps):
            loss = step()
        loss.item()
        times.append((time.perf_counter() - start) / steps * 1e3)
    return {"first": first, "median": statistics.median(times), "best": min(times)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=5, help="rounds per side")
    parser.add_argument("--steps", type=int, default=20, help="steps per round")
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(*options.child, options.samples, options.steps)))
        return
    rows = []
    sizes = ["--samples", str(options.samples), "--steps", str(options.steps)]
    for name in (name for name in MODELS if options.only in name):
        found = {}
        for side in SIDES:
            command = [sys.executable, __file__, *sizes, "--child", name, side]
            lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            found[side] = json.loads(lines.splitlines()[-1])
        for side, each in found.items():
            ratio = each["median"] / found["eager"]["median"]
            row = [f"{each['first']:.1f}", f"{each['median']:.2f}", f"{each['best']:.2f}"]
            rows.append([name, side, *row, f"{ratio:.2f}x"])
    header = ["bfloat16, AdamW", "", "first s", "median ms", "best ms", "of eager"]
    print_table(f"{torch.cuda.get_device_name()}: training steps", header, rows)


if __name__ == "__main__":
    main()
