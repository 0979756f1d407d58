"""Errors come at the call, in PyTorch's words, and the process works on after them."""

from __future__ import annotations

import subprocess

import pytest
import torch
from processes import run_in_process

import torch_xla


@pytest.fixture(autouse=True)
def works_afterwards():
    """Whatever a test provoked, the device computes on."""
    yield
    x = torch.arange(3.0, device="xla") + 1
    torch_xla.sync(wait=True)
    assert x.tolist() == [1, 2, 3]


def ones(device, *shape, dtype=torch.float32):
    return torch.ones(shape, device=device, dtype=dtype)


# Calls that both devices refuse with the same type and the same words.
SAME = {
    "broadcast": lambda d: ones(d, 2) + ones(d, 3),
    "matmul": lambda d: ones(d, 2, 3) @ ones(d, 2, 3),
    "mm of vectors": lambda d: torch.mm(ones(d, 2), ones(d, 2)),
    "addmm": lambda d: torch.addmm(ones(d, 2), ones(d, 2, 3), ones(d, 4, 2)),
    "view": lambda d: ones(d, 6).view(4, 2),
    "reshape": lambda d: ones(d, 6).reshape(4, -1),
    "cat": lambda d: torch.cat([ones(d, 2, 3), ones(d, 3, 2)]),
    "stack": lambda d: torch.stack([ones(d, 2), ones(d, 3)]),
    "select": lambda d: ones(d, 3)[5],
    "narrow": lambda d: ones(d, 3).narrow(0, 2, 4),
    "too many subscripts": lambda d: ones(d, 3)[0, 0],
    "slice step": lambda d: ones(d, 3)[::-1],
    "dimension": lambda d: ones(d, 3).sum(2),
    "unsqueeze": lambda d: ones(d, 3).unsqueeze(4),
    "transpose": lambda d: ones(d, 3).transpose(0, 2),
    "permute": lambda d: ones(d, 2, 3).permute(0, 0),
    "expand": lambda d: ones(d, 3).expand(4),
    "expand to fewer": lambda d: ones(d, 2, 3).expand(3),
    "split": lambda d: ones(d, 3).split([1, 1]),
    "pad that cuts more than is there": lambda d: torch.nn.functional.pad(ones(d, 0), (1, -1)),
    "pad that cuts from both ends": lambda d: torch.nn.functional.pad(ones(d, 3), (-2, -2)),
    "unfold": lambda d: ones(d, 3).unfold(0, 4, 1),
    "diagonal": lambda d: ones(d, 2, 2).diagonal(0, 1, 1),
    "squeeze": lambda d: ones(d, 3).squeeze(2),
    "view as complex": lambda d: torch.view_as_complex(ones(d, 3)),
    "view of dtype": lambda d: ones(d, 3).view(torch.float64),
    "item of many": lambda d: ones(d, 3).item(),
    "bool of many": lambda d: bool(ones(d, 3)),
    "in place of another dtype": lambda d: ones(d, 3, dtype=torch.int64).add_(0.5),
    "in place that broadcasts": lambda d: ones(d, 3).add_(ones(d, 2, 3)),
    "copy": lambda d: ones(d, 3).copy_(ones(d, 2)),
    "subtract bools": lambda d: ones(d, 3, dtype=torch.bool) - ones(d, 3, dtype=torch.bool),
    "mask of another shape": lambda d: ones(d, 3)[ones(d, 2, dtype=torch.bool)],
    "float index": lambda d: ones(d, 3)[ones(d, 2)],
    "index_put of another dtype": lambda d: ones(d, 3).index_put_(
        (torch.zeros(1, dtype=torch.long, device=d),), ones(d, 1, dtype=torch.int64)
    ),
    "index_select": lambda d: ones(d, 3).index_select(0, ones(d, 2)),
    "gather": lambda d: ones(d, 3).gather(0, ones(d, 2)),
    "linear": lambda d: torch.nn.functional.linear(ones(d, 2, 3), ones(d, 4, 2)),
    "conv2d": lambda d: torch.nn.functional.conv2d(ones(d, 1, 3, 8, 8), ones(d, 4, 2, 3, 3)),
    "layer_norm": lambda d: torch.nn.functional.layer_norm(ones(d, 2, 3), (4,)),
    "embedding": lambda d: torch.nn.functional.embedding(ones(d, 2), ones(d, 4, 2)),
    "nll_loss": lambda d: torch.nn.functional.nll_loss(
        ones(d, 2, 3), torch.zeros(3, dtype=torch.long, device=d)
    ),
    "max_pool2d": lambda d: torch.nn.functional.max_pool2d(ones(d, 1, 1, 2, 2), 3),
    "dtype of matmul": lambda d: ones(d, 2, 2) @ ones(d, 2, 2, dtype=torch.float64),
    "bitwise of floats": lambda d: ones(d, 2) & ones(d, 2),
    "backward of no scalar": lambda d: ones(d, 2).requires_grad_().mul(2).backward(),
    "gradient of an integer": lambda d: ones(d, 2, dtype=torch.int64).requires_grad_(),
    "backward twice": lambda d: backward_twice(d),
    "negative size": lambda d: torch.zeros(-1, device=d),
    "einsum": lambda d: torch.einsum("ij,jk", ones(d, 2, 3), ones(d, 2, 3)),
    "numpy of a gradient": lambda d: ones(d, 2).requires_grad_().cpu().numpy(),
    "argument type": lambda d: torch.add(ones(d, 2), "x"),
    "generator": lambda d: torch.rand(2, device=d, generator=torch.Generator(other(d))),
}


