"""Trains mnist.py's network on several devices, a process for each: each has its part of a batch,
and the gradients are averaged.

    CPU_NUM_DEVICES=2 python examples/data_parallel.py
    torchrun --nproc-per-node 2 examples/data_parallel.py
"""

import argparse

import torch
from mnist import Net, accuracy, read_digits
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr


def train(index: int, options: argparse.Namespace) -> None:
    torch.manual_seed(0)  # the same weights on every replica
    device = torch_xla.device()
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    train_set, test_set = read_digits()
    sampler = DistributedSampler(train_set, xr.world_size(), xr.global_ordinal(), drop_last=True)
    batch = options.batch_size // xr.world_size()
    loader = DataLoader(train_set, batch, sampler=sampler, drop_last=True)
    for epoch in range(1, options.epochs + 1):
        sampler.set_epoch(epoch)
        model.train()
        losses = []
        for images, labels in pl.MpDeviceLoader(loader, device):
            optimizer.zero_grad()
            loss = nn.functional.nll_loss(model(images), labels)
            loss.backward()
            xm.optimizer_step(optimizer)
            losses.append(loss.detach())
        mean = xm.all_reduce(xm.REDUCE_SUM, torch.stack(losses).mean(), 1 / xr.world_size())
        xm.master_print(f"epoch {epoch}/{options.epochs}: loss {mean.item():.4f}")
    share = accuracy(model, DataLoader(test_set, len(test_set)), device)
    xm.master_print(f"test accuracy {share:.2%} on {xr.world_size()} replicas")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64, help="of all replicas together")
    parser.add_argument("--lr", type=float, default=0.05)
    torch_xla.launch(train, args=(parser.parse_args(),))


if __name__ == "__main__":
    main()
