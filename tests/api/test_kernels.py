"""Names of TPU kernels give the same results by ordinary operators; readiness; closures."""

from __future__ import annotations

import threading

import pytest
import torch
from counts import counted, left_the_device
from torch import nn

import torch_xla.distributed.spmd as xs
from torch_xla.debug import metrics
from torch_xla.experimental import callback, custom_kernel
from torch_xla.utils.closures import AsyncClosureHandler


def reference(q, k, v, mask, scale, bias=0.0):
    scores = (q @ k.transpose(-1, -2)) * scale + bias
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v


def test_flash_attention(device):
    q, k, v = (torch.randn(2, 3, 5, 4) for _ in range(3))
    on_device = [t.to(device) for t in (q, k, v)]
    everything = torch.ones(5, 5, dtype=torch.bool)
    got = custom_kernel.flash_attention(*on_device)
    torch.testing.assert_close(got.cpu(), reference(q, k, v, everything, 1.0))
    got = custom_kernel.flash_attention(*on_device, causal=True, sm_scale=0.5)
    torch.testing.assert_close(got.cpu(), reference(q, k, v, everything.tril(), 0.5))
    ids = torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 2, 2]])
    same_segment = ids[:, None, :, None] == ids[:, None, None, :]
    ab = torch.randn(1, 3, 5, 5)
    got = custom_kernel.FlashAttention.apply(
        *on_device, True, ids.to(device), ids.to(device), 2.0, ab.to(device)
    )
    want = reference(q, k, v, same_segment & everything.tril(), 2.0, ab)
    torch.testing.assert_close(got.cpu(), want)
    with pytest.raises(ValueError, match="both q_segment_ids and kv_segment_ids"):
        custom_kernel.flash_attention(*on_device, q_segment_ids=ids.to(device))


def test_flash_attention_has_gradients(device):
    inputs = [torch.randn(1, 1, 4, 4) for _ in range(3)]
    want = [t.clone().requires_grad_() for t in inputs]
    got = [t.to(device).requires_grad_() for t in inputs]
    reference(*want, torch.ones(4, 4, dtype=torch.bool).tril(), 1.0).sum().backward()
    custom_kernel.flash_attention(*got, causal=True).sum().backward()
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a.grad.cpu(), b.grad)


def test_grouped_products(device):
    lhs, rhs, sizes = torch.randn(6, 3), torch.randn(3, 3, 4), torch.tensor([2, 0, 4])
    want = torch.cat([lhs[:2] @ rhs[0], lhs[2:] @ rhs[2]])
    got = custom_kernel.gmm(lhs.to(device), rhs.to(device), sizes.to(device))
    torch.testing.assert_close(got.cpu(), want)
    other = torch.randn(6, 4)
    want = torch.stack([lhs[:2].t() @ other[:2], torch.zeros(3, 4), lhs[2:].t() @ other[2:]])
    got = custom_kernel.tgmm(lhs.t().to(device), other.to(device), sizes.to(device))
    torch.testing.assert_close(got.cpu(), want)
    assert metrics.executed_fallback_ops() == []


@pytest.mark.parametrize("ends", [(2, 5, 8), (0, 0, 8), (3, 3, 8)])
@pytest.mark.parametrize(
    "shapes",
    [((8, 4), (3, 4, 8)), ((3, 4, 8), (8, 8)), ((4, 8), (8, 4)), ((3, 8, 4), (3, 4, 8))],
    ids=["rows", "columns", "each", "batch"],
)
def test_grouped_mm_agrees_with_cpu(device, shapes, ends):
    """Values and gradients."""
    torch.manual_seed(0)
    operands = [torch.randn(shape) for shape in shapes]
    offsets = None if len(shapes[0]) == len(shapes[1]) == 3 else torch.tensor(ends).int()
    results = []
    metrics.clear_counters()
    for place in ("cpu", device):
        mat_a, mat_b = (x.to(place).detach().requires_grad_() for x in operands)
        offs = None if offsets is None else offsets.to(place)
        product = nn.functional.grouped_mm(mat_a, mat_b, offs=offs)
        weight = torch.arange(product.numel(), device=place).view(product.shape) * 0.1
        gradients = torch.autograd.grad(product, (mat_a, mat_b), weight)
        results.append([x.detach().cpu() for x in (product, *gradients)])
    torch.testing.assert_close(*reversed(results), rtol=1e-5, atol=1e-4)
    assert not left_the_device()


