"""Matrix products in the precision that was asked for, and float8 tensors."""

from __future__ import annotations

import pytest
import torch

import torch_xla
from torch_xla import backends

FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.fixture
def precision():
    before = backends.get_mat_mul_precision()
    yield backends.set_mat_mul_precision
    backends.set_mat_mul_precision(before)


def product_text(device):
    a = torch.ones(4, 4, device=device)
    torch_xla.sync()
    kept = (a @ a, torch.nn.functional.conv1d(a[None], a[:, :, None]))
    text = torch_xla._XLAC._pending_program(0)
    assert [t.sum().item() for t in kept] == [64, 64]
    return text


def test_precision_reaches_products_and_the_compile_key(device, precision):
    precision("default")
    assert "precision_config" not in product_text(device)
    for name in ("high", "highest"):
        torch_xla.runtime.clear_computation_cache()
        precision(name)
        assert backends.get_mat_mul_precision() == name
        assert product_text(device).count(f"#stablehlo<precision {name.upper()}>") >= 2
    compiled = torch_xla.runtime.get_num_cached_compilation_graph()
    precision("default")
    product_text(device)
    assert torch_xla.runtime.get_num_cached_compilation_graph() > compiled


def test_unknown_precision_is_an_error(precision):
    with pytest.raises(ValueError, match="got 'exact'"):
        precision("exact")


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_float8_tensors_go_there_and_back(device, dtype):
    x = torch.tensor([0.0, -0.0, 1.0, -2.5, 448.0, 0.013, float("nan")]).to(dtype)
    back = x.to(device).cpu()
    assert back.dtype == dtype
    assert torch.equal(back.view(torch.uint8), x.view(torch.uint8))
    assert x.to(device).reshape(7, 1).t().shape == (1, 7)
    assert torch.equal(
        torch.cat([x.to(device)] * 2)[7:].cpu().view(torch.uint8), x.view(torch.uint8)
    )


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
@pytest.mark.parametrize("other", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_casts_to_and_from_float8_round_as_the_cpu(device, dtype, other):
    x = torch.cat([torch.linspace(-40, 40, 173), torch.tensor([0.001, 0.01, 300.0])]).to(other)
    want, got = x.to(dtype), x.to(device).to(dtype)
    assert got.dtype == dtype
    assert torch.equal(got.cpu().view(torch.uint8), want.view(torch.uint8))
    assert torch.equal(got.to(other).cpu(), want.to(other))


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_scaled_matrix_product(device, dtype):
    # PyTorch multiplies no two matrices of float8_e5m2.
    a, b = torch.randn(16, 32).to(dtype), torch.randn(16, 32).to(torch.float8_e4m3fn)
    scale_a, scale_b = torch.tensor(0.5), torch.tensor(2.0)
    want = (a.float() * scale_a) @ (b.float() * scale_b).t()
    for out in (torch.float32, torch.bfloat16):
        got = torch._scaled_mm(
            a.to(device),
            b.to(device).t(),
            scale_a=scale_a.to(device),
            scale_b=scale_b.to(device),
            out_dtype=out,
        )
        assert got.dtype == out
        torch.testing.assert_close(got.cpu().float(), want, rtol=0.01, atol=0.01)
    assert torch_xla.debug.metrics.executed_fallback_ops() == []
