"""Fake quantization (of quantization-aware training) and its gradients are as on the CPU."""

from __future__ import annotations

import counts
import pytest
import torch

import torch_xla.debug.metrics as metrics

INF = float("inf")
VALUES = [
    -100.0,
    -0.95,
    -0.05,
    0.0,
    0.05,
    0.15,
    0.25,
    0.35,
    0.55,
    3.0,
    1e9,
    INF,
    -INF,
    float("nan"),
]


def images(device, dtype=torch.float32):
    return torch.tensor(VALUES).to(dtype).view(2, 1, 7).to(device)


def integers(values, device):
    return torch.tensor(values, dtype=torch.int32).to(device)


aten = torch.ops.aten
CALLS = {
    "tensor": lambda x: aten.fake_quantize_per_tensor_affine_cachemask(x, 0.1, 2, -8, 7),
    "tensor of one step": lambda x: aten.fake_quantize_per_tensor_affine_cachemask(x, 0.1, 0, 0, 0),
    "tensor by tensors": lambda x: torch.fake_quantize_per_tensor_affine(
        x, torch.tensor([0.1]).to(x.device), integers([2], x.device), -8, 7
    ),
    "tensor by tensors of other types": lambda x: torch.fake_quantize_per_tensor_affine(
        x, torch.tensor(0.1).to(x.device), torch.tensor(2.7).to(x.device), -8, 7
    ),
    "switched off": lambda x: aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
        x,
        *(t.to(x.device) for t in (torch.ones(1), integers([0], "cpu"), torch.tensor([0]))),
        -8,
        7,
    ),
    "channels": lambda x: aten.fake_quantize_per_channel_affine_cachemask(
        x, torch.tensor([0.1, 0.3]).to(x.device), integers([2, -1], x.device), 0, -8, 7
    ),
    "channels between integers": lambda x: aten.fake_quantize_per_channel_affine_cachemask(
        x, torch.full((7,), 0.2).to(x.device), torch.full((7,), 1.25).to(x.device), 2, 0, 15
    ),
    "learnable": lambda x: aten._fake_quantize_learnable_per_tensor_affine(
        x, torch.tensor([0.1]).to(x.device), torch.tensor([2.5]).to(x.device), -8, 7
    ),
    "learnable channels": lambda x: aten._fake_quantize_learnable_per_channel_affine(
        x, *(torch.tensor(v).to(x.device) for v in ([0.1, 0.3], [2.5, -9.5])), 0, -8, 7
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", CALLS)
def test_numbers_are_rounded_and_masked_as_on_the_cpu(name, dtype, device):
    def call(device):
        result = CALLS[name](images(device, dtype))
        return [r.cpu() for r in ([result] if torch.is_tensor(result) else result)]

    want = call("cpu")
    metrics.clear_counters()
    got = call(device)
    assert not counts.left_the_device()
    for a, b in zip(want, got, strict=True):
        torch.testing.assert_close(b, a, equal_nan=True)


LEARNABLE = {
    "tensor": (lambda *a: aten._fake_quantize_learnable_per_tensor_affine(*a, -8, 7, 0.5), 1),
    "channels": (lambda *a: aten._fake_quantize_learnable_per_channel_affine(*a, 0, -8, 7, 0.5), 2),
    "second channels": (
        lambda x, *a: aten._fake_quantize_learnable_per_channel_affine(x.mT, *a, 1, -8, 7, 0.5),
        7,
    ),
}


@pytest.mark.parametrize("zero", [2.5, -2.7, 1.5, -90.0])
@pytest.mark.parametrize("name", LEARNABLE)
def test_steps_and_zero_points_are_learned_as_on_the_cpu(name, zero, device):
    quantize, channels = LEARNABLE[name]

    def call(device):
        x = images(device)[:, :, :6].nan_to_num(posinf=4.0).repeat(1, 1, 2)[:, :, :7]
        scale = torch.linspace(0.1, 0.3, channels)
        inputs = [t.to(device).requires_grad_() for t in (x, scale, torch.full((channels,), zero))]
        weights = torch.linspace(-1, 2, 14).view(2, 1, 7).to(device)
        y = quantize(*inputs)
        y.backward(weights.mT if y.shape[-1] == 1 else weights)
        return [y.detach().cpu(), *(t.grad.cpu() for t in inputs)]

    want = call("cpu")
    metrics.clear_counters()
    got = call(device)
    assert not counts.left_the_device()
    torch.testing.assert_close(got, want)


def test_gradients_pass_where_nothing_was_clamped(device):
    def call(device):
        x = images(device).requires_grad_()
        torch.fake_quantize_per_tensor_affine(x, 0.1, 2, -8, 7).sum().backward()
        scale, zero = torch.tensor([0.1, 0.3]).to(device), integers([2, -1], device)
        torch.fake_quantize_per_channel_affine(x, scale, zero, 0, -8, 7).sum().backward()
        return x.grad.cpu()

    assert call(device).tolist() == call("cpu").tolist()


def step_and_zero_point(x, count=1):
    return torch.full((count,), 0.1).to(x.device), torch.full((count,), 2.0).to(x.device)


def unseen(count):
    """What an observer holds: extremes, step and zero point."""
    return [
        torch.full((count,), INF),
        torch.full((count,), -INF),
        torch.ones(count),
        torch.zeros(count, dtype=torch.int32),
    ]


def observe(x, state, observer_on=1, fake_quant_on=1, const=0.3, range_=(-128, 127), **options):
    on = [torch.tensor([flag]).to(x.device) for flag in (observer_on, fake_quant_on)]
    options = {"ch_axis": 0} | options
    return aten._fused_moving_avg_obs_fq_helper(x, *on, *state, const, *range_, **options)


ROWS = {"per_row_fake_quant": True}
SYMMETRIC = {"symmetric_quant": True}
OBSERVERS = {
    "tensor": (lambda: unseen(1), {}),
    "symmetric": (lambda: unseen(1), SYMMETRIC),
    "unsigned": (lambda: unseen(1), {"range_": (0, 15)}),
    "unsigned, symmetric": (lambda: unseen(1), {"range_": (0, 254)} | SYMMETRIC),
    "rows": (lambda: unseen(3), ROWS),
    "rows, symmetric": (lambda: unseen(3), {"range_": (-127, 127)} | SYMMETRIC | ROWS),
    "rows, made empty": (lambda: [t[:0].clone() for t in unseen(1)], ROWS),
}


@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e-30, 0.0])
@pytest.mark.parametrize("name", OBSERVERS)
def test_extremes_and_steps_are_observed_as_on_the_cpu(name, scale, device):
    make_state, options = OBSERVERS[name]
    batches = [torch.linspace(a, b, 30).view(3, 2, 5) for a, b in ((-1, 2), (-3, 1), (0.5, 4))]
    batches = [x * scale for x in (*batches, -batches[2])]
    flags = [(1, 1), (1, 0), (0, 1), (0, 0), (1, 1), (1, 1), (1, 1)]

    def run(device):
        state = [t.to(device) for t in make_state()]
        told = []
        for i, on in enumerate(flags):
            results = observe(batches[i % 4].to(device), state, *on, **options)
            told += [t.cpu().clone() for t in (*results, *state)]
        return told

    want = run("cpu")
    metrics.clear_counters()
    got = run(device)
    assert not counts.left_the_device()
    torch.testing.assert_close(got, want, equal_nan=True)


