"""Recurrent layers are loops of the program, whatever their length, with PyTorch's values."""

from __future__ import annotations

import copy

import pytest
import torch
from counts import counted, left_the_device
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence

import torch_xla
import torch_xla.runtime as xr
from torch_xla.debug import metrics

CELLS = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "rnn_tanh": nn.RNN,
    "rnn_relu": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options),
}
cells = pytest.mark.parametrize("cell", CELLS)
pytestmark = [
    pytest.mark.usefixtures("quick_compilation"),
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN"),
]
DTYPES = {torch.float64: 1e-9, torch.bfloat16: 5e-2, torch.float16: 5e-3}


def states_of(module, batch):
    """Random states to start from, of one sequence if `batch` is None."""
    count = module.num_layers * (2 if module.bidirectional else 1)
    middle = () if batch is None else (batch,)
    dtype = module.weight_ih_l0.dtype
    hidden = torch.randn(count, *middle, module.proj_size or module.hidden_size).to(dtype)
    if not isinstance(module, nn.LSTM):
        return (hidden,)
    return hidden, torch.randn(count, *middle, module.hidden_size).to(dtype)


def flat(results):
    output, states = results
    output = output.data if isinstance(output, PackedSequence) else output
    return [output, *(states if isinstance(states, tuple) else (states,))]


def differentiated(module, given, states, device):
    """The results, and the gradients of the input, the states and the parameters."""
    module = copy.deepcopy(module).to(device)
    leaves = [t.detach().clone().to(device).requires_grad_() for t in (given[0], *states)]
    sequence, *states = leaves
    if len(given) == 2:
        lengths = given[1]
        sequence = pack_padded_sequence(sequence, lengths, module.batch_first, enforce_sorted=False)
    state = tuple(states) if len(states) == 2 else states[0] if states else None
    results = flat(module(sequence, state))
    weights = [torch.linspace(-1, 1, r.numel()).reshape(r.shape).to(r) for r in results]
    sum((r * w).sum() for r, w in zip(results, weights, strict=True)).backward()
    return [*results, *(leaf.grad for leaf in leaves), *(p.grad for p in module.parameters())]


def check(module, given, states=(), tolerance=2e-5):
    wants = differentiated(module, given, states, "cpu")
    gots = differentiated(module, given, states, "xla")
    torch_xla.sync()
    for got, want in zip(gots, wants, strict=True):
        assert got.dtype == want.dtype
        torch.testing.assert_close(
            got.detach().cpu(), want.detach(), rtol=tolerance, atol=tolerance * 5
        )


VARIANTS = {
    "plain": {},
    "no bias": {"bias": False},
    "batch first": {"batch_first": True},
    "two layers": {"num_layers": 2},
    "bidirectional": {"bidirectional": True},
    "both": {"num_layers": 2, "bidirectional": True, "batch_first": True, "bias": False},
}


@cells
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("has_states", [False, True])
def test_values_and_gradients_are_those_of_the_cpu(cell, variant, has_states):
    module = CELLS[cell](3, 4, **VARIANTS[variant])
    x = torch.randn(2, 5, 3) if module.batch_first else torch.randn(5, 2, 3)
    check(module, (x,), states_of(module, 2) if has_states else ())


@pytest.mark.parametrize("variant", VARIANTS)
def test_projected_lstm(variant):
    module = nn.LSTM(3, 4, proj_size=2, **VARIANTS[variant])
    x = torch.randn(2, 5, 3) if module.batch_first else torch.randn(5, 2, 3)
    check(module, (x,), states_of(module, 2))


