"""Random programs of autograd, run on the CPU and on xla alike.

Beside operators, views and in-place writes: leaves of any strides, several backward passes and
roots, `torch.autograd.grad` and gradients of gradients, hooks that look at gradients or change
them, checkpointing, custom Functions, writes that autograd does not see, optimizers between passes.
A program ends with the gradient of every tensor that has one. random_programs.py runs, compares and
shrinks. By hand: `python tests/programs/autograd_programs.py --first 0 --count 500`.
"""

from __future__ import annotations

import math

import autograd_pieces
import torch
import view_programs
from random_programs import Program, Run, ask, kind_of

LAYOUTS = ["", "", "", "transposed", "gaps", "offset"]


class AutogradRun(Run):
    """Keeps what hooks saw, in the order in which they were called."""

    def __init__(self, program: Program, device: str) -> None:
        super().__init__(program, device)
        self.log: list[torch.Tensor] = []
        self.failed: list[str] = []
        own = ("leaf", "numbers", "ramp", "note", "scaled", "halve", "finish")
        self.scope |= {name: getattr(self, name) for name in own}
        self.scope |= autograd_pieces.SCOPE

    # What lines call.

    def numbers(self, shape, dtype, seed):
        count = math.prod(shape)
        values = ((torch.arange(count) * (2 * seed + 3) + seed) % 13 - 6) / 4
        if dtype.is_complex:
            values = torch.complex(values, values.flip(0))
        return values.to(dtype).reshape(shape).clone().to(self.device)

    def leaf(self, shape, dtype, seed, layout=""):
        if layout == "gaps":
            wide = self.numbers((*shape[:-1], 2 * shape[-1]), dtype, seed)
            tensor = wide[..., ::2]
        elif layout == "offset":
            tensor = self.numbers((shape[0] + 2, *shape[1:]), dtype, seed)[2:]
        elif layout == "transposed":
            tensor = self.numbers(shape[::-1], dtype, seed).permute(*range(len(shape))[::-1])
        else:
            tensor = self.numbers(shape, dtype, seed)
        return tensor.detach().requires_grad_()

    def ramp(self, like):
        """Makes elements different that would be equal."""
        steps = torch.arange(like.numel(), dtype=torch.float64) * 0.137 % 1
        return steps.reshape(like.shape).to(like.dtype).to(self.device)

    def note(self, grad):
        self.log.append(grad.detach().clone())

    def scaled(self, factor):
        def hook(grad):
            self.note(grad)
            return grad * factor

        return hook

    def halve(self, parameter):
        self.note(parameter.grad)
        with torch.no_grad():
            parameter.grad.mul_(0.5)

    def finish(self):
        """The gradient of every result by every leaf, into the log."""
        tensors = self.tensors().items()
        able = {k: t for k, t in tensors if t.requires_grad and t.is_floating_point()}
        leaves = [t for t in able.values() if ask(t, "is_leaf") is True]
        for i, (name, tensor) in enumerate(able.items()):
            if ask(tensor, "is_leaf") is not False or not leaves:
                continue
            try:
                loss = (tensor * (i % 3 + 1)).sum()
                grads = torch.autograd.grad(loss, leaves, retain_graph=True, allow_unused=True)
            except RuntimeError:
                self.failed.append(name)
                continue
            for grad in grads:
                if grad is not None:
                    self.note(grad)

    # What is compared.

    def outcome(self) -> dict[str, torch.Tensor]:
        out = super().outcome()
        out |= {f"log {i}": tensor for i, tensor in enumerate(self.log)}
        out |= {f"no gradient of {name}": self.index(0) for name in self.failed}
        return out

    def facts(self, name: str) -> list[str]:
        if name.startswith("log"):
            return ["dtype", "shape"]
        # Torch's engine and its formulas choose how a derivative lies in memory.
        if name.startswith("d"):
            return ["dtype", "shape", "requires_grad"]
        # Errors tell whether versions are right; where they start is the kernel's choice.
        dropped = {"_version"}
        leaf = self.scope.get(name.removesuffix(".grad"))
        if name.endswith(".grad") and not torch.ops.aten.is_non_overlapping_and_dense(leaf):
            dropped |= {"stride", "storage_offset"}  # only dense leaves say how gradients lie
        return [fact for fact in super().facts(name) if fact not in dropped]

    def is_close(self, want: torch.Tensor, got: torch.Tensor) -> bool:
        finite = want[want.isfinite()]
        largest = float(finite.abs().max()) if finite.numel() else 0.0
        return torch.allclose(want, got, rtol=1e-4, atol=1e-4 * (largest + 0.1), equal_nan=True)


