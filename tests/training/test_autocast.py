"""Autocast runs operators in the types that PyTorch's CUDA policies say."""

from __future__ import annotations

import pytest
import torch
from counts import counted
from torch import nn

import torch_xla
from torch_xla.amp import autocast
from torch_xla.debug import metrics

LOWER = [torch.bfloat16, torch.float16]


def autocast_operators(key):
    """The operators for which `key` has a kernel of its own."""
    names = torch._C._dispatch_get_all_op_names()
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return {name for name in names if name.startswith("aten::") and has(name, key)}


def test_policies_cover_the_operators_of_cuda():
    of_cuda = autocast_operators("AutocastCUDA")
    assert len(of_cuda) > 100
    only_cuda = {name for name in of_cuda if "cudnn" in name}
    assert autocast_operators("AutocastXLA") == of_cuda - only_cuda


def test_context_has_a_device_type_and_a_default_dtype(device):
    assert torch.amp.is_autocast_available("xla")
    with torch.autocast("xla"):
        assert torch.get_autocast_dtype("xla") == torch.bfloat16
        assert torch.is_autocast_enabled("xla") and not torch.is_autocast_enabled("cpu")
    for spelling in (device, "xla", "xla:0"):
        with autocast(spelling):
            assert torch.is_autocast_enabled("xla")
        with autocast(spelling, enabled=False):
            assert not torch.is_autocast_enabled("xla")
    with autocast(torch.device("cpu")):
        assert torch.is_autocast_enabled("cpu")
    with pytest.warns(UserWarning, match="only supports dtypes"):
        autocast(device, dtype=torch.float64)


@pytest.mark.parametrize("dtype", LOWER, ids=str)
def test_matrix_products_and_convolutions_run_in_the_lower_precision(device, dtype):
    a, b = torch.randn(4, 5), torch.randn(5, 6)
    image, kernel = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
    cases = [
        (torch.mm, (a, b)),
        (torch.matmul, (a, b)),
        (torch.nn.functional.linear, (a, torch.randn(6, 5), torch.randn(6))),
        (torch.addmm, (torch.randn(6), a, b)),
        (torch.bmm, (torch.randn(2, 3, 4), torch.randn(2, 4, 5))),
        (torch.nn.functional.conv2d, (image, kernel)),
        (torch.nn.functional.prelu, (a, torch.rand(1))),
        (
            torch.nn.functional.scaled_dot_product_attention,
            (torch.randn(1, 2, 4, 8), torch.randn(1, 2, 4, 8), torch.randn(1, 2, 4, 8)),
        ),
    ]
    for function, args in cases:
        with torch.autocast("xla", dtype=dtype):
            got = function(*(t.to(device) for t in args))
        assert got.dtype == dtype, function
        want = function(*(t.to(dtype).float() for t in args))
        torch.testing.assert_close(
            got.cpu().float(), want, rtol=0.03, atol=0.03, msg=lambda m, f=function: f"{f}: {m}"
        )


@pytest.mark.parametrize("dtype", LOWER, ids=str)
def test_sums_logarithms_and_losses_run_in_float32(device, dtype):
    x = torch.rand(3, 4, dtype=torch.float32).to(dtype) + 0.5
    target = torch.tensor([0, 3, 1])
    cases = [
        lambda t, _: t.exp(),
        lambda t, _: t.log(),
        lambda t, _: t**2.0,
        lambda t, _: t.sum(),
        lambda t, _: t.sum(0),
        lambda t, _: t.prod(),
        lambda t, _: t.cumsum(0),
        lambda t, _: t.norm(2),
        lambda t, _: t.softmax(-1),
        lambda t, _: nn.functional.layer_norm(t, (4,)),
        lambda t, target: nn.functional.nll_loss(t.log_softmax(-1), target),
        lambda t, _: nn.functional.mse_loss(t, torch.zeros_like(t)),
        lambda t, _: nn.functional.binary_cross_entropy_with_logits(t, torch.zeros_like(t)),
    ]
    for i, case in enumerate(cases):
        with torch.autocast("xla", dtype=dtype):
            got = case(x.to(device), target.to(device))
        assert got.dtype == torch.float32, i
        torch.testing.assert_close(got.cpu(), case(x.float(), target), rtol=2e-5, atol=1e-6)