def test_grouped_mm_of_large_groups_takes_tiles(device):
    torch.manual_seed(0)
    rows, matrices = torch.randn(700, 5), torch.randn(4, 5, 3)
    offsets = torch.tensor([10, 10, 600, 650], dtype=torch.int32)
    expected = [
        part @ matrix
        for part, matrix in zip(rows.split([10, 0, 590, 50, 50]), matrices, strict=False)
    ]
    actual = torch._grouped_mm(rows.to(device), matrices.to(device), offsets.to(device)).cpu()
    torch.testing.assert_close(actual, torch.cat([*expected, torch.zeros(50, 3)]))


def test_groups_of_other_sizes_compile_nothing(device):
    rows, matrices = torch.randn(7, 5, device=device), torch.randn(3, 5, 3, device=device)
    compiled = []
    for ends in ([1, 2, 7], [0, 7, 7], [3, 4, 5]):
        offsets = torch.tensor(ends, dtype=torch.int32, device=device)
        with counted() as counts:
            torch._grouped_mm(rows, matrices, offsets).cpu()
        compiled.append(counts.compiled)
    assert compiled[1:] == [0, 0]


def test_bad_grouped_mm_is_refused_at_the_call(device):
    rows, matrices = torch.randn(8, 4), torch.randn(3, 4, 8)
    ends = torch.tensor([2, 5, 8], dtype=torch.int32)
    for bad in (
        (rows.double(), matrices.double(), ends),
        (rows, matrices.bfloat16(), ends),
        (rows[0], matrices, ends),
        (torch.randn(8, 8), matrices, ends),
        (rows, matrices, None),
        (rows, matrices, ends[None]),
        (rows, matrices, ends.long()),
        (rows, matrices, ends[:2]),
        (matrices, matrices, ends),
    ):
        messages = []
        for place in ("cpu", device):
            moved = [x if x is None else x.to(place) for x in bad]
            with pytest.raises(RuntimeError) as caught:
                torch._grouped_mm(*moved)
            messages.append(str(caught.value))
        assert messages[1].endswith(messages[0])


def test_pallas_is_refused_with_a_reason():
    for call in (
        lambda: custom_kernel.make_kernel_from_pallas(print, print),
        lambda: custom_kernel.trace_pallas(print),
    ):
        with pytest.raises(NotImplementedError, match="Pallas kernels are compiled by JAX"):
            call()


def test_readiness_is_told(device):
    x = torch.ones(3, device=device) + 1
    called = threading.Event()
    callback.on_ready_callback(x, called.set)
    assert called.wait(timeout=20)
    assert callback.on_ready_event(x * 2).wait(timeout=20)


def test_closures_run_in_order_and_failures_show():
    seen = []
    handler = AsyncClosureHandler(max_queue_size=2)
    handler.run_all([lambda i=i: seen.append(i) for i in range(5)])
    assert seen == list(range(5))

    def fail():
        raise LookupError("on purpose")

    with pytest.raises(RuntimeError, match="closure failed: on purpose"):
        handler.run_all([fail, lambda: seen.append(9)])
    handler.run_all([lambda: seen.append(7)])
    assert seen[-1] == 7 and 9 not in seen


def test_linear_layers_by_einsum(device):
    linear = nn.Linear(4, 3)
    x = torch.randn(2, 5, 4)
    want = linear(x)
    patched = xs.apply_xla_patch_to_nn_linear(nn.Sequential(nn.Linear(4, 3)))
    patched[0].load_state_dict(linear.state_dict())
    einsum = xs.EinsumLinear(4, 3)
    einsum.load_state_dict(linear.state_dict())
    xd = x.to(device)
    torch.testing.assert_close(patched.to(device)(xd).cpu(), want)
    torch.testing.assert_close(einsum.to(device)(xd).cpu(), want)
    got = xs.XLAPatchedLinear.apply(xd, linear.weight.to(device), linear.bias.to(device))
    torch.testing.assert_close(got.cpu(), want)
