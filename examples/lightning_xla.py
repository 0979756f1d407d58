"""Trains mnist.py's network with Lightning's XLA strategy, a process for each device.

pip install lightning
CPU_NUM_DEVICES=2 python examples/lightning_xla.py --devices 2

`accelerator="tpu"` is enough where the devices are TPUs. Lightning takes others as well, once an
accelerator says that they are there.
"""

import argparse

import lightning
import torch
from lightning.pytorch.accelerators import XLAAccelerator
from lightning.pytorch.strategies import SingleDeviceXLAStrategy, XLAStrategy
from mnist import Net, read_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader


class EveryXLA(XLAAccelerator):
    """The devices of whatever plugin is there, of which Lightning's own accepts TPUs alone."""

    def __init__(self) -> None:
        pass

    @staticmethod
    def parse_devices(devices: int) -> int:
        return devices

    @staticmethod
    def get_parallel_devices(devices: int) -> list[torch.device]:
        return [torch.device("xla", index) for index in range(devices)]

    @staticmethod
    def is_available() -> bool:
        return True


class Digits(lightning.LightningModule):
    def __init__(self, lr: float) -> None:
        super().__init__()
        self.net = Net()
        self.lr = lr

    def training_step(self, batch: tuple[Tensor, Tensor], _index: int) -> Tensor:
        images, labels = batch
        loss = nn.functional.nll_loss(self.net(images), labels)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def test_step(self, batch: tuple[Tensor, Tensor], _index: int) -> None:
        images, labels = batch
        right = (self.net(images).argmax(1) == labels).float().mean()
        self.log("accuracy", right, sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64, help="of all replicas together")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--devices", type=int, default=2)
    options = parser.parse_args()
    trainer = lightning.Trainer(
        max_epochs=options.epochs,
        accelerator=EveryXLA(),
        strategy=XLAStrategy() if options.devices > 1 else SingleDeviceXLAStrategy("xla"),
        devices=options.devices,
        enable_progress_bar=False,
        enable_checkpointing=False,
        logger=False,
    )
    train_set, test_set = read_digits()
    lightning.seed_everything(0)
    model = Digits(options.lr)
    batch = options.batch_size // options.devices
    trainer.fit(model, DataLoader(train_set, batch, shuffle=True, drop_last=True))
    (result,) = trainer.test(model, DataLoader(test_set, 60), verbose=False)
    print(f"test accuracy {result['accuracy']:.2%} on {options.devices} replicas")


if __name__ == "__main__":
    main()
