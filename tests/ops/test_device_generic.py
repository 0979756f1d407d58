"""Tests in PyTorch's own form for any device: classes that `instantiate_device_type_tests` makes
into tests of the xla device. The wheel ships that machinery and the operators' databases, but not
PyTorch's test classes; these cover the same ground, against NumPy where the database knows a NumPy
function, else against the CPU.
"""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import op_samples
import torch
from pinned_torch import IS_PINNED
from torch.autograd import gradcheck
from torch.testing import make_tensor
from torch.testing._internal import common_device_type
from torch.testing._internal.common_device_type import (
    DeviceTypeTestBase,
    dtypes,
    instantiate_device_type_tests,
    ops,
)
from torch.testing._internal.common_methods_invocations import (
    binary_ufuncs,
    reduction_ops,
    shape_funcs,
    unary_ufuncs,
)
from torch.testing._internal.common_utils import TestCase, parametrize

import torch_xla


class XlaTestBase(DeviceTypeTestBase):
    """What PyTorch's machinery asks of a device type."""

    device_type = "xla"


common_device_type.device_type_test_bases.append(XlaTestBase)

INTEGERS = (torch.int64, torch.int32, torch.uint8)
FLOATS = (torch.float32, torch.float64, torch.bfloat16)
EVERY = (*INTEGERS, *FLOATS, torch.bool, torch.complex64)


def own(entries):
    """Every third of the entries that are operators themselves, not definitions of such."""
    plain = [
        op
        for op in entries
        if not op.name.startswith(("_refs.", "jiterator", "masked.", "tensor_split"))
        and not op.variant_test_name
    ]
    return plain[::3]


class DeviceTestCase(TestCase):
    """Comparison with the CPU."""

    def check(self, function, *tensors, exact=True):
        """The function gives on the device what it gives on the CPU, for tensors made there."""
        want = function(*(t.clone() for t in tensors))
        got = function(*(t.to("xla") for t in tensors))
        pairs = [(want, got)] if isinstance(want, torch.Tensor) else zip(want, got, strict=True)
        for w, g in pairs:
            self.assertEqual(g.dtype, w.dtype)
            self.assertEqual(g.device.type, "xla")
            self.assertEqual(
                g.cpu(), w, rtol=0 if exact else 1e-4, atol=0 if exact else 2e-5, exact_dtype=True
            )


class TestIndexing(DeviceTestCase):
    """Reading and writing by numbers, slices, lists and masks."""

    @dtypes(*EVERY)
    def test_reading(self, device, dtype):
        x = make_tensor((5, 4, 3), dtype=dtype, device="cpu")
        mask = torch.arange(5) % 2 == 0
        self.check(
            lambda t: [
                *(t[1], t[-1, 2], t[1:4, ::2], t[..., 0], t[:, None], t[[0, 3]], t[[1, 2], [0, 3]]),
                *(t[:, [2, 0]], t[[[0], [1]], [[2, 3]]], t[()], t[5:]),
                t.masked_fill(mask.to(t.device)[:, None, None], 0),
            ],
            x,
        )

    @dtypes(*EVERY)
    def test_writing(self, device, dtype):
        def write(t, value):
            t[1] = value[0]
            t[:, 2] = 1
            t[[0, 4], [1, 1]] = value[:2, 0]
            t[t.real > 3 if t.is_complex() else t > 3] = 0
            t[3:, ::2, -1] = value[1, 0, 0]
            return t

        self.check(write, *(make_tensor((5, 4, 3), dtype=dtype, device="cpu") for _ in range(2)))

    @dtypes(*FLOATS, torch.int64)
    def test_accumulation(self, device, dtype):
        x = torch.zeros(4, 3, dtype=dtype)
        value = torch.arange(9).reshape(3, 3).to(dtype)

        def put(t, v):
            index = torch.tensor([1, 3, 1], device=t.device)
            return [
                t.index_put((index,), v, accumulate=True),
                t.index_add(0, index, v),
                t.index_copy(0, torch.tensor([0, 2, 3], device=t.device), v),
                t.scatter_add(0, index.expand(3, 3).t(), v),
            ]

        self.check(put, x, value)

    def test_bad_index_is_refused(self, device):
        x = torch.zeros(3, 2, device=device)
        for index in (3, (0, 0, 0), (0, 2)):
            with self.assertRaises(IndexError):
                x[index]
        with self.assertRaises(IndexError):
            x[torch.tensor([True, False], device=device)]