def other(device):
    return "xla" if device == "cpu" else "cpu"


def backward_twice(device):
    y = ones(device, 2).requires_grad_().exp().sum()
    y.backward()
    y.backward()


def error_of(function, device):
    with pytest.raises(Exception) as raised:  # the type is what is compared
        function(device)
    return raised.value


def words(error, device):
    text = str(error).split("\nException raised")[0]
    text = text.replace("XLAFloatType", "CPUFloatType").replace("torch.xla.", "torch.")
    return text.replace(device, "<device>").replace(other(device), "<other>")


@pytest.mark.parametrize("name", SAME)
def test_error_is_as_on_cpu(name):
    want, got = error_of(SAME[name], "cpu"), error_of(SAME[name], "xla")
    assert type(got) is type(want), f"{want!r} on cpu, {got!r} on xla"


# The words are compared where the error is one that users meet.
WORDED = [
    "broadcast",
    "matmul",
    "view",
    "reshape",
    "select",
    "dimension",
    "transpose",
    "expand",
    "split",
    "unfold",
    "item of many",
    "bool of many",
    "in place of another dtype",
    "subtract bools",
    "mask of another shape",
    "index_put of another dtype",
    "backward of no scalar",
    "backward twice",
    "linear",
    "conv2d",
    "dtype of matmul",
]


@pytest.mark.parametrize("name", WORDED)
def test_words_of_error_are_as_on_cpu(name):
    want = words(error_of(SAME[name], "cpu"), "cpu")
    got = words(error_of(SAME[name], "xla"), "xla")
    first = want.split("\n")[0].removeprefix("mm: ")  # as newer PyTorch begins
    assert first in got, f"{want!r} on cpu, {got!r} on xla"


@pytest.mark.parametrize(
    ("call", "op", "argument"),
    [
        (lambda x, c: x + c, "add", "other"),
        (lambda x, c: c + x, "add", "self"),
        (lambda x, c: x.add_(c), "add_", "other"),
        (lambda x, c: torch.mm(x, c), "mm", "mat2"),
        (lambda x, c: torch.cat([x, c]), "cat", "tensors"),
        (lambda x, c: torch.where(c > 0, x, x), "where", "condition"),
        (lambda x, c: torch.nn.functional.layer_norm(x, (2,), c[0]), "layer_norm", "weight"),
        (lambda x, c: c.add_(x), "add_", "self"),
    ],
)
def test_mixing_cpu_and_xla_tensors_names_op_and_argument(call, op, argument):
    x, c = torch.ones(2, 2, device="xla"), torch.ones(2, 2)
    with pytest.raises(RuntimeError) as raised:
        call(x, c)
    text = str(raised.value)
    assert "Input tensor is not an XLA tensor: torch." in text
    assert op in text
    assert argument in text


