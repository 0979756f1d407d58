"""Four ways to an operation that PyTorch does not have, each part of the program, with gradients.

    python examples/custom_ops.py
    pip install jax                                    for the fourth

1. A function of tensors: XLA fuses it; nothing need be registered.
2. `torch.library.custom_op`: the same by a name; `torch.compile` and `torch.export` keep it whole.
3. `xla_op_registry`: XLA's own operations, where PyTorch has no word for what is meant.
4. A function of JAX, with the gradient that JAX derives.
"""

import argparse
import importlib.util
from collections.abc import Callable

import torch

import torch_xla
import torch_xla.core.xla_op_registry as xor
import torch_xla.debug.metrics as metrics

Function = Callable[[torch.Tensor], torch.Tensor]


def squared_relu(x: torch.Tensor) -> torch.Tensor:
    """What all four compute: relu(x) ** 2."""
    return x.relu().square()


@torch.library.custom_op("examples::squared_relu", mutates_args=())
def named_squared_relu(x: torch.Tensor) -> torch.Tensor:
    return x.relu().square()


@named_squared_relu.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def keep_input(ctx, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs)


def gradient(ctx, grad: torch.Tensor) -> torch.Tensor:
    (x,) = ctx.saved_tensors
    return grad * 2 * x.relu()


named_squared_relu.register_autograd(gradient, setup_context=keep_input)


# `x` is an operand of XLA here, not a tensor: its methods are XLA's operations.
def write_squared_relu(x):
    positive = x.max(x.zeros_like())
    return positive * positive


in_operations_of_xla = xor.register("squared_relu", write_squared_relu)


class WithGradient(torch.autograd.Function):
    """An operation of XLA with the gradient that we say."""

    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return in_operations_of_xla(x)

    backward = staticmethod(gradient)


def ways() -> dict[str, Function]:
    """The four, or three without JAX."""
    found: dict[str, Function] = {
        "a function of tensors": squared_relu,
        "torch.library.custom_op": named_squared_relu,
        "operations of XLA": WithGradient.apply,
    }
    if importlib.util.find_spec("jax"):
        import jax

        from torch_xla.experimental.assume_pure import j2t_autograd

        found["a function of JAX"] = j2t_autograd(lambda x: jax.nn.relu(x) ** 2)
    return found


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Calls each; how far its values and gradients are off."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1000)
    options = parser.parse_args(arguments)
    start = torch.linspace(-2, 2, options.size)
    want, want_gradient = squared_relu(start), 2 * start.relu()
    errors = {}
    for name, function in ways().items():
        x = start.to("xla").requires_grad_()
        before = metrics.counter_value("UncachedCompile") or 0
        y = function(x)
        y.sum().backward()
        torch_xla.sync()
        compiled = (metrics.counter_value("UncachedCompile") or 0) - before
        off = (y.detach().cpu() - want).abs().max(), (x.grad.cpu() - want_gradient).abs().max()
        errors[name] = max(error.item() for error in off)
        print(f"{name:25} off by {errors[name]:.1e}; {compiled} program")
    return errors


if __name__ == "__main__":
    main()
