"""Trains mnist.py's network with PyTorch's DistributedDataParallel, a process for each device.

torchrun --nproc-per-node 2 examples/ddp.py
CPU_NUM_DEVICES=2 python examples/ddp.py
"""

import argparse

import torch
import torch.distributed as dist
from mnist import Net, accuracy, read_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import torch_xla
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_backend


def train(index: int, options: argparse.Namespace) -> None:
    dist.init_process_group("xla", init_method="xla://")
    torch.manual_seed(dist.get_rank())
    device = torch_xla.device()
    # Every replica starts from the weights of the first.
    model = DistributedDataParallel(Net().to(device), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    train_set, test_set = read_digits()
    sampler = DistributedSampler(train_set, drop_last=True)
    batch = options.batch_size // dist.get_world_size()
    loader = DataLoader(train_set, batch, sampler=sampler, drop_last=True)
    for epoch in range(1, options.epochs + 1):
        sampler.set_epoch(epoch)
        model.train()
        losses = []
        for images, labels in pl.MpDeviceLoader(loader, device):
            optimizer.zero_grad()
            loss = nn.functional.nll_loss(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        mean = torch.stack(losses).mean()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}/{options.epochs}: loss {mean.item():.4f}")
    share = accuracy(model.module, DataLoader(test_set, len(test_set)), device)
    if dist.get_rank() == 0:
        print(f"test accuracy {share:.2%} on {dist.get_world_size()} replicas")
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64, help="of all replicas together")
    parser.add_argument("--lr", type=float, default=0.05)
    torch_xla.launch(train, args=(parser.parse_args(),))


if __name__ == "__main__":
    main()