def test_mixing_names_the_tensor_type():
    x = torch.ones(2, device="xla")
    with pytest.raises(RuntimeError, match=r"not an XLA tensor: torch\.FloatTensor"):
        x * torch.ones(2)
    with pytest.raises(RuntimeError, match=r"not an XLA tensor: torch\.LongTensor"):
        x * torch.ones(2, dtype=torch.int64)


def test_0_dim_cpu_tensors_mix_as_numbers():
    def program(device):
        x = torch.ones(2, device=device)
        return [
            x + torch.tensor(2.0),
            torch.tensor(3, dtype=torch.int64) * x,
            x.div(torch.tensor(4.0)),
        ]

    for a, b in zip(program("cpu"), program("xla"), strict=True):
        assert b.device.type == "xla"
        torch.testing.assert_close(b.cpu(), a)


def test_device_that_does_not_exist():
    count = torch_xla.device_count()
    with pytest.raises(RuntimeError, match=f"{count}"):
        torch.zeros(2, device=f"xla:{count}")
    with pytest.raises(RuntimeError):
        torch_xla.device(count + 7)


def test_cpu_generator_on_xla_raises():
    with pytest.raises(RuntimeError, match="Expected a 'xla' device type for generator"):
        torch.rand(2, device="xla", generator=torch.Generator())


_KINDS = {
    "sparse to xla": (lambda: torch.eye(2).to_sparse().to("xla"), "to_dense"),
    "to_sparse": (lambda: torch.eye(2, device="xla").to_sparse(), "to_dense"),
    "to_sparse_csr": (lambda: torch.eye(2, device="xla").to_sparse_csr(), "to_dense"),
    "sparse_coo_tensor": (
        lambda: torch.sparse_coo_tensor([[0], [1]], [2.0], (2, 2), device="xla"),
        "to_dense",
    ),
    "sparse layout": (
        lambda: torch.zeros(2, layout=torch.sparse_coo, device="xla"),
        "to_dense",
    ),
    "sparse times dense": (
        lambda: torch.eye(2).to_sparse() @ torch.ones(2, 2, device="xla"),
        "to_dense",
    ),
    "quantized dtype": (
        lambda: torch.empty(2, dtype=torch.quint8, device="xla"),
        "Quantized|dequantize",
    ),
    "quantize": (
        lambda: torch.quantize_per_tensor(torch.ones(2, device="xla"), 0.1, 0, torch.quint8),
        "dequantize",
    ),
    "quantized to xla": (
        lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8).to("xla"),
        "dequantize",
    ),
    "sparse rows to xla": (lambda: torch.eye(2).to_sparse_csr().to("xla"), "to_dense"),
    "sparse rows": (
        lambda: torch.sparse_csr_tensor([0, 1], [0], [1.0], (1, 1), device="xla"),
        "to_dense",
    ),
    "nested to xla": (
        lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]).to("xla"),
        "torch.jagged",
    ),
    "nested on xla": (
        lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], device="xla"),
        "_nested_tensor_from_tensor_list.*torch.jagged",
    ),
    "nested tensors": (
        lambda: torch.nested.nested_tensor([torch.ones(1, device="xla")]),
        "torch.jagged",
    ),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.filterwarnings("ignore:.*quantized tensor creation functions")
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("name", _KINDS)
def test_kinds_of_tensors_that_are_not_here_say_the_way_round(name):
    call, way_round = _KINDS[name]
    with pytest.raises(NotImplementedError, match=way_round):
        call()
    assert torch.ones(2, device="xla").tolist() == [1, 1]


