"""Storages that give their memory back while tensors go on standing for it, as FSDP's do."""

from __future__ import annotations

import copy

import pytest
import torch

import torch_xla
from torch_xla.experimental.scan import scan


def bytes_held() -> int:
    return sum(array[0] for array in torch_xla._XLAC._live_arrays(0))


def test_memory_is_given_back_and_taken_again(device):
    x = torch.ones(1000, 100, device=device)
    row, other = x[3], torch.full((10,), 2.0, device=device)
    torch_xla.sync(wait=True)
    before = bytes_held()
    storage = x.untyped_storage()
    assert storage.resize_(0) is storage and storage.size() == 0
    torch_xla.sync(wait=True)
    assert bytes_held() <= before - 400_000
    assert row.untyped_storage().size() == 0 and x.clone().shape == (1000, 100)
    storage.resize_(400_000)
    assert row.untyped_storage().size() == 400_000
    x.copy_(torch.full((1000, 100), 5.0))
    assert row.sum().item() == 500 and other.sum().item() == 20


def test_what_reads_memory_that_was_given_back_fails_alone(device):
    x = torch.ones(4, 3, device=device)
    alone = torch.zeros(2, device=device)
    computed = x * 2
    x.untyped_storage().resize_(0)
    late, part = x + 1, x[1]
    alone += 1
    torch_xla.sync()
    assert alone.tolist() == [1, 1] and computed.sum().item() == 24
    part.fill_(7)  # there is nothing to write to either
    for lost in (x, part, late, copy.deepcopy(x), x.view(-1)[2:5]):
        with pytest.raises(RuntimeError, match="was given back"):
            lost.tolist()
    x.untyped_storage().resize_(48)
    x.fill_(3)
    assert part.tolist() == [3, 3, 3] and alone.tolist() == [1, 1]


def test_backward_reads_what_was_gathered_again(device):
    whole = torch.arange(6.0, device=device)
    weight = torch.nn.Parameter(whole.as_strided((2, 3), (3, 1), 0))
    x = torch.ones(4, 3, device=device, requires_grad=True)
    loss = torch.nn.functional.linear(x, weight).sum()
    whole.untyped_storage().resize_(0)
    torch_xla.sync()
    whole.untyped_storage().resize_(24)
    with torch.autograd._unsafe_preserve_version_counter(whole):
        whole.copy_(torch.arange(6.0) * 10)
    loss.backward()
    assert x.grad.tolist() == [[30, 50, 70]] * 4 and loss.item() == 60


def test_other_sizes_are_refused(device):
    x = torch.ones(4, 3, device=device)
    for size in (24, 96, -1):
        with pytest.raises(RuntimeError, match=rf"takes 0 bytes .* or the 48 .* got {size}"):
            x.untyped_storage().resize_(size)
    assert x.untyped_storage().resize_(48).size() == 48 and x.sum().item() == 12
    assert torch.ones(3).untyped_storage().resize_(4).size() == 4


def test_what_stands_for_a_tensor_in_a_captured_function_has_a_storage(device):
    found = []

    def step(carry, x):
        found.extend(t.untyped_storage().size() for t in (carry, x))
        return carry + x, carry * 2

    scan(step, torch.zeros(3, device=device), torch.ones(4, 3, device=device))
    assert found and set(found) == {12}
