"""PyTorch's core ATen set and its primitives, the two sets that compilers and exporters build on:
nothing in them leaves the device."""

from __future__ import annotations

import counts
import op_coverage
import op_samples
import pytest
import torch
import torch._prims
from torch.testing._internal.common_methods_invocations import python_ref_db

import torch_xla
from torch_xla._XLAC import _clear_counters, _lowered_operators

prims = torch.ops.prims

# Core operators that are not recorded, each with its reason.
_NOT_RECORDED = {
    "nonzero": "its result is sized by its input's values: one barrier",
}


def _left_the_device():
    return counts.left_the_device() - {"aten::_local_scalar_dense"}


def test_core_operators_stay_on_the_device():
    lowered = set(_lowered_operators())
    found = {
        name: op_coverage.outcome(name, op, lowered)
        for name, op in op_coverage.overloads().items()
        if torch.Tag.core in op.tags
    }
    assert len(found) > 180
    assert not {name for name, outcome in found.items() if outcome == "fallback"}
    left = {name for name, outcome in found.items() if outcome in ("sized by data", "host call")}
    assert left == set(_NOT_RECORDED)


def _arguments(name, device):
    """What the primitive is called with: positional and by name."""
    torch.manual_seed(0)
    x = torch.rand(2, 3).to(device) * 0.8 + 0.1
    y = torch.rand(2, 3).to(device) + 0.5
    integers = torch.arange(6, device=device).reshape(2, 3)
    shifts = torch.full((2, 3), 2, device=device)
    z = torch.complex(x, y)
    made = {"dtype": torch.float32, "device": torch.device(device), "requires_grad": False}
    special = {
        "acosh": ((x + 1,), {}),
        "as_strided": ((x, [2, 2], [3, 1], 1), {}),
        "as_strided_scatter": ((x, y[:, :2], [2, 2], [3, 1], 1), {}),
        "bitwise_not": ((integers,), {}),
        "broadcast_in_dim": ((x, [2, 4, 3], [0, 2]), {}),
        "cat": (([x, y], 1), {}),
        "collapse": ((x, 0, 1), {}),
        "collapse_view": ((x, 0, 1), {}),
        "clone": ((x,), {"memory_format": torch.preserve_format}),
        "conj": ((z,), {}),
        "conj_physical": ((z,), {}),
        "convert_element_type": ((x, torch.float64), {}),
        "copy_strided": ((x, [1, 2]), {}),
        "copy_to": ((x, y), {}),
        "device_put": ((x, torch.device(device)), {}),
        "empty_permuted": (([2, 3], [1, 0]), made),
        "empty_strided": (([2, 3], [3, 1]), made),
        "fft_c2c": ((z,), {"dim": [1], "forward": True}),
        "fft_c2r": ((z,), {"dim": [1], "last_dim_size": 4}),
        "fft_r2c": ((x,), {"dim": [1], "onesided": True}),
        "fill": ((x, 2.0), {}),
        "imag": ((z,), {}),
        "iota": ((4,), {**made, "start": 1, "step": 2, "dtype": torch.int64}),
        "item": ((x[0, 0],), {}),
        "maximum_value": ((torch.float32,), {}),
        "minimum_value": ((torch.float32,), {}),
        "normal": (([2, 3],), {**made, "mean": 0.0, "std": 1.0}),
        "real": ((z,), {}),
        "reshape": ((x, [3, 2]), {}),
        "resize": ((x, [2, 2]), {}),
        "rev": ((x, [1]), {}),
        "scalar_tensor": ((2.5,), {"dtype": torch.float32, "device": torch.device(device)}),
        "split_dim": ((torch.cat([x, y]), 0, 2), {}),
        "squeeze": ((x[None], [0]), {}),
        "svd": ((x,), {"full_matrices": False}),
        "transpose": ((x, [1, 0]), {}),
        "where": ((x < y, x, y), {}),
        "zeta": ((x + 2, y), {}),
        "_uniform_helper": (([2, 3],), {**made, "low": 0.0, "high": 1.0}),
        "view_element_type": ((x, torch.int32), {}),
        "xor_sum": ((integers, [1]), {}),
        "_make_token": ((), {}),
        "_sink_tokens": (([torch.zeros(0, device=device)],), {}),
    }
    if name in special:
        return special[name]
    if name.startswith(("bitwise", "shift", "gcd")):
        return (integers, shifts), {}
    if name in ("amax", "amin", "sum", "prod"):
        return (x, [1]), {}
    if name == "var":
        return (x, [1], 1), {}
    count = len(getattr(prims, name).default._schema.arguments)
    return ((x,), (x, y))[count - 1], {}


def _names():
    return sorted(
        name
        for name in set(torch._prims.__all__)
        if isinstance(getattr(prims, name, None), torch._ops.OpOverloadPacket)
        and (name != "RETURN_TYPE")
    )


# Their values are drawn at random, or whatever the memory holds.
_ARBITRARY = ("_uniform_helper", "empty_permuted", "empty_strided", "normal")
# The signs of singular vectors are free.
_FREE_SIGNS = ("svd",)
# Made on the CPU wherever it is called.
_ON_HOST = ("_make_token",)
# What the CPU itself refuses.
_REFUSED = {"xor_sum": "no kernel anywhere but on CUDA"}


# torch's own `prims.as_strided` asks for the storage in the old way.
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("name", _names())
def test_primitive_stays_on_the_device(name):
    op = getattr(prims, name)
    positional, keywords = _arguments(name, "cpu")
    if name in _REFUSED:
        with pytest.raises((NotImplementedError, RuntimeError)):
            op(*positional, **keywords)
        return
    expected = op(*positional, **keywords)
    positional, keywords = _arguments(name, "xla")
    torch_xla.sync()
    _clear_counters()
    actual = op(*positional, **keywords)
    assert not _left_the_device()
    if not isinstance(expected, torch.Tensor | tuple):
        assert actual == pytest.approx(expected)
        return
    pairs = zip(
        *([r] if isinstance(r, torch.Tensor) else r for r in (expected, actual)), strict=True
    )
    for want, got in pairs:
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        assert got.device.type == ("cpu" if name in _ON_HOST else "xla")
        if name in _FREE_SIGNS:
            want, got = want.abs(), got.abs()
        if name not in _ARBITRARY:
            torch.testing.assert_close(
                got.cpu().resolve_conj(), want.resolve_conj(), rtol=1e-4, atol=2e-5
            )


# What makes no tensor of the device's own, or draws at random.
_LEFT_OUT = ("_refs.randn", "_refs.exponential", "_refs.empty", "_refs._conversions.chalf")
_REFERENCES = [
    ref
    for ref in python_ref_db[::9]
    if torch.float32 in ref.supported_dtypes("cpu") and ref.full_name not in _LEFT_OUT
]


@pytest.mark.parametrize("ref", _REFERENCES, ids=lambda ref: ref.full_name)
def test_reference_made_of_primitives_agrees_with_cpu(ref):
    """PyTorch's definitions of its operators in terms of primitives."""
    sample = next(iter(op_samples.samples(ref, torch.float32, False, 1)), None)
    if sample is None:
        return
    want = op_samples.tensors(ref.op(sample.input, *sample.args, **sample.kwargs))
    moved = op_samples.moved(sample)
    got = op_samples.tensors(ref.op(moved.input, *moved.args, **moved.kwargs))
    assert not op_samples.compare(want, got)
