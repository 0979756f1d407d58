"""Products with weights in int8."""

from __future__ import annotations

import pytest
import torch

from torch_xla.debug import metrics
from torch_xla.experimental.xla_quantized_matmul import XlaQuantizedLinear

WEIGHT = torch.tensor([[1, -2, 3], [100, 0, -128]], dtype=torch.int8)
SCALE = torch.tensor([0.5, 0.25])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("zero_point", [None, torch.tensor([1.0, -3.0])])
def test_product_is_that_of_the_weight_it_stands_for(device, dtype, zero_point):
    x = torch.randn(2, 4, 3).to(dtype)
    layer = XlaQuantizedLinear(3, 2, is_symmetric=zero_point is None).to(device)
    layer.load_quantized_weight(WEIGHT, SCALE, zero_point)
    meant = WEIGHT.float() * SCALE[:, None]
    if zero_point is not None:
        meant = meant - zero_point[:, None]
    want = x.float() @ meant.T
    got = layer(x.to(device))
    assert got.dtype == dtype and layer.weight.dtype == torch.int8
    torch.testing.assert_close(
        got.cpu().float(), want, rtol=3e-2, atol=0.3 if dtype != torch.float32 else 1e-4
    )
    by_operator = torch.ops.xla.quantized_matmul(
        x.to(device), layer.weight, layer.weight_scaler, layer.zero_point
    )
    assert torch.equal(by_operator.cpu(), got.cpu())


@pytest.mark.parametrize("has_zero_point", [False, True])
@pytest.mark.parametrize("int4_weight", [False, True])
def test_blocks_of_inputs_have_their_own_factors(device, int4_weight, has_zero_point):
    weight = torch.randint(-8, 8, (3, 2, 5), dtype=torch.int8)  # blocks, inputs, outputs
    scale = torch.rand(3, 5)
    zero_point = torch.randn(3, 5) if has_zero_point else None
    meant = weight * scale[:, None]
    if zero_point is not None:
        meant = meant - zero_point[:, None]
    x = torch.randn(4, 6)
    layer = XlaQuantizedLinear(6, 5, block_size=2, int4_weight=int4_weight)
    layer.load_quantized_weight(weight, scale, zero_point)
    want = x @ meant.reshape(6, 5)
    torch.testing.assert_close(layer(x), want)
    torch.testing.assert_close(layer.to(device)(x.to(device)).cpu(), want, rtol=1e-4, atol=1e-4)
    again = XlaQuantizedLinear(6, 5, is_symmetric=not has_zero_point, block_size=2).to(device)
    again.load_state_dict(layer.state_dict())
    torch.testing.assert_close(again(x.to(device)).cpu(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("zero_point", [None, torch.tensor([0.5, -1.0])])
def test_activations_are_rounded_to_whole_numbers_per_row(device, zero_point):
    # Rows that are whole numbers once they are divided by their factors, and one of zeros.
    x = torch.tensor([[127.0, -3, 5], [12.7, 0.3, -0.6], [0, 0, 0]])
    layer = XlaQuantizedLinear(3, 2, quantize_activation=True)
    layer.load_quantized_weight(WEIGHT, SCALE, zero_point)
    meant = WEIGHT.float() * SCALE[:, None]
    if zero_point is not None:
        meant = meant - zero_point[:, None]
    for where in ("cpu", device):
        got = layer.to(where)(x.to(where)).cpu()
        torch.testing.assert_close(got, x @ meant.T, rtol=1e-4, atol=1e-4)
    rounded = layer(torch.tensor([[127.0, 0.4, -1.6]], device=device)).cpu()
    torch.testing.assert_close(rounded, torch.tensor([[127.0, 0, -2]]) @ meant.T)


def test_layer_is_a_graph_of_torch_compile(device):
    torch.compiler.reset()
    layer = XlaQuantizedLinear(3, 2).to(device)
    layer.load_quantized_weight(WEIGHT, SCALE)
    x = torch.randn(4, 3, device=device)
    with torch.no_grad():
        got = torch.compile(layer, backend="openxla", fullgraph=True)(x)
        torch.testing.assert_close(got.cpu(), layer(x).cpu())


def test_what_is_not_such_a_weight_is_refused(device):
    product = torch.ops.xla.quantized_matmul
    x, weight, scale = torch.ones(1, 3, device=device), WEIGHT.to(device), SCALE.to(device)
    with pytest.raises(TypeError, match=r"a weight of int8, got torch\.float32"):
        product(x, weight.float(), scale)
    with pytest.raises(ValueError, match=r"a scale of shape \(2,\), got \(1,\)"):
        product(x, weight, scale[:1])
    with pytest.raises(ValueError, match=r"a weight of shape \(2, 3\), got \(2, 2\)"):
        product(x, weight[:, :2], scale)
    with pytest.raises(ValueError, match=r"a zero_point of shape \(2,\), got \(2, 1\)"):
        product(x, weight, scale, scale[:, None])
    for size in (2, 0, -2):
        with pytest.raises(ValueError, match="block_size must divide the 3 inputs"):
            product(x, weight, scale, block_size=size)
    with pytest.raises(ValueError, match="needs one factor per output"):
        product(x, weight.T[:, None], scale.expand(3, 2), block_size=1, quantize_activation=True)
    layer = XlaQuantizedLinear(3, 1, is_symmetric=True)
    with pytest.raises(ValueError, match="expected 1 outputs, got 2"):
        layer.load_quantized_weight(WEIGHT, SCALE)
    with pytest.raises(ValueError, match="is_symmetric=False"):
        layer.load_quantized_weight(WEIGHT[:1], SCALE[:1], SCALE[:1])


def test_quantization_of_exported_models_is_that_of_the_cpu(device):
    from torch.ao.quantization.fx import _decomposed  # noqa: F401 (registers the operators)

    from torch_xla.stablehlo import exported_program_to_stablehlo

    ops = torch.ops.quantized_decomposed

    class Model(torch.nn.Module):
        def forward(self, x, scales, zeros):
            one = ops.quantize_per_tensor(x, 0.1, 3, -128, 127, torch.int8)
            each = ops.quantize_per_channel(x, scales, zeros, 0, -128, 127, torch.int8)
            return (
                ops.dequantize_per_tensor(one, 0.1, 3, -128, 127, torch.int8),
                ops.dequantize_per_channel(each, scales, zeros, 0, -128, 127, torch.int8),
            )

    args = (torch.randn(2, 50) * 10, torch.tensor([0.1, 0.2]), torch.tensor([0, -5]))
    want = Model()(*args)
    metrics.clear_all()
    for got in (
        Model()(*(arg.to(device) for arg in args)),
        exported_program_to_stablehlo(torch.export.export(Model(), args))(*args),
    ):
        for one, other in zip(got, want, strict=True):
            assert torch.equal(one.cpu(), other)
    assert metrics.executed_fallback_ops() == []