def test_what_no_policy_names_keeps_its_type(device):
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(3, dtype=dtype, device=device)
        with torch.autocast("xla"):
            assert (x + 1).dtype == (x * x).dtype == torch.relu(x).dtype == dtype


def test_some_run_in_the_widest_type_of_their_arguments(device):
    half, full = torch.rand(3, device=device).bfloat16(), torch.rand(3, device=device)
    with torch.autocast("xla"):
        assert torch.dot(half, full).dtype == torch.float32
        assert torch.dot(half, half).dtype == torch.bfloat16
        assert torch.addcmul(full, half, half).dtype == torch.float32
        assert torch.atan2(half, full).dtype == torch.float32


def test_float64_integers_and_the_cpu_are_left_alone(device):
    double = torch.randn(3, 3, dtype=torch.float64, device=device)
    with torch.autocast("xla"):
        assert (double @ double).dtype == torch.float64
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
        assert torch.arange(3, device=device).sum().dtype == torch.int64
    a = torch.ones(2, 2, device=device)
    with torch.autocast("cpu"):
        assert (a @ a).dtype == torch.float32


def test_binary_cross_entropy_is_refused(device):
    p = torch.rand(3, device=device)
    with (
        torch.autocast("xla"),
        pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"),
    ):
        nn.functional.binary_cross_entropy(p, p)


def test_parameters_are_converted_once_per_context(device):
    layer = nn.Linear(4, 4, bias=False).to(device)
    x = torch.randn(2, 4, device=device)

    def conversions(cache):
        metrics.clear_all()
        with autocast(device, cache_enabled=cache):
            layer(layer(layer(x)))
        return metrics.counter_value("xla::_to_copy")

    # The input's conversion, and the weight's: at its first use, or at each.
    assert conversions(True) == 2
    assert conversions(False) == 4


@pytest.mark.parametrize("dtype", LOWER, ids=str)
def test_training_follows_float32(device, dtype):
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 3))
    x, y = torch.randn(32, 8), torch.randint(0, 3, (32,))

    def train(module, data, target, context):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.2)
        losses = []
        for _ in range(5):
            optimizer.zero_grad()
            with context():
                loss = nn.functional.cross_entropy(module(data), target)
            assert loss.dtype == torch.float32
            loss.backward()
            optimizer.step()
            torch_xla.sync()
            losses.append(loss.detach())
        return torch.stack(losses).cpu()

    import copy

    want = train(
        copy.deepcopy(model), x, y, lambda: torch.autocast("cpu", dtype=dtype, enabled=False)
    )
    on_device = copy.deepcopy(model).to(device)
    xd, yd = x.to(device), y.to(device)
    with counted() as counts:
        got = train(on_device, xd, yd, lambda: autocast(device, dtype=dtype))
    # One program per step, and one that stacks the losses.
    assert counts.executed == 6
    assert all(p.grad.dtype == p.dtype == torch.float32 for p in on_device.parameters())
    torch.testing.assert_close(got, want, rtol=0.03, atol=0.03)
    assert got[-1] < got[0]


def test_gradients_of_the_lower_precision_are_saved_in_it(device):
    saved = []
    weight = torch.randn(4, 4, device=device, requires_grad=True)
    x = torch.randn(2, 4, device=device)
    with (
        torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.dtype) or t, lambda t: t),
        torch.autocast("xla"),
    ):
        x @ weight
    assert saved and set(saved) == {torch.bfloat16}


def test_decorator(device):
    @torch.autocast("xla", dtype=torch.float16)
    def product(a):
        return a @ a

    assert product(torch.ones(2, 2, device=device)).dtype == torch.float16