class TestViews(DeviceTestCase):
    """Views share memory, whichever side is written."""

    VIEWS = (
        *(lambda t: t.view(-1), lambda t: t.t(), lambda t: t[1], lambda t: t[:, 1:3]),
        *(lambda t: t.unsqueeze(0), lambda t: t.diagonal(), lambda t: t.expand(2, 4, 4)[1]),
        *(lambda t: t.unfold(0, 2, 1)[0], lambda t: t.as_strided((2, 2), (4, 1), 1)),
        *(lambda t: t.chunk(2)[1], lambda t: t.movedim(0, 1), lambda t: t.detach()),
    )

    @parametrize("number", range(len(VIEWS)))
    def test_writes_reach_the_other_side(self, device, number):
        def write(t):
            view = self.VIEWS[number](t)
            self.assertTrue(view._is_view() or number == len(self.VIEWS) - 1)
            view.mul_(2)
            t.add_(1)
            return [t, view]

        self.check(write, torch.arange(16.0).reshape(4, 4))

    @dtypes(torch.complex64)
    def test_parts_of_complex_numbers(self, device, dtype):
        def write(t):
            t.real.add_(1)
            t.imag.zero_()
            torch.view_as_real(t)[0].mul_(3)
            return [t, t.conj().resolve_conj()]

        self.check(write, make_tensor((3, 2), dtype=dtype, device="cpu"))

    @dtypes(torch.float32)
    def test_view_as_another_dtype(self, device, dtype):
        self.check(
            lambda t: [t.view(torch.int32), t.view(torch.uint8)],
            make_tensor((3, 2), dtype=dtype, device="cpu"),
        )

    def test_view_of_another_size_is_refused(self, device):
        with self.assertRaisesRegex(RuntimeError, "is invalid for input of size 16"):
            torch.zeros(4, 4, device=device).view(15)


class TestTypePromotion(DeviceTestCase):
    """Dtypes of results."""

    def expect_same_dtype(self, device, call, *operands):
        """Or the same refusal: from PyTorch 2.15 on bfloat16 and complex numbers give a dtype that
        few of its kernels know, and the device has not."""
        try:
            want = call(*operands).dtype
        except NotImplementedError:
            if IS_PINNED:
                raise
            want = None
        moved = [x.to(device) if isinstance(x, torch.Tensor) else x for x in operands]
        if want is None or want == getattr(torch, "bcomplex32", ()):
            with self.assertRaises(NotImplementedError):
                call(*moved)
        else:
            self.assertEqual(call(*moved).dtype, want)

    def test_of_two_tensors(self, device):
        for first, second in itertools.product(EVERY, EVERY):
            x, y = torch.ones(2, dtype=first), torch.ones((), dtype=second)
            for function in (torch.add, torch.mul, torch.true_divide, torch.eq, torch.where):
                with self.subTest(f"{function.__name__} {first} {second}"):
                    call = (
                        (lambda a, b: torch.where(a.bool(), a, b))
                        if function is torch.where
                        else function
                    )
                    self.expect_same_dtype(device, call, x, y)

    def test_with_numbers(self, device):
        for dtype, number in itertools.product(EVERY, (True, 2, 2.5, 1j)):
            x = torch.ones(2, dtype=dtype)
            for function in (torch.add, torch.mul, torch.true_divide, torch.pow):
                with self.subTest(f"{function.__name__} {dtype} {number}"):
                    self.expect_same_dtype(device, function, x, number)

    def test_in_place_result_must_fit(self, device):
        for dtype in INTEGERS:
            with self.assertRaisesRegex(RuntimeError, "can't be cast to the desired output type"):
                torch.ones(2, dtype=dtype, device=device).add_(1.5)


class TestReductions(DeviceTestCase):
    """Along dimensions, of empty tensors, and of every dtype."""

    @ops(own(reduction_ops), allowed_dtypes=(torch.float32,))
    def test_database(self, device, dtype, op):
        for sample in list(op.sample_inputs("cpu", dtype))[::6]:
            moved = op_samples.moved(sample)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                want = op(sample.input, *sample.args, **sample.kwargs)
                got = op(moved.input, *moved.args, **moved.kwargs)
            self.assertEqual(got, want, rtol=1e-4, atol=2e-5, exact_device=False)

    @dtypes(*EVERY)
    def test_sums(self, device, dtype):
        x = make_tensor((4, 3, 2), dtype=dtype, device="cpu", low=0, high=4)
        self.check(
            lambda t: [t.sum(), t.sum(1), t.sum((0, 2), keepdim=True), t.any(0), t.all()],
            x,
            exact=not dtype.is_floating_point and not dtype.is_complex,
        )

    def test_of_nothing(self, device):
        x = torch.empty(0, 3, device=device)
        self.assertEqual(x.sum(0), torch.zeros(3), exact_device=False)
        self.assertEqual(x.prod(0), torch.ones(3), exact_device=False)
        self.assertTrue(x.mean(0).isnan().all().item())
        for function in (torch.amax, torch.max, torch.argmin, torch.median):
            with self.assertRaises((IndexError, RuntimeError)):
                function(x, 0)


class TestShapeOps(DeviceTestCase):
    """Functions that move elements about."""

    @ops(own(shape_funcs), allowed_dtypes=(torch.int64,))
    def test_database(self, device, dtype, op):
        for sample in list(op.sample_inputs("cpu", dtype))[::8]:
            want = op(sample.input, *sample.args, **sample.kwargs)
            moved = op_samples.moved(sample)
            got = op(moved.input, *moved.args, **moved.kwargs)
            self.assertEqual(got, want, exact_device=False)

    @dtypes(*EVERY)
    def test_moving(self, device, dtype):
        x = make_tensor((4, 3, 2), dtype=dtype, device="cpu")
        self.check(
            lambda t: [
                *(t.flip(0, 2), t.roll((1, -1), (0, 1)), t.rot90(1, (0, 1)), t.repeat(1, 2, 1)),
                *(torch.cat([t, t], 1), torch.stack([t, t], -1), t.tril(), t.triu(1)),
                *(t.permute(2, 0, 1), t.repeat_interleave(2, 0)),
                *t.split([1, 3]),
            ],
            x,
        )