@pytest.mark.skipif(xr.device_type() != "CPU", reason="the CPU's kernels")
def test_an_lstm_of_float32_is_pytorchs_kernel_and_a_loop_where_it_is_exported():
    module = nn.LSTM(3, 4, bidirectional=True).requires_grad_(False)
    x = torch.randn(5, 2, 3)
    with torch.no_grad():
        want = module(x)[0]
    given = x.to("xla")
    result = copy.deepcopy(module).to("xla")(given)[0]
    text, _ = torch_xla._XLAC._export([result], [given])
    assert "stablehlo.while" in text and "custom_call" not in text
    assert torch.equal(result.cpu(), want)
    assert metrics.counter_value("xla::xla:_lstm_layer") == 2
    metrics.clear_counters()
    torch._C._set_mkldnn_enabled(False)
    try:
        result = copy.deepcopy(module).to("xla")(given)[0]
    finally:
        torch._C._set_mkldnn_enabled(True)
    torch.testing.assert_close(result.cpu(), want)
    assert metrics.counter_value("xla::xla:_lstm_layer") is None


@pytest.mark.skipif(xr.device_type() != "CPU", reason="the CPU's kernels")
def test_gradients_of_an_lstm_that_is_exported():
    module = nn.LSTM(3, 4, bias=False).to("xla")
    x = torch.randn(5, 2, 3, device="xla", requires_grad=True)
    torch_xla.sync()
    module(x)[0].square().sum().backward()
    leaves = [x, *module.parameters()]
    gradients = [leaf.grad for leaf in leaves]
    given = [leaf.detach() for leaf in leaves]
    text, captured = torch_xla._XLAC._export(gradients, given)
    assert "stablehlo.while" in text and "custom_call" not in text
    results = ";".join(f"f32[{','.join(map(str, leaf.shape))}]" for leaf in leaves)
    found = torch.ops.xla._call_module([*given, *captured], text, results)
    for got, want in zip(found, gradients, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@cells
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(cell, dtype):
    module = CELLS[cell](3, 4, bidirectional=True).to(dtype)
    check(module, (torch.randn(5, 2, 3).to(dtype),), states_of(module, 2), DTYPES[dtype])


@cells
def test_one_sequence_without_a_batch_and_one_step(cell):
    module = CELLS[cell](3, 4)
    check(module, (torch.randn(5, 3),), states_of(module, None))
    check(module, (torch.randn(1, 2, 3),), states_of(module, 2))


PACKED = {
    "plain": {},
    "bidirectional": {"bidirectional": True},
    "two layers": {"num_layers": 2, "bidirectional": True, "batch_first": True},
}


@cells
@pytest.mark.parametrize("variant", PACKED)
@pytest.mark.parametrize("lengths", [[2, 5, 3], [4, 4, 4]])
def test_packed_sequences(cell, variant, lengths):
    module = CELLS[cell](3, 4, **PACKED[variant])
    x = torch.randn(3, max(lengths), 3) if module.batch_first else torch.randn(max(lengths), 3, 3)
    check(module, (x, torch.tensor(lengths)), states_of(module, 3))


def test_packed_projected_lstm():
    module = nn.LSTM(3, 4, proj_size=2, bidirectional=True)
    check(module, (torch.randn(5, 3, 3), torch.tensor([2, 5, 3])), states_of(module, 3))


@cells
def test_dropout_is_between_layers_in_training_alone(cell):
    module = CELLS[cell](3, 4, num_layers=2, dropout=1.0)  # nothing reaches the second layer
    check(module, (torch.randn(5, 2, 3),))
    check(module.eval(), (torch.randn(5, 2, 3),))


@cells
@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_without_gradients(cell, guard):
    module = CELLS[cell](3, 4)
    x = torch.randn(5, 2, 3)
    with guard():
        want = flat(module(x))
        got = flat(module.to("xla")(x.to("xla")))
        for g, w in zip(got, want, strict=True):
            assert not g.requires_grad
            torch.testing.assert_close(g.cpu(), w)


@cells
def test_second_derivatives(cell):
    module = CELLS[cell](3, 4, bidirectional=True).double()
    x = torch.randn(4, 2, 3).double()

    def second(device):
        ours = copy.deepcopy(module).to(device)
        leaf = x.to(device).requires_grad_()
        output = flat(ours(leaf))
        loss = (output[0] ** 2).sum() + output[1].sum()
        first = torch.autograd.grad(loss, leaf, create_graph=True)
        (first[0] ** 2).sum().backward()
        return [first[0].detach(), leaf.grad, *(p.grad for p in ours.parameters())]

    for got, want in zip(second("xla"), second("cpu"), strict=True):
        torch.testing.assert_close(got.cpu(), want)


@cells
def test_second_derivatives_of_packed_sequences(cell):
    module = CELLS[cell](3, 4, bidirectional=True).double()
    sequences = [torch.randn(n, 3).double() for n in (4, 2, 1)]

    def second(device):
        ours = copy.deepcopy(module).to(device)
        packed = pack_sequence([s.to(device) for s in sequences])
        output, _ = ours(packed)
        first = torch.autograd.grad((output.data**2).sum(), ours.weight_hh_l0, create_graph=True)
        (first[0] ** 2).sum().backward()
        return [first[0].detach(), *(p.grad for p in ours.parameters())]

    for got, want in zip(second("xla"), second("cpu"), strict=True):
        torch.testing.assert_close(got.cpu(), want)


@cells
def test_autocast_computes_products_in_the_lower_precision(cell):
    module = CELLS[cell](3, 4)
    x = torch.randn(5, 2, 3)
    want = flat(module(x))
    ours = copy.deepcopy(module).to("xla")
    with torch.autocast("xla", dtype=torch.bfloat16):
        got = flat(ours(x.to("xla")))
    # As the sums of cells that are no products.
    assert got[0].dtype == (torch.bfloat16 if cell.startswith("rnn") else torch.float32)
    sum(g.float().sum() for g in got).backward()
    sum(w.sum() for w in want).backward()
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g.detach().cpu().float(), w.detach(), rtol=5e-2, atol=5e-2)
    for p, q in zip(ours.parameters(), module.parameters(), strict=True):
        assert p.grad.dtype == torch.float32
        torch.testing.assert_close(p.grad.cpu(), q.grad, rtol=5e-2, atol=5e-2)