@pytest.mark.parametrize("values", [[-1.0, 0.3, 1.0], [1.0, INF, -2.0], [1.0, float("nan")]])
def test_ties_infinities_and_nans_are_observed_as_on_the_cpu(values, device):
    def run(device):
        told = []
        for options in ({}, {"range_": (-64, 63)}, SYMMETRIC, {"range_": (7, 7)}):
            state = [t.to(device) for t in unseen(1)]
            results = observe(torch.tensor(values).to(device), state, **options)
            told += [t.cpu() for t in (*results, *state)]
        return told

    torch.testing.assert_close(run(device), run("cpu"), equal_nan=True)


def test_channels_of_any_dimension_are_observed(device):
    x = torch.linspace(-2, 3, 24).view(2, 3, 4)
    columns, state = unseen(3), [t.to(device) for t in unseen(3)]
    want, mask = observe(x.transpose(0, 1), columns, **ROWS)  # PyTorch's observes the first alone
    got = observe(x.to(device), state, ch_axis=1, **ROWS)
    torch.testing.assert_close(got[0].cpu(), want.transpose(0, 1).contiguous())
    assert torch.equal(got[1].cpu(), mask.transpose(0, 1))
    torch.testing.assert_close([t.cpu() for t in state], columns)


@pytest.mark.parametrize("options", [{}, ROWS], ids=["tensor", "rows"])
def test_what_is_observed_keeps_its_strides(options, device):
    x = torch.linspace(-2, 3, 120).view(2, 3, 4, 5).to(memory_format=torch.channels_last)
    count = 2 if options else 1
    want = observe(x, unseen(count), **options)
    got = observe(x.to(device), [t.to(device) for t in unseen(count)], **options)
    assert [t.stride() for t in got] == [t.stride() for t in want]


def test_the_functional_observer_returns_what_the_other_writes(device):
    x = torch.linspace(-2, 3, 24).view(2, 12).to(device)
    on, state = torch.ones(1).to(device), [t.to(device) for t in unseen(1)]
    results = aten._fused_moving_avg_obs_fq_helper_functional(
        x, on, on, *state, 0.3, -128, 127, 0, False, False
    )
    assert torch.equal(state[2].cpu(), torch.ones(1))
    output, mask = observe(x, state)
    assert all(torch.equal(a, b) for a, b in zip(results, (output, mask, *state), strict=True))


