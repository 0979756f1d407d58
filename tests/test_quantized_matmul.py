"""Products with weights in int8."""

from __future__ import annotations

import pytest
import torch

from torch_xla.experimental.xla_quantized_matmul import XlaQuantizedLinear

WEIGHT = torch.tensor([[1, -2, 3], [100, 0, -128]], dtype=torch.int8)
SCALE = torch.tensor([0.5, 0.25])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("zero_point", [None, torch.tensor([1.0, -3.0])])
def test_product_is_that_of_the_weight_it_stands_for(device, dtype, zero_point):
    x = torch.randn(2, 4, 3).to(dtype)
    layer = XlaQuantizedLinear(3, 2, is_symmetric=zero_point is None).to(device)
    layer.load_quantized_weight(WEIGHT, SCALE, zero_point)
    meant = WEIGHT.float() if zero_point is None else WEIGHT.float() - zero_point[:, None]
    want = x.float() @ (meant * SCALE[:, None]).T
    got = layer(x.to(device))
    assert got.dtype == dtype and layer.weight.dtype == torch.int8
    torch.testing.assert_close(
        got.cpu().float(), want, rtol=3e-2, atol=0.3 if dtype != torch.float32 else 1e-4
    )
    by_operator = torch.ops.xla.quantized_matmul(
        x.to(device), layer.weight, layer.weight_scaler, layer.zero_point
    )
    assert torch.equal(by_operator.cpu(), got.cpu())


def test_what_is_not_such_a_weight_is_refused(device):
    product = torch.ops.xla.quantized_matmul
    x, weight, scale = torch.ones(1, 3, device=device), WEIGHT.to(device), SCALE.to(device)
    with pytest.raises(TypeError, match=r"a weight of int8, got torch\.float32"):
        product(x, weight.float(), scale)
    with pytest.raises(ValueError, match="a factor for each output"):
        product(x, weight, scale[:1])
    with pytest.raises(NotImplementedError, match="block_size=32"):
        product(x, weight, scale, block_size=32)
    with pytest.raises(NotImplementedError, match="int4_weight=True"):
        XlaQuantizedLinear(3, 2, int4_weight=True)
    with pytest.raises(ValueError, match="is_symmetric=False"):
        XlaQuantizedLinear(3, 2).load_quantized_weight(WEIGHT, SCALE, SCALE)
