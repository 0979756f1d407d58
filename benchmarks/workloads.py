"""The four training steps that `train.py` and `overlap.py` time, with the sizes of the figures."""

from __future__ import annotations

from collections.abc import Callable

import torch
from models import GPT2, MLP, MnistCNN, TransformerConfig, resnet18
from torch import Tensor, nn

Optimizer = torch.optim.Optimizer
Make = Callable[[], tuple[nn.Module, Tensor, Tensor]]


def make_mlp() -> tuple[nn.Module, Tensor, Tensor]:
    return MLP((784, 512, 10)), torch.randn(128, 784), torch.randint(10, (128,))


def make_mnist_cnn() -> tuple[nn.Module, Tensor, Tensor]:
    return MnistCNN(dropout=0.5), torch.randn(128, 1, 28, 28), torch.randint(10, (128,))


def make_resnet18() -> tuple[nn.Module, Tensor, Tensor]:
    return resnet18(), torch.randn(8, 3, 64, 64), torch.randint(1000, (8,))


def make_gpt2() -> tuple[nn.Module, Tensor, Tensor]:
    config = TransformerConfig(
        num_layers=6, width=256, num_heads=8, vocabulary=5000, max_length=128, dropout=0.1
    )
    tokens = torch.randint(config.vocabulary, (4, 129))
    return GPT2(config), tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


MODELS: dict[str, Make] = {
    "MLP": make_mlp,
    "MNIST CNN": make_mnist_cnn,
    "ResNet-18": make_resnet18,
    "GPT-2": make_gpt2,
}


class TrainingStep:
    """A model with its optimizer and one batch, on one device."""

    def __init__(self, name: str, device: torch.device) -> None:
        torch.manual_seed(0)
        model, inputs, targets = MODELS[name]()
        self.model = model.to(device)
        self.inputs, self.targets = inputs.to(device), targets.to(device)
        self.optimizer: Optimizer
        if name == "GPT-2":
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4)
        else:
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.loss_of = nn.NLLLoss() if name == "MNIST CNN" else nn.CrossEntropyLoss()

    def run(self) -> Tensor:
        """One step: what is eager is done, what is lazy is recorded. Returns the loss."""
        self.optimizer.zero_grad()
        outputs = self.model(self.inputs)
        loss: Tensor = self.loss_of(outputs.flatten(0, -2), self.targets.flatten())
        loss.backward()
        self.optimizer.step()
        return loss
