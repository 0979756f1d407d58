"""`torch.inference_mode` makes of tensors, views and writes what it makes of them on the CPU."""

from __future__ import annotations

import pytest
import torch

VIEWS = {
    "detach": lambda t: t.detach(),
    "view": lambda t: t.view(-1),
    "select": lambda t: t[0],
    "transpose": lambda t: t.t(),
    "alias": torch.ops.aten.alias,
    "narrow": lambda t: t.narrow(0, 0, 1),
    "split": lambda t: t.split(1)[1],
    "unbind": lambda t: t.unbind()[0],
    "expand": lambda t: t.expand(2, 2, 3),
    "diagonal": lambda t: t.diagonal(),
    "real": lambda t: torch.view_as_real(t.to(torch.complex64)),
    "none": lambda t: t + 1,
}


def outcome(function):
    """The value and what kind of tensor it is, or the error."""
    try:
        t = function()
    except RuntimeError as error:
        return str(error).split(".")[0]
    return t.tolist(), t.is_inference(), t._is_view(), t.requires_grad


def make(device, needs_grad, is_inference):
    with torch.inference_mode(is_inference):
        return torch.arange(6.0).view(2, 3).clone().to(device).requires_grad_(needs_grad)


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_of_the_kind_of_their_base(device, name):
    def kinds(where):
        found = []
        for needs_grad, base_mode, mode in (
            (False, False, True), (True, False, True), (False, True, True), (False, True, False),
            (False, False, False),
        ):  # fmt: skip
            t = make(where, needs_grad, base_mode)
            with torch.inference_mode(mode):
                found.append(outcome(lambda t=t: VIEWS[name](t)))
        return found

    assert kinds(device) == kinds("cpu")


@pytest.mark.parametrize("name", ["view", "select", "transpose", "none"])
def test_writes_reach_the_base_or_are_refused(device, name):
    def written(where):
        found = []
        for base_mode, view_mode, write_mode in (
            (False, True, True), (False, True, False), (True, True, True), (True, True, False),
            (True, False, False), (False, False, True),
        ):  # fmt: skip
            t = make(where, False, base_mode)
            with torch.inference_mode(view_mode):
                v = VIEWS[name](t)
            with torch.inference_mode(write_mode):
                found.append(outcome(lambda v=v: v.mul_(2)))
            found.append(t.tolist())
        return found

    assert written(device) == written("cpu")


def test_modules_compute_and_later_training_works(device):
    torch.manual_seed(0)
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(2, 5, 8)
    attention.eval()
    with torch.inference_mode():
        want = attention(x, x, x)[0]
    attention.to(device)
    with torch.inference_mode():
        got = attention(x.to(device), x.to(device), x.to(device))[0]
    assert got.is_inference()
    torch.testing.assert_close(got.cpu(), want)
    with pytest.raises(RuntimeError, match="Inference tensors"):
        attention.in_proj_weight.mul(got[0, 0, 0])
    y = x.to(device)
    attention(y, y, y)[0].sum().backward()
    assert attention.in_proj_weight.grad.device == device


def test_what_is_detached_may_be_written_outside(device):
    for on in ("cpu", device):
        with torch.inference_mode():
            x = torch.ones(3, device=on) * 2
        detached = x.detach()
        assert detached.is_inference() and detached._version == 0
        assert detached.add_(1).tolist() == x.tolist() == [3, 3, 3]
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
            x.view(3).add_(1)
        x.data = torch.zeros(3, device=on)
        assert x.tolist() == [0, 0, 0] and not x.is_inference()


def test_captured_functions_work(device):
    from torch_xla.experimental.assume_pure import assume_pure
    from torch_xla.experimental.scan import scan

    weight = torch.nn.Parameter(torch.full((3,), 2.0, device=device))
    with torch.inference_mode():
        x = torch.ones(4, 3, device=device)
        total, _ = scan(lambda c, t: (c + t * weight, t), torch.zeros(3, device=device), x)
        assert total.tolist() == [8, 8, 8] and not total.requires_grad
        assert assume_pure(lambda t: t * 2)(x).sum().item() == 24
        flag = torch.tensor(False, device=device)
        assert torch.cond(flag, lambda t: t, lambda t: -t, (x,)).sum().item() == -12
    assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()