@cells
@pytest.mark.parametrize("lengths", [None, [20, 19, *[11] * 30, 1]])
def test_rows_on_several_threads_and_states_that_fill_no_lane(cell, lengths):
    torch.manual_seed(0)
    module = CELLS[cell](5, 37)
    sequence = torch.randn(20, 33, 5)
    given = (sequence,) if lengths is None else (sequence, torch.tensor(lengths))
    check(module, given, states_of(module, 33))


@cells
def test_gates_of_any_size(cell):
    """Each gate's function is read off a step whose gates are what is given."""
    module = CELLS[cell](1, 6, bias=False)
    for weight in (module.weight_ih_l0, module.weight_hh_l0):
        nn.init.constant_(weight, 1.0 if weight is module.weight_ih_l0 else 0.0)
    values = [0.0, 1e-30, 1e-7, 1e-4, 0.2, 0.25, 0.3, 1.0, 9.0, 17.0, 88.0, 90.0, 1e4, torch.inf]
    x = torch.tensor([*values, *(-v for v in values), torch.nan]).reshape(1, -1, 1)
    (wants, _), (gots, _) = module(x), copy.deepcopy(module).to("xla")(x.to("xla"))
    # Relative to each value, however small.
    torch.testing.assert_close(gots.cpu(), wants, rtol=2e-6, atol=1e-37, equal_nan=True)


def program(cell, length, lengths=None, dtype=torch.float32):
    """The text of a training step."""
    module = CELLS[cell](3, 4, bidirectional=True).to("xla", dtype)
    given = torch.randn(length, 2, 3).to("xla", dtype)
    if lengths is not None:
        given = pack_padded_sequence(given, torch.tensor(lengths))
    torch_xla.sync()
    output, _ = module(given)
    (output.data if lengths is not None else output).sum().backward()
    return torch_xla._XLAC._pending_program(0)


@cells
def test_the_program_does_not_grow_with_the_sequence(cell):
    # On the CPU a kernel takes float32 through its steps.
    kernel = "torch_xla.lstm_layer" if cell == "lstm" else "torch_xla.recurrence"
    loop = kernel if xr.device_type() == "CPU" else "stablehlo.while"
    short, long = program(cell, 16), program(cell, 128)
    assert short.count("\n") == long.count("\n")
    assert short.count(loop) == 4  # two directions, forward and backward
    assert program(cell, 128, dtype=torch.float64).count("stablehlo.while") == 4
    short, long = program(cell, 16, [16, 9]), program(cell, 128, [128, 50])
    assert short.count("\n") == long.count("\n")


