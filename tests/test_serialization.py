"""`torch.save`, `torch.load`, `xm.save`, copies and pickles."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch import nn

import torch_xla.core.xla_model as xm

DTYPES = [
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
]


def save_and_load(data, save=torch.save, **how):
    buffer = io.BytesIO()
    save(data, buffer)
    buffer.seek(0)
    return torch.load(buffer, **how)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_come_back_where_they_were(device, dtype):
    tensor = torch.arange(6, device=device).to(dtype).reshape(2, 3)
    loaded = save_and_load(tensor)
    assert loaded.device == device and loaded.dtype == dtype
    assert torch.equal(loaded.cpu(), tensor.cpu())


@pytest.mark.parametrize("location", ["cpu", "xla", "xla:0", torch.device("xla")])
@pytest.mark.parametrize("source", ["cpu", "xla"])
def test_map_location(location, source):
    data = {"a": torch.ones(2, device=source), "b": [torch.zeros((), device=source)]}
    loaded = save_and_load(data, map_location=location)
    assert loaded["a"].device.type == torch.device(location).type
    assert loaded["a"].tolist() == [1, 1] and loaded["b"][0].item() == 0


def test_map_location_as_a_dictionary_or_function(device):
    tensor = torch.ones(2)
    assert save_and_load(tensor, map_location={"cpu": "xla:0"}).device == device
    loaded = save_and_load(tensor, map_location=lambda storage, location: storage)
    assert loaded.device.type == "cpu"


def test_missing_device_is_an_error_at_the_load():
    with pytest.raises(RuntimeError, match="device index 99 does not exist"):
        save_and_load(torch.ones(2), map_location="xla:99")


def test_tensors_of_one_storage_share_memory_after_the_load(device):
    base = torch.arange(6.0)
    loaded = save_and_load([base, base[1:3], base.view(2, 3).t(), base], map_location=device)
    loaded[0].add_(1)
    assert loaded[1].tolist() == [2, 3]
    assert loaded[2].tolist() == [[1, 4], [2, 5], [3, 6]]
    loaded[3].zero_()
    assert loaded[1].tolist() == [0, 0]
    part, whole = save_and_load([base[2:4], base], map_location=device)
    whole[2] = 7
    assert part.tolist() == [7, 3]


def test_strides_survive(device):
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    loaded = save_and_load(image, map_location=device)
    assert loaded.stride() == image.stride()
    assert torch.equal(loaded.cpu(), image)


def test_requires_grad_survives(device):
    tensor = torch.ones(2, device=device, requires_grad=True)
    loaded = save_and_load(tensor)
    assert loaded.requires_grad and loaded.is_leaf
    parameter = save_and_load(nn.Parameter(tensor.detach()))
    assert isinstance(parameter, nn.Parameter) and parameter.device == device


def test_whole_training_state(device):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(5, 3, device=device)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    for save in (torch.save, xm.save):
        loaded = save_and_load(state, save)
        other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).to(device)
        other.load_state_dict(loaded["model"])
        other_optimizer = torch.optim.AdamW(other.parameters())
        other_optimizer.load_state_dict(loaded["optimizer"])
        for a, b in zip(model.parameters(), other.parameters(), strict=True):
            assert torch.equal(a.cpu(), b.cpu())
        moments = [s["exp_avg"] for s in other_optimizer.state.values()]
        assert {moment.device for moment in moments} == {device}


def test_xm_save_writes_cpu_tensors_and_leaves_the_data_alone(device):
    tied = nn.Parameter(torch.ones(2, device=device))
    data = {"a": tied, "again": tied, "list": [torch.zeros(1, device=device)], "text": "x"}
    loaded = save_and_load(data, xm.save)
    assert loaded["a"] is loaded["again"] and isinstance(loaded["a"], nn.Parameter)
    assert loaded["a"].device.type == loaded["list"][0].device.type == "cpu"
    assert loaded["text"] == "x"
    assert data["a"] is tied and data["list"][0].device == device


def test_xm_save_of_a_module(device):
    model = nn.Linear(2, 2).to(device)
    loaded = save_and_load(model, xm.save, weights_only=False)
    assert loaded.weight.device.type == "cpu" and model.weight.device == device
    assert torch.equal(loaded.weight, model.weight.cpu())


def test_xm_save_keeps_the_kinds_of_containers(device):
    state = nn.BatchNorm1d(2).to(device).state_dict()
    loaded = save_and_load(state, xm.save)
    assert type(loaded) is type(state) and loaded._metadata == state._metadata


def test_pickle(device):
    tensor = torch.arange(3, device=device)
    loaded = pickle.loads(pickle.dumps(tensor))
    assert loaded.device == device and loaded.tolist() == [0, 1, 2]


@pytest.mark.parametrize("copy_tensor", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_copies_are_deep(device, copy_tensor, requires_grad):
    tensor = torch.zeros(2, device=device, requires_grad=requires_grad)
    copied = copy_tensor(tensor)
    assert copied.device == device and copied.requires_grad == requires_grad
    with torch.no_grad():
        copied.add_(1)
    assert tensor.tolist() == [0, 0] and copied.tolist() == [1, 1]


def test_storages_are_refused_with_a_reason(device):
    tensor = torch.ones(2, device=device)
    with pytest.raises(NotImplementedError, match="no storage"):
        torch.zeros(2, device=device).set_(tensor.untyped_storage(), 0, (2,), (1,))
