"""Graphs with equal layers in a row are computed layer by layer: what that compiles, and that the
values stay what they are."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator

import pytest
import torch
from counts import counted
from torch import Tensor, nn
from torch.nn import functional
from with_settings import setting

import torch_xla
from torch_xla.debug import metrics

WIDTH = 8
# Of random programs in one run of the tests.
PROGRAMS = 12

pytestmark = pytest.mark.usefixtures("quick_compilation", "cut")


@pytest.fixture
def cut() -> Iterator[None]:
    torch_xla._XLAC._clear_compilation_cache()
    with setting(layer_programs=True):
        yield


def transformer(layers: int, dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        WIDTH, 2, 16, dropout, "gelu", batch_first=True, norm_first=True
    )
    return nn.Sequential(
        nn.Linear(3, WIDTH), nn.TransformerEncoder(layer, layers, enable_nested_tensor=False),
        nn.Linear(WIDTH, 2),
    )  # fmt: skip


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    torch.manual_seed(1)
    for _ in range(3):
        yield torch.randn(4, 5, 3), torch.randn(4, 5, 2)


def train(model: nn.Module, device: str) -> tuple[list[float], list[Tensor]]:
    model = copy.deepcopy(model).to(device)
    # Some gradients are 0 but for rounding, whose signs an Adam with its own eps would follow.
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, eps=0.01)
    losses = []
    for x, y in batches():
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        losses.append(loss)
    return [loss.item() for loss in losses], [p.detach().cpu() for p in model.parameters()]


@pytest.mark.parametrize("layers", [4, 7])
def test_training_compiles_a_layer_and_its_gradients_once(layers: int):
    model = transformer(layers)
    want_losses, want = train(model, "cpu")
    with counted() as counts:
        losses, parameters = train(model, "xla")
    torch.testing.assert_close(losses, want_losses, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(parameters, want, rtol=1e-4, atol=1e-5)
    # What stands before, a layer, what stands between, a layer's gradients, and what is left; the
    # model's first gradients, of no layer before, are of that.
    assert counts.compiled == 5
    assert counts.executed == 3 * (2 * layers + 2)


def test_reads_are_cut_as_well():
    model = transformer(5).to("xla").eval()
    x, _ = next(batches())
    with torch.no_grad():
        want = copy.deepcopy(model).cpu()(x)
        for compiled in (3, 0):
            with counted() as counts:
                got = model(x.to("xla")).cpu()
            assert (counts.compiled, counts.executed) == (compiled, 7)
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def test_random_numbers_are_those_of_the_whole():
    model = transformer(4, dropout=0.5)
    results = []
    for is_cut in (True, False):
        with setting(layer_programs=is_cut):
            torch.manual_seed(3)
            results.append(train(model, "xla")[0])
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)
    assert metrics.counter_value("GraphCut")


def layer_of(seed: int) -> Callable[[Tensor, Tensor, list[Tensor]], Tensor]:
    """What a program's layers do: more than sixteen calls, drawn once, in place too."""

    def in_place(x: Tensor, weight: Tensor) -> Tensor:
        y = x.clone()
        y[:, 1:].mul_(weight[0, 0].sigmoid())
        return y.relu_() + x

    calls: list[Callable[[Tensor, Tensor], Tensor]] = [
        lambda x, weight: x @ weight,
        lambda x, weight: x + weight.mean(0),
        lambda x, weight: x.t().softmax(-1),
        lambda x, weight: functional.layer_norm(x, (WIDTH,)),
        lambda x, weight: torch.cat([x[1:], x[:1]]).tanh(),
        lambda x, weight: torch.where(x > 0, x, weight.expand(2, WIDTH, WIDTH)[1]),
        lambda x, weight: x.sort(-1)[0] * torch.arange(WIDTH, device=x.device),
        in_place,
    ]
    drawn = random.Random(seed).choices(range(len(calls)), k=12)
    keeps = random.Random(-seed - 1).randrange(3)

    def layer(x: Tensor, weight: Tensor, kept: list[Tensor]) -> Tensor:
        if keeps == 0 and kept:
            x = x + kept[-1]  # of the layer before
        if keeps == 1 and kept:
            x = x * kept[0].tanh()  # of the first one
        y = x
        for which in drawn:
            y = functional.layer_norm(calls[which](y, weight), (WIDTH,))
        kept.append(y.sin())
        return x + y

    return layer


def run(seed: int, device: str) -> list[Tensor]:
    """A training, or steps that write, with reads in the middle."""
    layer = layer_of(seed)
    draw = random.Random(seed)
    torch.manual_seed(seed)
    x, *weights = (torch.randn(WIDTH, WIDTH, dtype=torch.float64).to(device) for _ in range(6))
    wants_gradients = draw.random() < 0.5
    results = []
    for _ in range(2):
        for weight in weights:
            weight.requires_grad_(wants_gradients)
        kept: list[Tensor] = []
        y = x
        for i, weight in enumerate(weights):
            y = layer(y, weight, kept) * (2 if i == 3 and draw.random() < 0.3 else 1)
        if wants_gradients:
            gradients = torch.autograd.grad(y.square().mean(), weights)
            weights = [(w - g).detach() for w, g in zip(weights, gradients, strict=True)]
        else:
            weights[1] += y.mean()
        x = x + y.detach() / 8
        if draw.random() < 0.5:
            torch_xla.sync()
        results += [y.detach().cpu(), x.cpu(), kept[2].detach().cpu()]
    return results + [weight.detach().cpu() for weight in weights]


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_random_programs_give_the_values_of_the_whole(seed: int):
    got = run(seed, "xla")
    assert metrics.counter_value("GraphCut")
    with setting(layer_programs=False):  # the CPU rounds otherwise, of which some make much
        want = run(seed, "xla")
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


def test_switched_off_a_step_is_one_program():
    with setting(layer_programs=False), counted() as counts:
        train(transformer(4), "xla")
    assert (counts.compiled, counts.executed) == (1, 3)
    assert metrics.counter_value("GraphCut") is None


def test_the_layers_are_told(tmp_path):
    log = tmp_path / "log"
    with setting(pt_xla_debug=True, pt_xla_debug_file=str(log)):
        train(transformer(4), "xla")
    assert "has 4 layers of" in log.read_text()
    assert "these are computed one by one" in log.read_text()
