"""Trains a convolutional network on handwritten digits, on the xla device.

    python examples/mnist.py               the digits that scikit-learn carries, scaled to 28x28
    python examples/mnist.py --data DIR    MNIST's four IDX files, packed (.gz) or not

Two lines are special about xla: `torch_xla.device()`, and `torch_xla.sync()` after each step, which
compiles and launches what was recorded. The rest is PyTorch as on any device.
"""

import argparse
import gzip
import pathlib
import struct
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

import torch_xla
import torch_xla.debug.metrics as metrics


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, kernel_size=5)
        self.conv2 = nn.Conv2d(16, 32, kernel_size=5)
        self.dropout = nn.Dropout(0.25)
        self.fc1 = nn.Linear(32 * 4 * 4, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(nn.functional.relu(self.conv1(x)), 2)
        x = nn.functional.max_pool2d(nn.functional.relu(self.conv2(x)), 2)
        x = self.dropout(nn.functional.relu(self.fc1(x.flatten(1))))
        return nn.functional.log_softmax(self.fc2(x), dim=1)


def read_digits() -> tuple[TensorDataset, TensorDataset]:
    """1,797 digits of 8x8 points, a fifth of them for the test."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    small = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    images = nn.functional.interpolate(small, size=(28, 28), mode="bilinear")
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    test, train = order[: len(order) // 5], order[len(order) // 5 :]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def read_idx(folder: pathlib.Path, name: str) -> torch.Tensor:
    """One IDX file of bytes: a magic number, the sizes, the data."""
    for candidate in (name, name.replace("-idx", ".idx")):
        for suffix, opener in (("", open), (".gz", gzip.open)):
            path = folder / (candidate + suffix)
            if path.exists():
                with opener(path, "rb") as file:
                    data = bytearray(file.read())
                rank = data[3]
                sizes = struct.unpack_from(f">{rank}I", data, 4)
                values = torch.frombuffer(data, dtype=torch.uint8, offset=4 + 4 * rank)
                return values.reshape(sizes)
    raise SystemExit(f"{folder} has no {name} or {name}.gz")


def read_mnist(folder: pathlib.Path) -> tuple[TensorDataset, TensorDataset]:
    def dataset(part: str) -> TensorDataset:
        images = read_idx(folder, f"{part}-images-idx3-ubyte")[:, None] / 255
        return TensorDataset(images, read_idx(folder, f"{part}-labels-idx1-ubyte").long())

    return dataset("train"), dataset("t10k")


def train_epoch(
    model: nn.Module,
    loader: DataLoader,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
    title: str,
) -> float:
    """The mean loss of the epoch."""
    model.train()
    losses = []
    for images, labels in tqdm(loader, desc=title, unit="step", leave=False):
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = nn.functional.nll_loss(model(images), labels)
        loss.backward()
        optimizer.step()
        # Kept on the device: reading each loss would wait for each step.
        losses.append(loss.detach())
        torch_xla.sync()
    return torch.stack(losses).mean().item()


@torch.no_grad()
def accuracy(model: nn.Module, loader: DataLoader, device: torch.device) -> float:
    """The share of images that are recognized."""
    model.eval()
    right = torch.zeros((), dtype=torch.int64, device=device)
    count = 0
    for images, labels in loader:
        predicted = model(images.to(device)).argmax(dim=1)
        right += (predicted == labels.to(device)).sum()
        count += len(labels)
        torch_xla.sync()
    return right.item() / count


def print_what_xla_did() -> None:
    def line(verb: str, metric: str) -> str:
        samples, total_ns, _ = metrics.metric_data(metric) or (0, 0.0, [])
        return f"  {verb} {samples} programs, {total_ns * 1e-9:.2f} s"

    print("What XLA did:")
    print(line("compiled", "CompileTime"))
    print(line("executed", "ExecuteTime"))
    fallbacks = metrics.executed_fallback_ops()
    print(f"  operations that fell back to the CPU: {', '.join(fallbacks) or 'none'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path, help="folder of MNIST's IDX files")
    parser.add_argument("--epochs", type=int, help="default: 15, for MNIST 3")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    train_set, test_set = read_mnist(options.data) if options.data else read_digits()
    # Batches of one size: a smaller last one would be another program to compile.
    train_loader = DataLoader(train_set, options.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=min(len(test_set), 1000))
    epochs = options.epochs or (3 if options.data else 15)

    device = torch_xla.device()
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=options.momentum)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    print(f"training on {device} ({torch_xla.real_devices()[0]}), {len(train_set)} images")
    start = time.monotonic()
    for epoch in range(1, epochs + 1):
        loss = train_epoch(model, train_loader, optimizer, device, f"epoch {epoch}/{epochs}")
        schedule.step()
        share = accuracy(model, test_loader, device)
        print(f"epoch {epoch}/{epochs}: loss {loss:.4f}, test accuracy {share:.2%}")
    print(f"trained in {time.monotonic() - start:.1f} s")
    print_what_xla_did()


if __name__ == "__main__":
    main()
