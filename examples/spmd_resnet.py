"""Trains resnet50.py's network on invented images, as one program over a mesh of all devices.

    CPU_NUM_DEVICES=4 python examples/spmd_resnet.py           each device has a part of the batch
    CPU_NUM_DEVICES=4 python examples/spmd_resnet.py --fsdp    and a part of each parameter

`MpDeviceLoader` sends each device its images. A batch normalization is over the whole batch, as on
one device: there is no SyncBatchNorm to ask for.
"""

import argparse
import time

import torch
from resnet50 import resnet
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import torch_xla.debug.metrics as metrics
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr


def main(arguments: list[str] | None = None) -> list[float]:
    """Trains for some steps; the loss of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fsdp", action="store_true", help="split parameters too")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=16, help="of all devices together")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--blocks", type=int, nargs=4, default=[3, 4, 6, 3])
    parser.add_argument("--lr", type=float, default=0.05)
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    xr.use_spmd()
    mesh = xs.get_1d_mesh("data")

    classes, labels = 10, torch.arange(4 * options.batch_size) % 10
    size = options.image_size
    data = TensorDataset(torch.randn(len(labels), 3, size, size), labels)
    loader = DataLoader(data, options.batch_size, shuffle=True, drop_last=True)
    images_of = xs.ShardingSpec(mesh, ("data", None, None, None))

    model = resnet(options.blocks, options.width, classes).to("xla")
    if options.fsdp:
        for parameter in model.parameters():
            xs.mark_sharding(parameter, mesh, ("data", *[None] * (parameter.dim() - 1)))
    optimizer = torch.optim.SGD(model.parameters(), options.lr, momentum=0.9, weight_decay=1e-4)
    losses: list[torch.Tensor] = []
    start = time.perf_counter()
    while len(losses) < options.steps:
        for images, labels in pl.MpDeviceLoader(loader, "xla", input_sharding=images_of):
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            if len(losses) == options.steps:
                break
    values = torch.stack(losses).tolist()  # one read, at the end
    seconds = time.perf_counter() - start
    count = xr.global_runtime_device_count()
    print(f"loss {values[0]:.3f} to {values[-1]:.3f} on {count} devices, {seconds:.1f} s")
    print(f"compiled {metrics.counter_value('UncachedCompile') or 0} programs")
    return values


if __name__ == "__main__":
    main()