def test_failed_call_records_nothing():
    x = torch.ones(3, device="xla")
    y = x * 2
    with pytest.raises(RuntimeError):
        y.add_(torch.ones(4, device="xla"))
    assert y.tolist() == [2, 2, 2]
    assert y._version == 0


def test_two_xla_devices_do_not_mix():
    out = run_in_process(
        """
        import torch, torch_xla
        a, b = torch.ones(2, device="xla:0"), torch.ones(2, device="xla:1")
        for call in (lambda: a + b, lambda: a.add_(b), lambda: torch.cat([a, b])):
            try:
                call()
            except RuntimeError as error:
                print(error)
        print((a + b.to("xla:0")).tolist())
        """,
        CPU_NUM_DEVICES="2",
    )
    lines = out.splitlines()
    assert lines[-1] == "[2.0, 2.0]"
    refused = [line for line in lines if "Expected all tensors to be on the same device" in line]
    assert len(refused) == 3
    assert "xla:0" in refused[0]
    assert "xla:1" in refused[0]


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"PJRT_LIBRARY_PATH": "/nonexistent/plugin.so"}, "/nonexistent/plugin.so"),
        ({"PJRT_DEVICE": "NO_SUCH_DEVICE"}, "NO_SUCH_DEVICE"),
    ],
)
def test_missing_plugin_is_named_and_the_cpu_works_on(environment, words):
    out = run_in_process(
        """
        import torch, torch_xla
        for _ in range(2):
            try:
                torch.ones(2, device="xla")
            except RuntimeError as error:
                print(str(error).replace("\\n", " "))
        print(torch.ones(2).tolist())
        """,
        **environment,
    )
    lines = out.splitlines()
    assert words in lines[0]
    assert words in lines[1]
    assert lines[-1] == "[1.0, 1.0]"


def test_plugin_that_is_too_old_or_is_none_says_so(tmp_path):
    """A library whose PJRT_Api ends before its version, and one without `GetPjrtApi`."""
    old, other = tmp_path / "old.so", tmp_path / "other.so"
    source = tmp_path / "plugin.cpp"
    source.write_text(
        'extern "C" const void* GetPjrtApi() { static long api[2] = {16}; return api; }'
    )
    subprocess.run(["g++", "-shared", "-fPIC", "-o", old, source], check=True)
    source.write_text("int nothing;")
    subprocess.run(["g++", "-shared", "-fPIC", "-o", other, source], check=True)
    out = run_in_process(
        """
        import os, torch, torch_xla
        for path in os.environ["PLUGINS"].split(":"):
            torch_xla.settings.pjrt_library_path = path
            try:
                torch.ones(2, device="xla")
            except RuntimeError as error:
                print(str(error).replace("\\n", " "))
        torch_xla.settings.pjrt_library_path = ""
        print(torch.ones(2, device="xla").tolist())
        """,
        PLUGINS=f"{old}:{other}",
    )
    lines = out.splitlines()
    assert "too old" in lines[0]
    assert "GetPjrtApi" in lines[1]
    assert lines[-1] == "[1.0, 1.0]"


def test_running_out_of_memory_is_torchs_error():
    out = run_in_process(
        """
        import torch, torch_xla
        x = torch.ones(8, device="xla")
        huge = x.reshape(8, 1, 1) * torch.ones(2**25, device="xla").reshape(-1, 1)
        huge = huge * torch.ones(2**22, device="xla")
        try:
            torch_xla.sync(wait=True)
        except torch.OutOfMemoryError as error:
            print("OutOfMemoryError")
        del huge
        try:  # fails after the launch, where the one before failed in it
            torch.rand(10**12, device="xla").sum().item()
        except torch.OutOfMemoryError as error:
            print("OutOfMemoryError")
        print(torch.ones(2, device="xla").tolist())
        """
    )
    assert out.splitlines() == ["OutOfMemoryError", "OutOfMemoryError", "[1.0, 1.0]"]