@pytest.mark.parametrize("channels", [False, True])
def test_a_fused_observer_learns_and_is_switched_off_as_on_the_cpu(channels, device):
    quantization = torch.ao.quantization
    observer = quantization.MovingAverageMinMaxObserver
    options = {"dtype": torch.qint8, "qscheme": torch.per_tensor_symmetric}
    if channels:
        observer = quantization.MovingAveragePerChannelMinMaxObserver
        options["qscheme"] = torch.per_channel_symmetric

    def run(device):
        fake = quantization.FusedMovingAvgObsFakeQuantize(observer, -127, 127, **options).to(device)
        weight = torch.linspace(-1, 2, 12).view(3, 4).to(device).requires_grad_()
        optimizer = torch.optim.SGD([weight], lr=0.5)
        told = []
        for step in range(6):
            fake.enable_observer(step < 3)
            fake.enable_fake_quant(step != 4)
            optimizer.zero_grad()
            output = fake(weight)
            output.square().sum().backward()
            optimizer.step()
            results = (output, weight.grad, fake.scale, fake.zero_point)
            told += [t.detach().cpu().clone() for t in results]
        return told

    want = run("cpu")
    metrics.clear_counters()
    got = run(device)
    assert not counts.left_the_device()
    torch.testing.assert_close(got, want)


def test_switching_an_observer_compiles_nothing(device):
    x, state = images(device)[:, :, :6].nan_to_num(), [t.to(device) for t in unseen(1)]
    for on in ((1, 1), (0, 1), (1, 0)):
        metrics.clear_counters()
        observe(x, state, *on)[0].cpu()
    assert metrics.counter_value("UncachedCompile") in (None, 0)


REFUSED = {
    "observed axis": lambda x: observe(x, [t.to(x.device) for t in unseen(1)], ch_axis=3),
    "observed range": lambda x: observe(x, [t.to(x.device) for t in unseen(1)], range_=(8, 7)),
    "observed sizes": lambda x: observe(x, [t.to(x.device) for t in unseen(2)]),
    "observed, empty": lambda x: observe(x[:0], [t.to(x.device) for t in unseen(1)]),
    "two flags": lambda x: aten._fused_moving_avg_obs_fq_helper(
        x, *[torch.ones(2).to(x.device)] * 2, *(t.to(x.device) for t in unseen(1)), 0.1, 0, 7, 0
    ),
    "range": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 2, 8, 7),
    "range, by tensors": lambda x: torch.fake_quantize_per_tensor_affine(
        x, *step_and_zero_point(x), 8, 7
    ),
    "range of channels": lambda x: torch.fake_quantize_per_channel_affine(
        x, *step_and_zero_point(x, 2), 0, 8, 7
    ),
    "learnable range": lambda x: aten._fake_quantize_learnable_per_tensor_affine(
        x, *step_and_zero_point(x), 8, 7
    ),
    "learnable range of channels": lambda x: aten._fake_quantize_learnable_per_channel_affine(
        x, *step_and_zero_point(x, 2), 0, 8, 7
    ),
    "learnable range without 0": (
        lambda x: aten._fake_quantize_learnable_per_tensor_affine_backward(
            x, x, *step_and_zero_point(x), 1, 7
        )
    ),
    "learnable range of channels without 0": (
        lambda x: aten._fake_quantize_learnable_per_channel_affine_backward(
            x, x, *step_and_zero_point(x, 2), 0, 1, 7
        )
    ),
    "zero point": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 20, -8, 7),
    "integers": lambda x: torch.fake_quantize_per_tensor_affine(x.int(), 0.1, 2, -8, 7),
    "axis": lambda x: torch.fake_quantize_per_channel_affine(
        x, torch.ones(2).to(x.device), integers([0, 0], x.device), -3, -8, 7
    ),
    "missing axis": lambda x: torch.fake_quantize_per_channel_affine(
        x, torch.ones(2).to(x.device), integers([0, 0], x.device), 3, -8, 7
    ),
    "channels": lambda x: torch.fake_quantize_per_channel_affine(
        x, torch.ones(3).to(x.device), integers([0, 0, 0], x.device), 0, -8, 7
    ),
    "sizes": lambda x: torch.fake_quantize_per_channel_affine(
        x, torch.ones(2).to(x.device), integers([0, 0, 0], x.device), 0, -8, 7
    ),
    "steps of float64": lambda x: torch.fake_quantize_per_channel_affine(
        x, torch.ones(2, dtype=torch.float64).to(x.device), integers([0, 0], x.device), 0, -8, 7
    ),
    "step without dimensions": lambda x: aten._fake_quantize_learnable_per_tensor_affine_backward(
        x, x, torch.ones((), device=x.device), torch.ones((), device=x.device), -8, 7
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_calls_are_refused_as_on_the_cpu(name, device):
    told = []
    for x in (images("cpu"), images(device)):
        with pytest.raises(Exception) as error:
            REFUSED[name](x)
        told.append((error.type, str(error.value).split("\n")[0]))
    assert told[0][0] is told[1][0]
    assert told[1][1].endswith(told[0][1])  # after the operator's name


def test_another_step_compiles_nothing(device):
    x = images(device)
    results = []
    for scale in (0.1, 0.2, 0.25):
        metrics.clear_counters()
        results.append(torch.fake_quantize_per_tensor_affine(x, scale, 2, -8, 7).cpu())
    assert metrics.counter_value("UncachedCompile") in (None, 0)
    assert not torch.equal(results[0], results[2])
