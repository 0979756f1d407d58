"""What recording costs for each of a hundred operators that programs use most, beside dispatching
it eagerly on the CPU; and how many lines a lowering has.

Every operator runs on tensors of 8x8 elements, some times before the graph is dropped: nothing is
executed, and what is freed is part of the figure.
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Callable

import torch
from measure import print_table, ratio, take_turns
from torch.nn import functional

import torch_xla
from torch_xla._XLAC import _host_operators, _lowered_operators

LIMIT = 2.0
REPEATS = 200

Operands = dict[str, torch.Tensor]
Operator = Callable[[Operands], object]

_UNARY = (
    *("abs", "acos", "atan", "ceil", "clone", "cos", "cosh", "erf", "exp", "expm1", "floor"),
    *("isfinite", "isnan", "log", "log1p", "log2", "logical_not", "neg", "reciprocal", "relu"),
    *("round", "rsqrt", "sigmoid", "sign", "sin", "sqrt", "square", "tan", "tanh", "trunc"),
)
_BINARY = (
    *("add", "atan2", "div", "eq", "floor_divide", "fmod", "ge", "gt", "le", "lt", "matmul"),
    *("maximum", "minimum", "mul", "ne", "pow", "remainder", "sub"),
)
_REDUCTIONS = (
    *("all", "amax", "amin", "any", "argmax", "argmin", "count_nonzero", "cumsum", "logsumexp"),
    *("max", "mean", "min", "norm", "prod", "std", "sum", "var"),
)


def _unary(name: str) -> Operator:
    function = getattr(torch, name)
    return lambda t: function(t["x"])


def _binary(name: str) -> Operator:
    function = getattr(torch, name)
    return lambda t: function(t["x"], t["y"])


def _reduction(name: str) -> Operator:
    function = getattr(torch, name)
    return lambda t: function(t["x"], dim=1)


CASES: dict[str, Operator] = {
    **{name: _unary(name) for name in _UNARY},
    **{name: _binary(name) for name in _BINARY},
    **{f"{name} of rows": _reduction(name) for name in _REDUCTIONS},
    "add_": lambda t: t["x"].add_(t["y"]),
    "mul_": lambda t: t["x"].mul_(t["y"]),
    "zero_": lambda t: t["x"].zero_(),
    "copy_": lambda t: t["x"].copy_(t["y"]),
    "add a number": lambda t: t["x"] + 1.5,
    "mul by a number": lambda t: t["x"] * 1.5,
    "addmm": lambda t: torch.addmm(t["row"], t["x"], t["y"]),
    "bmm": lambda t: torch.bmm(t["batch"], t["batch"]),
    "linear": lambda t: functional.linear(t["x"], t["y"], t["row"]),
    "softmax": lambda t: functional.softmax(t["x"], -1),
    "log_softmax": lambda t: functional.log_softmax(t["x"], -1),
    "gelu": lambda t: functional.gelu(t["x"]),
    "silu": lambda t: functional.silu(t["x"]),
    "leaky_relu": lambda t: functional.leaky_relu(t["x"]),
    "layer_norm": lambda t: functional.layer_norm(t["x"], (8,), t["row"], t["row"]),
    "embedding": lambda t: functional.embedding(t["index"], t["x"]),
    "cross_entropy": lambda t: functional.cross_entropy(t["x"], t["index"]),
    "mse_loss": lambda t: functional.mse_loss(t["x"], t["y"]),
    "dropout": lambda t: functional.dropout(t["x"], 0.5),
    "conv2d": lambda t: functional.conv2d(t["image"], t["kernel"]),
    "max_pool2d": lambda t: functional.max_pool2d(t["image"], 2),
    "avg_pool2d": lambda t: functional.avg_pool2d(t["image"], 2),
    "where": lambda t: torch.where(t["mask"], t["x"], t["y"]),
    "masked_fill": lambda t: t["x"].masked_fill(t["mask"], 0.0),
    "clamp": lambda t: t["x"].clamp(-1, 1),
    "gather": lambda t: t["x"].gather(1, t["places"]),
    "scatter": lambda t: t["x"].scatter(1, t["places"], t["y"]),
    "index_select": lambda t: t["x"].index_select(0, t["index"]),
    "index": lambda t: t["x"][t["index"]],
    "sort": lambda t: t["x"].sort(1),
    "topk": lambda t: t["x"].topk(2, 1),
    "cat": lambda t: torch.cat([t["x"], t["y"]]),
    "stack": lambda t: torch.stack([t["x"], t["y"]]),
    "split": lambda t: t["x"].split(4),
    "view": lambda t: t["x"].view(64),
    "reshape": lambda t: t["x"].reshape(4, 16),
    "transpose": lambda t: t["x"].transpose(0, 1),
    "permute": lambda t: t["batch"].permute(2, 0, 1),
    "expand": lambda t: t["row"].expand(4, 8),
    "unsqueeze": lambda t: t["x"].unsqueeze(0),
    "select": lambda t: t["x"][3],
    "slice": lambda t: t["x"][2:6],
    "flip": lambda t: t["x"].flip(0),
    "tril": lambda t: t["x"].tril(),
    "zeros_like": lambda t: torch.zeros_like(t["x"]),
    "to float64": lambda t: t["x"].to(torch.float64),
}


def operands(device: str) -> Operands:
    """What the cases take."""
    torch.manual_seed(0)
    index = torch.arange(8)
    made = {
        "x": torch.rand(8, 8) + 0.1,
        "y": torch.rand(8, 8) + 0.1,
        "row": torch.rand(8),
        "batch": torch.rand(2, 8, 8),
        "image": torch.rand(1, 2, 8, 8),
        "kernel": torch.rand(2, 2, 3, 3),
        "mask": torch.rand(8, 8) > 0.5,
        "index": index,
        "places": index.expand(8, 8).contiguous(),
    }
    return {name: value.to(device) for name, value in made.items()}


def repeated(case: Operator, given: Operands) -> Callable[[], None]:
    """Some calls of the operator, whose results are dropped."""

    def run() -> None:
        for _ in range(REPEATS):
            case(given)

    return run


def lines_per_lowering() -> str:
    """Source lines of `src/ops` for each operator registered there."""
    sources = pathlib.Path(__file__).resolve().parent.parent / "src" / "ops"
    lines = sum(len(path.read_text().splitlines()) for path in sources.glob("*.cpp"))
    count = len(_lowered_operators()) + len(_host_operators())
    return f"{lines} lines in src/ops for {count} operators: {lines / count:.1f} each"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=7)
    parser.add_argument("--only", default="", help="a part of the names of the rows to run")
    arguments = parser.parse_args()
    # Eager PyTorch's own threads would be counted as time while they wait for work.
    torch.set_num_threads(1)
    eager, lazy = operands("cpu"), operands("xla")
    torch_xla.sync(wait=True)
    rows = []
    for name, case in CASES.items():
        if arguments.only not in name:
            continue
        cpu, xla = take_turns(
            [repeated(case, eager), repeated(case, lazy)],
            arguments.samples,
            # In-place calls make a long graph of what they leave behind.
            after=lambda: lazy.update(operands("xla")),
        )
        pair = (cpu.median() / REPEATS * 1e6, xla.median() / REPEATS * 1e6)
        times = [f"{micros:.2f}" for micros in pair]
        rows.append([name, *times, ratio(pair[1] / pair[0], LIMIT), ratio(xla.best() / cpu.best())])
    header = ["operator", "eager us", "xla us", "median", "best"]
    print_table("Recording, by operator", header, rows)
    print(lines_per_lowering())


if __name__ == "__main__":
    main()
