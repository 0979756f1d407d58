"""Trains mnist.py's network as one program over a mesh of all devices.

CPU_NUM_DEVICES=4 python examples/spmd.py --way data
CPU_NUM_DEVICES=4 python examples/spmd.py --way tensor
CPU_NUM_DEVICES=4 python examples/spmd.py --way fsdp
"""

import argparse

import numpy as np
import torch
from mnist import Net, accuracy, read_digits
from torch import nn
from torch.utils.data import DataLoader

import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr


def mark_parameters(model: nn.Module, mesh: xs.Mesh, way: str) -> None:
    """Say how parameters are split; gradients and the optimizer's states follow them."""
    for parameter in model.parameters():
        if way == "fsdp" and parameter.dim() > 0:
            xs.mark_sharding(parameter, mesh, ("data", *[None] * (parameter.dim() - 1)))
        elif way == "tensor" and parameter.dim() > 1:
            xs.mark_sharding(parameter, mesh, ("model", *[None] * (parameter.dim() - 1)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--way", choices=["data", "tensor", "fsdp"], default="data")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.002)
    options = parser.parse_args()
    torch.manual_seed(0)
    xr.use_spmd()
    count = xr.global_runtime_device_count()
    shape = (1, count) if options.way == "tensor" else (count, 1)
    mesh = xs.Mesh(np.arange(count), shape, ("data", "model"))

    model = Net().to("xla")
    mark_parameters(model, mesh, options.way)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    train_set, test_set = read_digits()
    loader = DataLoader(train_set, options.batch_size, shuffle=True, drop_last=True)
    images_of = xs.ShardingSpec(mesh, ("data", None, None, None))
    for epoch in range(1, options.epochs + 1):
        losses = []
        for images, labels in pl.MpDeviceLoader(loader, "xla", input_sharding=images_of):
            optimizer.zero_grad()
            loss = nn.functional.nll_loss(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        print(f"epoch {epoch}/{options.epochs}: loss {torch.stack(losses).mean().item():.4f}")
    share = accuracy(model, DataLoader(test_set, len(test_set)), torch.device("xla"))
    print(f"test accuracy {share:.2%} on {count} devices")


if __name__ == "__main__":
    main()
