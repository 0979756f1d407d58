"""Trains ResNet-50 on invented images, or on folders of images.

    python examples/resnet50.py                        invented images, to see how fast steps are
    python examples/resnet50.py --data DIR             DIR/train/<class>/*.jpg (needs Pillow)
    python examples/resnet50.py --bfloat16             products and convolutions in bfloat16

Batches of one size compile one program; `MpDeviceLoader` uploads the next batch while this one
runs, and puts the barrier after each step.
"""

import argparse
import pathlib
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import torch_xla
import torch_xla.debug.metrics as metrics
import torch_xla.distributed.parallel_loader as pl


class Bottleneck(nn.Module):
    def __init__(self, fan_in: int, width: int, stride: int) -> None:
        super().__init__()
        fan_out = 4 * width
        self.body = nn.Sequential(
            *(nn.Conv2d(fan_in, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            nn.Conv2d(width, width, 3, stride, padding=1, bias=False),
            *(nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, fan_out, 1, bias=False), nn.BatchNorm2d(fan_out)),
        )
        self.shortcut = nn.Sequential()
        if stride != 1 or fan_in != fan_out:
            self.shortcut.append(nn.Conv2d(fan_in, fan_out, 1, stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(fan_out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu(self.body(x) + self.shortcut(x))


def resnet(blocks: list[int], width: int, classes: int) -> nn.Module:
    """With blocks [3, 4, 6, 3] and width 64 it is ResNet-50."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 7, 2, padding=3, bias=False)]
    layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
    fan_in = width
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(Bottleneck(fan_in, width << stage, stride))
            fan_in = 4 * (width << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(fan_in, classes))


class ImageFolder(Dataset):
    """The images of a folder of folders, one for each class, cut square and scaled."""

    def __init__(self, folder: pathlib.Path, size: int) -> None:
        self.size = size
        self.classes = sorted(path.name for path in folder.iterdir() if path.is_dir())
        suffixes = {".jpg", ".jpeg", ".png"}
        files = (path for path in sorted(folder.glob("*/*")) if path.suffix.lower() in suffixes)
        self.samples = [(path, self.classes.index(path.parent.name)) for path in files]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        import numpy
        from PIL import Image, ImageOps

        path, label = self.samples[index]
        image = ImageOps.fit(Image.open(path).convert("RGB"), (self.size, self.size))
        return torch.tensor(numpy.asarray(image)).permute(2, 0, 1) / 127.5 - 1, label


def main(arguments: list[str] | None = None) -> list[float]:
    """Trains for some steps; the loss of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--blocks", type=int, nargs=4, default=[3, 4, 6, 3])
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--workers", type=int, default=0, help="processes that read images")
    parser.add_argument("--bfloat16", action="store_true")
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    size = options.image_size
    if options.data:
        data: Dataset = ImageFolder(options.data / "train", size)
        classes = len(data.classes)
    else:
        classes, labels = 10, torch.arange(4 * options.batch_size) % 10
        data = TensorDataset(torch.randn(len(labels), 3, size, size), labels)
    loader = DataLoader(
        data, options.batch_size, shuffle=True, drop_last=True, num_workers=options.workers
    )
    device = torch_xla.device()
    model = resnet(options.blocks, options.width, classes).to(device)
    optimizer = torch.optim.SGD(model.parameters(), options.lr, momentum=0.9, weight_decay=1e-4)
    losses: list[torch.Tensor] = []
    start = time.perf_counter()
    while len(losses) < options.steps:
        for images, labels in pl.MpDeviceLoader(loader, device):
            with torch.autocast("xla", torch.bfloat16, enabled=options.bfloat16):
                loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            if len(losses) == options.steps:
                break
    values = torch.stack(losses).tolist()  # one read, at the end
    seconds = time.perf_counter() - start
    print(f"loss {values[0]:.3f} to {values[-1]:.3f} in {options.steps} steps, {seconds:.1f} s")
    print(f"compiled {metrics.counter_value('UncachedCompile') or 0} programs")
    return values


if __name__ == "__main__":
    main()