@cells
def test_a_step_compiles_once_and_stays_on_the_device(cell):
    module = CELLS[cell](3, 4, num_layers=2).to("xla")
    x = torch.randn(5, 2, 3).to("xla")
    torch_xla.sync()
    metrics.clear_counters()
    with counted() as counts:
        for _ in range(3):
            module.zero_grad()
            module(x)[0].sum().backward()
            torch_xla.sync()
    assert (counts.compiled, counts.executed) == (1, 3)
    assert not left_the_device()


def test_packed_sequences_of_other_lengths_and_as_many_rows_compile_nothing():
    module = nn.GRU(3, 4).to("xla")
    compiled = []
    for lengths in ([5, 3, 1], [5, 2, 2], [5, 3, 1]):
        data = torch.randn(9, 3).to("xla")
        sizes = torch.tensor([sum(n > t for n in lengths) for t in range(5)])
        module.zero_grad()
        with counted() as counts:
            module(PackedSequence(data, sizes))[0].data.sum().backward()
            torch_xla.sync()
        compiled.append(counts.compiled)
    assert compiled == [1, 0, 0]


def message(function):
    with pytest.raises((RuntimeError, ValueError, IndexError)) as caught:
        function()
    # Newer PyTorch names the operator first.
    return type(caught.value), str(caught.value).removeprefix("addmm: ")


def gru_of(device, input_sizes, state_sizes, sizes, dtype=torch.float32):
    x = torch.ones(input_sizes, dtype=dtype, device=device)
    h = torch.ones(state_sizes, device=device)
    params = [torch.ones(size, device=device) for size in sizes]
    return torch.gru(x, h, params, True, 1, 0.0, False, False, False)


PARAMS = [(12, 3), (12, 4), (12,), (12,)]


@pytest.mark.parametrize(
    "arguments",
    [
        ((5, 2, 7), (1, 2, 4), PARAMS),
        ((5, 2, 3), (1, 2, 5), PARAMS),
        ((5, 2, 3), (2, 2, 4), PARAMS),
        ((5, 2, 3), (1, 2, 4), PARAMS[:3]),
        ((0, 2, 3), (1, 2, 4), PARAMS),
        ((5, 2, 3), (1, 2, 4), PARAMS, torch.float64),
    ],
)
def test_wrong_arguments_are_refused_in_pytorchs_words(arguments):
    assert message(lambda: gru_of("xla", *arguments)) == message(lambda: gru_of("cpu", *arguments))


@cells
def test_an_empty_batch(cell):
    module = CELLS[cell](3, 4)
    x = torch.randn(5, 0, 3)
    want = flat(module(x))
    got = flat(module.to("xla")(x.to("xla")))
    assert [g.shape for g in got] == [w.shape for w in want]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # by torch itself
@cells
def test_transforms_and_forward_derivatives(cell):
    module = CELLS[cell](3, 4).double()
    x, tangent = torch.randn(2, 3, 2, 3).double()

    def results(device):
        ours = copy.deepcopy(module).to(device).requires_grad_(False)

        def loss(y):
            return (ours(y)[0] ** 2).sum()

        given = x.to(device)
        jvp = torch.func.jvp(loss, (given,), (tangent.to(device),))
        return [torch.func.grad(loss)(given), *jvp]

    for got, want in zip(results("xla"), results("cpu"), strict=True):
        torch.testing.assert_close(got.cpu(), want)


@cells
def test_fake_tensors_are_pytorchs(cell):
    with FakeTensorMode():
        module = CELLS[cell](3, 4, batch_first=True, device="xla")
        output = module(torch.empty(2, 5, 3, device="xla"))[0]
    assert output.shape == (2, 5, 4) and output.device.type == "xla"