class ProgramMaker(view_programs.ProgramMaker):
    run_class = AutogradRun

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.has_grad = True
        self.float = self.rng.choice([torch.float64, torch.float64, torch.float32])
        if self.chance(0.1):
            self.float = torch.complex128
        self.optimizers: list[str] = []
        self.handles: list[str] = []

    # Choices.

    def dtype(self) -> torch.dtype:
        return self.float

    def shape(self) -> tuple[int, ...]:
        rank = self.rng.choice([0, 1, 2, 2, 2, 3])
        return tuple(self.rng.choice([1, 2, 2, 3, 3, 4]) for _ in range(rank))

    def number(self, t: torch.Tensor) -> str:
        return self.rng.choice(["0", "2", "-1", "0.5", "1.5", "0.25"])

    def like(self, shape, dtype: torch.dtype) -> str:
        names = [n for n, t in self.run.tensors().items() if self.fits(t, shape)]
        if names and self.chance(0.7):
            return self.rng.choice(names)
        return f"numbers({tuple(shape)}, {dtype}, {self.rng.randrange(20)})"

    def fits(self, t: torch.Tensor, shape) -> bool:
        try:
            return torch.broadcast_shapes(t.shape, shape) == tuple(shape)
        except RuntimeError:
            return False

    def leaf(self) -> str:
        names = [n for n, t in self.run.tensors().items() if ask(t, "is_leaf") is True]
        able = [n for n in names if self.value(n).requires_grad]
        return self.rng.choice(able or names or list(self.run.tensors()))

    def weights(self, name: str) -> str:
        t = self.value(name)
        return f"numbers({tuple(t.shape)}, {t.dtype}, {self.rng.randrange(20)})"

    def loss(self, name: str) -> str:
        if self.value(name).is_complex():
            return f"({name} * {self.weights(name)}).abs().square().sum()"
        choices = [f"({name} * {self.weights(name)}).sum()", f"{name}.sum()", f"{name}.mean()"]
        return self.rng.choice([choices[0], *choices])

    def operand(self, t: torch.Tensor, written: torch.Tensor | None = None) -> str:
        text = super().operand(t, written)
        other = self.run.tensors().get(text)
        target = t if written is None else written
        is_safe = other is None or view_programs.has_defined_writes(target, other)
        return text if is_safe else f"{text}.clone()"

    def others(self, name: str) -> str:
        return self.like(self.value(name).shape, self.value(name).dtype)

    # Lines.

    def new_tensor(self) -> str:
        shape = self.shape()
        layout = self.rng.choice(LAYOUTS) if shape else ""
        seed = self.rng.randrange(20)
        if self.chance(0.85):
            return f"{self.fresh()} = leaf({shape}, {self.float}, {seed}, {layout!r})"
        return f"{self.fresh()} = numbers({shape}, {self.float}, {seed})"

    def operation(self) -> str:
        name = self.tensor()
        t = self.value(name)
        table = autograd_pieces.COMPLEX if t.is_complex() else autograd_pieces.OPERATIONS
        text = self.rng.choice(table[self.rng.choice(list(table))])
        fields = {"a": name, "d": self.dim(t), "k": self.rng.randrange(9)}
        fields |= {"b": self.others(name), "c": self.others(name), "shape": tuple(t.shape)}
        if "{i}" in text:
            size = t.shape[fields["d"]] if t.dim() else 1
            if not size:
                return ""
            picks = [self.rng.randrange(size) for _ in range(self.rng.randint(1, 3))]
            fields["i"] = f"index({picks})"
        return f"{self.fresh()} = {text.format(**fields)}"

    def in_place(self) -> str:
        name = self.tensor()
        t = self.value(name)
        if view_programs.overlaps_itself(t):
            return ""
        kind = self.rng.random()
        if kind < 0.5:
            text = self.rng.choice(autograd_pieces.IN_PLACE)
            fields = {"b": self.operand(t), "c": self.operand(t), "d": self.dim(t)}
            line = text.format(a=name, k=self.rng.randrange(9), shape=tuple(t.shape), **fields)
        elif kind < 0.85:
            line = self.assignment(name, t)
        else:
            line = self.indexed(name, t)
        if self.chance(0.25):
            line = f"with torch.no_grad(): {line}"
        return line

    def context(self) -> str:
        line = self.rng.choice([self.operation, self.operation, self.view])()
        context = self.rng.choice(
            [
                "torch.no_grad()",
                "torch.enable_grad()",
                "torch.set_grad_enabled(False)",
                "torch.inference_mode()",
                "torch.autograd.graph.saved_tensors_hooks(packed, unpacked)",
                "torch.autograd.graph.saved_tensors_hooks(packed, unpacked)",
                "torch.autograd.set_multithreading_enabled(False)",
            ]
        )
        return f"with {context}: {line}"

    def function(self) -> str:
        name = self.tensor()
        kinds = autograd_pieces.FUNCTIONS
        # A view of a leaf that was made without gradients is neither a leaf nor computed.
        is_odd_view = ask(self.value(name), "is_leaf") is True and self.value(name)._is_view()
        if self.chance(0.4) and not is_odd_view:
            reentrant = self.chance(0.3)
            body = self.rng.choice(["body", "lambda t: body(t) * " + self.leaf()])
            return f"{self.fresh()} = checkpoint({body}, {name}, use_reentrant={reentrant})"
        text = self.rng.choice(kinds).format(a=name, b=self.others(name))
        if text.startswith("two"):
            return f"{self.fresh()}, {self.fresh()} = {text[4:]}"
        return f"{self.fresh()} = {text}"

    def backward(self) -> str:
        name, other, leaf = self.tensor(), self.tensor(), self.leaf()
        keep = self.chance(0.85)
        create = self.chance(0.2)
        options = f"retain_graph={keep}" + (", create_graph=True" if create else "")
        return self.rng.choice(
            [
                f"{self.loss(name)}.backward({options})",
                f"{self.loss(name)}.backward({options})",
                f"{name}.backward({self.weights(name)}, {options})",
                f"{name}.backward({self.weights(name)}, {options}, inputs=[{leaf}])",
                f"torch.autograd.backward([{name}, {other}], [{self.weights(name)}, "
                f"{self.weights(other)}], {options})",
                f"({self.loss(name)} + {self.loss(other)}).backward({options})",
            ]
        )

    def derivative(self) -> str:
        name, other = self.tensor(), self.tensor()
        first, second = self.leaf(), self.rng.choice([self.leaf(), self.tensor()])
        self.count += 1
        d, e = f"d{self.count}", f"d{self.count}b"
        options = f"create_graph={self.chance(0.7)}, retain_graph=True, allow_unused=True"
        return self.rng.choice(
            [
                f"{d}, = torch.autograd.grad({self.loss(name)}, {first}, {options})",
                f"{d}, {e} = torch.autograd.grad({self.loss(name)}, [{first}, {second}], "
                f"{options})",
                f"{d}, {e} = torch.autograd.grad([{self.loss(name)}, {self.loss(other)}], "
                f"[{first}, {second}], {options}, materialize_grads=True)",
                f"{d}, = torch.autograd.grad({name}, {first}, {self.weights(name)}, {options})",
                f"{d} = torch.func.grad(total)({name}.detach())",
                f"{d} = torch.func.jvp(body, ({name},), ({self.weights(name)},))[1]",
                f"{d}, = torch.func.vjp(body, {name})[1]({self.weights(name)})",
                f"{d} = hessian(total, {name})",
                f"{d} = forward_gradient({name}, {self.weights(name)})",
            ]
        )

    def hook(self) -> str:
        name, leaf = self.tensor(), self.leaf()
        if self.handles and self.chance(0.3):
            return f"{self.rng.choice(self.handles)}.remove()"
        # A hook on a view that was written since it was made may end the process on the CPU.
        if any(self.value(of)._is_view() for of in (name, leaf)):
            return ""
        handle = f"h{self.count}"
        self.count += 1
        line = self.rng.choice(
            [
                f"{handle} = {name}.register_hook(note)",
                f"{handle} = {name}.register_hook(scaled(2))",
                f"{handle} = {leaf}.register_hook(scaled(-0.5))",
                f"{handle} = {leaf}.register_post_accumulate_grad_hook(halve)",
                f"{handle} = {name}.grad_fn.register_prehook(double_all)",
                f"{handle} = {name}.grad_fn.register_hook(negate_first)",
                f"{name}.retain_grad()",
                f"{name}.retain_grad()",
            ]
        )
        if line.startswith(handle):
            self.handles.append(handle)
        return line

    def gradient(self) -> str:
        leaf = self.leaf()
        return self.rng.choice(
            [
                f"{leaf}.grad = None",
                f"{leaf}.grad.zero_()",
                f"{leaf}.grad.mul_(2)",
                f"{leaf}.grad = {self.weights(leaf)}",
                f"{leaf}.grad.detach_()",
                f"{self.fresh()} = {leaf}.grad",
                f"{self.fresh()} = {leaf}.grad * {leaf}",
                f"{self.fresh()} = copy.deepcopy({leaf}) * 1",
            ]
        )

    def toggle(self) -> str:
        name = self.tensor()
        tensors = self.run.tensors().values()
        # Given other memory, a tensor leaves its views with offsets into nothing on the CPU, and
        # once it requires no gradient, with ones of nothing.
        is_shared = sum(view_programs.shares_memory(self.value(name), t) for t in tensors) > 1
        return self.rng.choice(
            [
                f"{name}.requires_grad_()",
                f"{name}.requires_grad_(False)" if not is_shared else "",
                f"{name}.detach_()" if not is_shared else "",
                f"{name} = {name}.detach().requires_grad_()",
                f"{name} = {name}.detach()",
                # An inference tensor cannot be read on the CPU then.
                f"{name}.data = {self.weights(name)}"
                if not (is_shared or self.value(name).is_inference())
                else "",
                f"{name}.data.mul_(0.5)" if self.safe(self.value(name)) else "",
                f"{name}.detach().add_(1)" if self.safe(self.value(name)) else "",
            ]
        )

    def optimizer(self) -> str:
        if self.optimizers and self.chance(0.8):
            name = self.rng.choice(self.optimizers)
            call = self.rng.choice(["step()", "step()", "zero_grad()", "zero_grad(False)"])
            return f"{name}.{call}"
        leaves = sorted({self.leaf(), self.leaf()})
        name = f"o{self.count}"
        self.count += 1
        self.optimizers.append(name)
        kind = self.rng.choice(autograd_pieces.OPTIMIZERS)
        # Two names may be of one tensor, for which PyTorch's ways to step differ.
        distinct = f"*dict.fromkeys([{', '.join(leaves)}])" if len(leaves) > 1 else leaves[0]
        return f"{name} = {kind.format(leaves=distinct)}"

    # Programs.

    def add_line(self) -> None:
        kinds = [self.operation] * 8 + [self.view] * 3 + [self.in_place] * 4 + [self.backward] * 2
        kinds += [self.derivative] * 2 + [self.hook] * 2 + [self.function, self.context]
        kinds += [self.gradient, self.toggle, self.optimizer, self.new_tensor]
        line = self.rng.choice(kinds)()
        if not line or self.is_undefined(line):
            return
        known = set(self.run.tensors())
        error = self.run.line(line)
        grown = [n for n, t in self.run.tensors().items() if n not in known and self.is_huge(t)]
        for name in grown:
            del self.run.scope[name]
        if not grown and (not error or (self.chance(0.2) and not self.may_differ(line))):
            self.program.lines.append(line)
        else:
            self.run.errors.pop()

    def is_huge(self, t: torch.Tensor) -> bool:
        return t.numel() > 500 or bool((t.detach().abs() > 1e3).any() or t.isnan().any())

    def make(self, num_lines: int = 14) -> Program:
        for _ in range(2):
            self.program.lines.append(self.new_tensor())
            self.run.line(self.program.lines[-1])
        for _ in range(4 * num_lines):
            if len(self.program.lines) >= num_lines:
                break
            self.add_line()
        self.program.barriers = (self.rng.randint(1, len(self.program.lines)),)
        self.program.lines.append("finish()")
        return self.program


KIND = kind_of(ProgramMaker)
search = KIND.search

if __name__ == "__main__":
    KIND.main(__doc__)
