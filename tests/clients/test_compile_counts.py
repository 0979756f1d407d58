"""How many programs users' loops compile whose sizes differ from batch to batch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from counts import counted
from models import MLP, Bert, TransformerConfig
from torch import Tensor, nn
from with_settings import setting

import torch_xla

pytestmark = pytest.mark.usefixtures("quick_compilation", "cleared")


@pytest.fixture
def cleared() -> None:
    torch_xla._XLAC._clear_compilation_cache()


def inference() -> Callable[[int], Tensor]:
    model = MLP((6, 8, 3)).to("xla")

    def step(size: int) -> Tensor:
        with torch.no_grad():
            return model(torch.randn(size, 6).to("xla"))

    return step


def training() -> Callable[[int], Tensor]:
    model = MLP((6, 8, 3)).to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(size: int) -> Tensor:
        optimizer.zero_grad()
        x, y = torch.randn(size, 6).to("xla"), torch.randn(size, 3).to("xla")
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def images() -> Callable[[int], Tensor]:
    model = nn.Sequential(
        *(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, 5)),
    ).to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(size: int) -> Tensor:
        optimizer.zero_grad()
        x, classes = torch.randn(size, 3, 8, 8).to("xla"), torch.randint(5, (size,)).to("xla")
        loss = nn.functional.cross_entropy(model(x), classes)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def masks() -> Callable[[int], Tensor]:
    model = Bert(TransformerConfig(num_layers=1, width=8, num_heads=2)).eval().to("xla")

    def step(size: int) -> Tensor:
        tokens = torch.randint(97, (2, size)).to("xla")
        with torch.no_grad():
            return model(tokens, torch.zeros_like(tokens))

    return step


STEPS = {"inference": inference, "training": training, "images": images, "masks": masks}


@pytest.mark.parametrize(
    ("kind", "bounded", "most"),
    [(kind, False, 8) for kind in STEPS] + [(kind, True, 3) for kind in STEPS],
)
def test_eight_sizes(kind: str, bounded: bool, most: int):
    step = STEPS[kind]()
    torch_xla.sync()
    with counted() as counts, setting(bounded_sizes=bounded):
        for size in (9, 10, 11, 12, 13, 14, 15, 16):
            result = step(size)
            torch_xla.sync()
            result.cpu()
    assert counts.compiled <= most
