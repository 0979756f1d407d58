"""Moves of modules: each parameter stays the object it was."""

from __future__ import annotations

import copy

import pytest
import torch
from counts import counted, left_the_device
from torch import nn
from torch._subclasses import FakeTensorMode

from torch_xla.debug import metrics


class Tied(nn.Module):
    """Embedding and head share their weight, as in GPT-2."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.norm(self.embedding(tokens)))


def train_step(model, optimizer, device):
    optimizer.zero_grad()
    tokens = torch.tensor([0, 3, 5, 3], device=device)
    loss = nn.functional.cross_entropy(model(tokens), tokens)
    loss.backward()
    optimizer.step()
    return loss.item()


def test_tied_weights_stay_tied(device):
    model = Tied()
    weight = model.embedding.weight
    assert model.to(device) is model
    assert model.embedding.weight is model.head.weight is weight
    assert weight.device == device and isinstance(weight, nn.Parameter) and weight.is_leaf
    assert model.norm.running_mean.device == device
    model.cpu()
    assert model.embedding.weight is model.head.weight is weight
    assert weight.device.type == "cpu"


def test_training_with_an_optimizer_built_before_the_move(device):
    expected_model = Tied()
    model = copy.deepcopy(expected_model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    model.to(device)
    expected_optimizer = torch.optim.SGD(expected_model.parameters(), lr=0.5, momentum=0.9)
    for _ in range(5):
        expected = train_step(expected_model, expected_optimizer, "cpu")
        assert train_step(model, optimizer, device) == pytest.approx(expected, rel=1e-4)
    torch.testing.assert_close(model.head.weight.cpu(), expected_model.head.weight)


def test_gradients_hooks_and_attributes_move_along(device):
    layer = nn.Linear(2, 2)
    weight, calls = layer.weight, []
    weight.note = "kept"
    weight.register_hook(lambda gradient: calls.append("tensor"))
    weight.register_post_accumulate_grad_hook(lambda parameter: calls.append("parameter"))
    layer(torch.ones(2)).sum().backward()
    layer.bias.requires_grad_(False)
    layer.to(device)
    assert weight.grad.device == device and weight.grad.tolist() == [[1, 1], [1, 1]]
    assert weight.note == "kept" and not layer.bias.requires_grad
    calls.clear()
    layer(torch.ones(2, device=device)).sum().backward()
    assert calls == ["tensor", "parameter"]
    assert weight.grad.tolist() == [[2, 2], [2, 2]]


def test_backward_of_a_graph_from_before_the_move_is_an_error(device):
    layer = nn.Linear(2, 2)
    loss = layer(torch.ones(2)).sum()
    layer.to(device)
    with pytest.raises(RuntimeError, match="moved to another device after the forward pass"):
        loss.backward()
    layer(torch.ones(2, device=device)).sum().backward()
    assert layer.weight.grad.device == device


def test_dtype_conversions_keep_parameters(device):
    model = Tied().to(device)
    weight = model.head.weight
    model.to(torch.bfloat16)
    assert model.embedding.weight is model.head.weight is weight
    assert weight.dtype == torch.bfloat16 and weight.device == device
    layer = nn.Linear(2, 2).to(device, torch.float64)
    assert layer.weight.dtype == torch.float64 and layer.weight.device == device


def test_conversions_on_the_cpu_are_those_of_torch():
    layer = nn.Linear(2, 2)
    weight = layer.weight
    assert layer.double().weight is weight and weight.dtype == torch.float64


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.LSTM(3, 4),
        lambda: nn.Sequential(nn.ParameterList([nn.Parameter(torch.ones(2))])),
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)),
        lambda: nn.LazyLinear(3),
        lambda: nn.Linear(2, 2, device="meta"),
    ],
)
def test_modules_of_special_kinds_move(device, make):
    module = make()
    module = module.to_empty(device=device) if is_on_meta(module) else module.to(device)
    assert {parameter.device for parameter in module.parameters()} == {device}


def is_on_meta(module):
    return any(parameter.device.type == "meta" for parameter in module.parameters())


def test_lazy_module_finds_its_sizes_on_the_device(device):
    layer = nn.LazyLinear(3).to(device)
    assert layer(torch.ones(2, 5, device=device)).shape == (2, 3)
    assert layer.weight.shape == (3, 5) and layer.weight.device == device


def test_modules_of_fake_tensors_work():
    with FakeTensorMode():
        layer = nn.Linear(2, 2, device="xla")
        assert layer.weight.device.type == "xla"
        assert layer(torch.ones(3, 2, device="xla")).shape == (3, 2)


def test_ways_of_conversion_that_the_user_chose_hold(device):
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model = Tied()
        weight = model.head.weight
        assert model.to(device).head.weight is weight and weight.device == device
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def test_deepcopy_of_a_module(device):
    model = Tied().to(device)
    copied = copy.deepcopy(model)
    assert copied.head.weight is copied.embedding.weight
    assert copied.head.weight is not model.head.weight
    with torch.no_grad():
        copied.head.weight.zero_()
    assert model.head.weight.abs().sum().item() > 0


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")  # the CPU makes one
def test_transformer_encoder_evaluates_padded_sequences(device):
    """In which it asks for nested tensors before it looks at the device."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    expected_model = nn.TransformerEncoder(layer, 2).eval()
    model = copy.deepcopy(expected_model).to(device)
    sequences = torch.randn(2, 5, 8)
    is_padding = torch.tensor([[False, False, False, True, True], [False] * 5])
    metrics.clear_counters()
    with torch.no_grad(), counted() as counts:
        expected = expected_model(sequences, src_key_padding_mask=is_padding)
        actual = model(sequences.to(device), src_key_padding_mask=is_padding.to(device)).cpu()
    # What stands in padding is arbitrary.
    torch.testing.assert_close(actual[~is_padding], expected[~is_padding])
    assert counts.executed == 1 and not left_the_device()
