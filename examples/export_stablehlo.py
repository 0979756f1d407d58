"""Writes a model down as StableHLO, which any XLA compiler reads, and runs what was written.

    python examples/export_stablehlo.py                into a folder that is removed at the end
    python examples/export_stablehlo.py --out DIR      DIR/functions/forward.mlir, weights beside

Whoever loads it needs neither the model's class nor its checkpoint.
"""

import argparse
import pathlib
import tempfile

import torch
from torch import nn

from torch_xla.stablehlo import StableHLOGraphModule, save_as_stablehlo


class Classifier(nn.Module):
    """A small network with a buffer, of named inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(8 * 14 * 14, 10)),
        )
        self.register_buffer("mean", torch.tensor(0.13))

    def forward(self, image: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
        return (self.body(image - self.mean) / temperature).softmax(-1)


def main(arguments: list[str] | None = None) -> tuple[str, float]:
    """Writes and reads; the program's text, and how far its results are from the model's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--batch-size", type=int, default=4)
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    model = Classifier().eval()
    inputs = torch.randn(options.batch_size, 1, 28, 28), torch.tensor(2.0)
    program = torch.export.export(model, inputs)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.out or pathlib.Path(scratch)
        save_as_stablehlo(program, folder)
        text = (folder / "functions" / "forward.mlir").read_text()
        loaded = StableHLOGraphModule.load(folder)
    with torch.no_grad():
        want = model(*inputs)
    error = (loaded(*inputs).cpu() - want).abs().max().item()
    operations = sorted({word for word in text.split('"') if word.startswith("stablehlo.")})
    print(f"{len(text.splitlines())} lines of {', '.join(operations)}")
    print(f"largest difference from the model: {error:.1e}")
    return text, error


if __name__ == "__main__":
    main()
