"""Trains mnist.py's network with its parameters spread over a process for each device, and makes
one checkpoint of what each saved.

torchrun --nproc-per-node 2 examples/fsdp.py
CPU_NUM_DEVICES=2 python examples/fsdp.py
"""

import argparse
import os
import tempfile

import torch
from mnist import Net, accuracy, read_digits
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.runtime as xr
from torch_xla.distributed.fsdp import (
    XlaFullyShardedDataParallel,
    consolidate_sharded_model_checkpoints,
)


def train(index: int, options: argparse.Namespace) -> None:
    rank, count = xr.global_ordinal(), xr.world_size()
    torch.manual_seed(0)
    device = torch_xla.device()
    # Each replica has some rows of each weight, of its gradient, and of the optimizer's state.
    model = XlaFullyShardedDataParallel(Net().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    train_set, test_set = read_digits()
    sampler = DistributedSampler(train_set, count, rank, drop_last=True)
    batch = options.batch_size // count
    loader = DataLoader(train_set, batch, sampler=sampler, drop_last=True)
    for epoch in range(1, options.epochs + 1):
        sampler.set_epoch(epoch)
        losses = []
        for images, labels in pl.MpDeviceLoader(loader, device):
            optimizer.zero_grad()
            loss = nn.functional.nll_loss(model(images), labels)
            loss.backward()
            optimizer.step()  # gradients are averaged already
            losses.append(loss.detach())
        mean = xm.all_reduce(xm.REDUCE_SUM, torch.stack(losses).mean(), scale=1 / count)
        xm.master_print(f"epoch {epoch}/{options.epochs}: loss {mean.item():.4f}")

    folder = options.folder or tempfile.gettempdir()
    part = {"model": model.state_dict(), "shard_metadata": model.get_shard_metadata()}
    xm.save(part, os.path.join(folder, f"part-{rank}-of-{count}.pth"), master_only=False)
    xm.rendezvous("saved")
    if rank == 0:
        state, _ = consolidate_sharded_model_checkpoints(
            os.path.join(folder, "part-"), f"*-of-{count}.pth", save_model=False
        )
        whole = Net()
        whole.load_state_dict(state)
        share = accuracy(whole.to(device), DataLoader(test_set, len(test_set)), device)
        print(f"test accuracy {share:.2%} on {count} replicas")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64, help="of all replicas together")
    parser.add_argument("--lr", type=float, default=0.002)
    parser.add_argument("--folder", help="of the checkpoints; all replicas must see it")
    torch_xla.launch(train, args=(parser.parse_args(),))


if __name__ == "__main__":
    main()
