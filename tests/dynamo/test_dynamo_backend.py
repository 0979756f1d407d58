"""The backend "openxla": which graphs it calls without AOTAutograd's wrappers, and how Dynamo finds
it."""

from __future__ import annotations

import sys

import pytest
import torch
from processes import run_in_process


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def files_of_functions_called(call):
    """The files of the Python functions that run in a call."""
    files = set()
    sys.setprofile(lambda frame, event, arg: files.add(frame.f_code.co_filename))
    try:
        call()
    finally:
        sys.setprofile(None)
    return files


def aotautograd_is_called(call):
    call()
    call()
    return any(file.endswith("runtime_wrappers.py") for file in files_of_functions_called(call))


def test_inference_goes_straight_to_the_graph():
    compiled = torch.compile(torch.nn.Linear(3, 2).to("xla"), backend="openxla")
    x = torch.randn(4, 3, device="xla")
    with torch.no_grad():
        assert not aotautograd_is_called(lambda: compiled(x))
    assert aotautograd_is_called(lambda: compiled(x))


# What AOTAutograd's wrappers are for.


def writes_its_argument(a, b):
    a.add_(b)
    return a * 2


def writes_through_a_view(a, b):
    a[0] = b[1]
    return a + b


def returns_its_argument(a, b):
    return a, a + b


def returns_a_view_of_its_argument(a, b):
    return a[1:], a.t() + b


def returns_two_views_of_a_result(a, b):
    c = a + b
    return c[0], c[:1]


def returns_a_tensor_twice(a, b):
    c = a + b
    return c, c


def changes_the_strides_of_its_argument(a, b):
    a.transpose_(0, 1)
    return a + b


def turns_gradients_off(a, b):
    torch.set_grad_enabled(False)
    return a + b


@pytest.mark.parametrize(
    "function",
    [
        writes_its_argument,
        writes_through_a_view,
        returns_its_argument,
        returns_a_view_of_its_argument,
        returns_two_views_of_a_result,
        returns_a_tensor_twice,
        changes_the_strides_of_its_argument,
        turns_gradients_off,
    ],
)
@pytest.mark.parametrize("is_one_tensor", [False, True])
def test_writes_and_views_are_as_without_compiling(function, is_one_tensor):
    def run(device, compile):
        call = compile(function)
        seen = []
        for i in range(3):
            a = (torch.arange(4.0).view(2, 2) + i).to(device)
            b = a if is_one_tensor else a.clone() * 10
            with torch.enable_grad():
                results = call(a, b)
                seen.append(torch.is_grad_enabled())
            results = results if isinstance(results, tuple) else (results,)
            for value, result in enumerate(results):
                with torch.no_grad():
                    result.mul_(value + 2)
            seen += [t.tolist() for t in (a, b, *results)]
        return seen

    want = run("cpu", lambda f: f)
    assert run("xla", lambda f: torch.compile(f, backend="openxla")) == want


def test_autocast_around_a_compiled_function():
    compiled = torch.compile(torch.matmul, backend="openxla")
    a = torch.randn(4, 4, device="xla")
    with torch.autocast("xla", dtype=torch.bfloat16):
        assert [compiled(a, a).dtype for _ in range(3)] == [torch.bfloat16] * 3
    assert compiled(a, a).dtype == torch.float32


ORDERS = {
    "torch_xla first": "import torch_xla, torch._dynamo",
    "Dynamo first": "import torch._dynamo, torch_xla",
    "its backends first": "import torch._dynamo.backends.torchxla, torch_xla",
}


@pytest.mark.parametrize("imports", ORDERS.values(), ids=ORDERS.keys())
def test_backend_is_found_whatever_is_imported_first(imports):
    script = f"""
import torch
{imports}
from torch._dynamo import list_backends
from torch._dynamo.backends.registry import lookup_backend
print(lookup_backend("openxla").__code__.co_filename)
print("openxla" in list_backends(), "openxla_eval" in list_backends())
x = torch.ones(2, device="xla")
with torch.no_grad():
    for name in ("openxla", "openxla_eval", "torchxla_trace_once"):
        torch.compiler.reset()
        print(torch.compile(lambda t: t + 1, backend=name)(x).tolist())
"""
    lines = run_in_process(script).splitlines()
    assert lines[0].endswith("torch_xla/_torch/openxla.py")
    assert lines[1:] == ["True False", *["[2.0, 2.0]"] * 3]


# What Inductor imports.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*is deprecated")
def test_inductor_says_which_backend_to_use():
    compiled = torch.compile(torch.nn.Linear(3, 2).to("xla"))
    with pytest.raises(RuntimeError, match=r'say torch.compile\(..., backend="openxla"\)'):
        compiled(torch.ones(1, 3, device="xla"))
