"""Trains mnist.py's network on all devices of one process, a thread for each: `DataParallel` gives
each device a copy of the model and its share of the batches.

CPU_NUM_DEVICES=2 python examples/threads.py
"""

import argparse
from collections.abc import Iterable
from typing import Any

import torch
from mnist import Net, accuracy, read_digits
from torch import nn
from torch.utils.data import DataLoader

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.data_parallel as dp


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64, help="of all devices together")
    parser.add_argument("--lr", type=float, default=0.1)
    options = parser.parse_args()

    def train(
        model: nn.Module, loader: Iterable[Any], device: torch.device, context: Any
    ) -> torch.Tensor:
        # The context is kept from epoch to epoch.
        optimizer = context.getattr_or(
            "optimizer",
            lambda: torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9),
        )
        losses = []
        for _, (images, labels) in loader:
            optimizer.zero_grad()
            loss = nn.functional.nll_loss(model(images), labels)
            loss.backward()
            xm.optimizer_step(optimizer)  # with the gradients' mean over the devices
            losses.append(loss.detach())
        return torch.stack(losses).mean()

    torch.manual_seed(0)
    devices = torch_xla.devices()
    model = dp.DataParallel(Net, devices)
    train_set, test_set = read_digits()
    loader = DataLoader(train_set, options.batch_size // len(devices), shuffle=True, drop_last=True)
    for epoch in range(1, options.epochs + 1):
        losses = model(train, loader, fixed_batch_size=True)
        mean = sum(loss.item() for loss in losses) / len(losses)
        print(f"epoch {epoch}/{options.epochs}: loss {mean:.4f}")
    test_loader = DataLoader(test_set, len(test_set))
    share = accuracy(model.models[0], test_loader, devices[0])
    print(f"test accuracy {share:.2%} on {len(devices)} replicas")


if __name__ == "__main__":
    main()