class TestSortAndSelect(DeviceTestCase):
    """Orders, extremes and positions."""

    @dtypes(*INTEGERS, *FLOATS)
    def test_orders(self, device, dtype):
        x = make_tensor((4, 9), dtype=dtype, device="cpu")
        self.check(
            lambda t: [
                *t.sort(stable=True),
                *t.sort(stable=True, dim=0, descending=True),
                t.argsort(stable=True),
                t.topk(3)[0],
                t.kthvalue(2)[0],
                torch.searchsorted(t[0].sort()[0], t[1]),
            ],
            x,
        )

    @dtypes(torch.float32, torch.float64, torch.bfloat16)
    def test_not_a_number_is_the_greatest(self, device, dtype):
        x = torch.tensor([2, float("nan"), -1, float("inf"), 0], dtype=dtype)
        self.check(lambda t: [t.sort()[0], t.max(), t.topk(2)[0], t.amin(), t.argmax()], x)


class TestUnaryUfuncs(DeviceTestCase):
    """Against the NumPy functions of the database."""

    @ops([op for op in own(unary_ufuncs) if op.ref is not None], allowed_dtypes=(torch.float32,))
    def test_reference(self, device, dtype, op):
        for sample in op.sample_inputs("cpu", dtype):
            if sample.args or sample.kwargs:  # the reference may take them otherwise
                continue
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                got = op(sample.input.to(device))
                want = op.ref(sample.input.numpy())
            self.assertEqual(
                got.cpu(),
                torch.as_tensor(want),
                rtol=1e-4,
                atol=2e-5,
                exact_dtype=False,
                equal_nan=True,
            )


class TestBinaryUfuncs(DeviceTestCase):
    """With broadcasting."""

    @ops(own(binary_ufuncs), allowed_dtypes=(torch.float32, torch.int64))
    def test_database(self, device, dtype, op):
        for sample in list(op.sample_inputs("cpu", dtype))[1:4:2]:
            if not isinstance(sample.args[0], torch.Tensor):
                continue
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                try:
                    want = op(sample.input, *sample.args, **sample.kwargs)
                except RuntimeError:  # a division by zero among integers, which XLA defines
                    continue
                got = op(sample.input.to(device), sample.args[0].to(device), **sample.kwargs)
            self.assertEqual(got.cpu(), want, rtol=1e-4, atol=2e-5, equal_nan=True)


class TestAutograd(DeviceTestCase):
    """Gradients, hooks and what autograd refuses."""

    def test_numerical_gradients(self, device):
        x = torch.rand(2, 2, dtype=torch.float64, device=device).add(0.1).requires_grad_()
        y = torch.rand(2, 1, dtype=torch.float64, device=device).requires_grad_()
        self.assertTrue(gradcheck(lambda a, b: a.softmax(1) @ b.exp().cumsum(0), (x, y)))

    def test_second_derivative(self, device):
        x = torch.tensor([0.5, 1.5], device=device, requires_grad=True)
        (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        self.assertEqual(second, 6 * x.detach())

    def test_hooks_and_accumulation(self, device):
        x = torch.ones(3, device=device, requires_grad=True)
        seen = []
        x.register_hook(lambda grad: seen.append(grad.device.type) or grad * 2)
        (x * 3).sum().backward()
        (x * 3).sum().backward()
        self.assertEqual(seen, ["xla", "xla"])
        self.assertEqual(x.grad, torch.full((3,), 12.0), exact_device=False)

    def test_write_to_what_autograd_keeps_is_refused(self, device):
        x = torch.ones(3, device=device, requires_grad=True)
        y = x.exp()
        y.add_(1)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            y.sum().backward()

    def test_leaf_is_not_written(self, device):
        x = torch.ones(3, device=device, requires_grad=True)
        with self.assertRaisesRegex(RuntimeError, "a leaf Variable that requires grad"):
            x.add_(1)

    def test_gradient_through_views(self, device):
        def grads(t):
            t = t.detach().requires_grad_()
            y = t * 1
            y[1:].mul_(2)
            y.view(-1)[0] = 0
            return torch.autograd.grad((y.t() * y.t()).sum(), t)

        self.check(grads, torch.arange(6.0).reshape(3, 2), exact=False)


for _class in (
    *(TestIndexing, TestViews, TestTypePromotion, TestReductions, TestShapeOps, TestSortAndSelect),
    *(TestUnaryUfuncs, TestBinaryUfuncs, TestAutograd),
):
    instantiate_device_type_tests(_class, globals(), only_for="xla")

torch_xla.device()
