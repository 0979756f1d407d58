"""Random programs of views, in-place writes and gradients, run on the CPU and on xla alike.

`ViewPrograms` grows a program while running it on the CPU, so that every line fits the shapes at
hand; random_programs.py runs, compares and shrinks. By hand:
`python tests/programs/view_programs.py --first 0 --count 500`.
"""

from __future__ import annotations

import itertools
import random
import re

import torch
from random_programs import Program, Run, ask, kind_of

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16]
DTYPES = [*FLOATS, *INTEGERS, torch.bool, torch.complex64]


class ViewRun(Run):
    """Ends in a backward pass over what requires a gradient."""

    def __init__(self, program: Program, device: str) -> None:
        super().__init__(program, device)
        self.scope["backward"] = self.backward

    def backward(self, weights=5):
        total = None
        for i, tensor in enumerate(self.tensors().values()):
            if not tensor.requires_grad or ask(tensor, "is_leaf") is not False:
                continue
            if tensor.is_complex():
                tensor = torch.view_as_real(tensor.resolve_conj())
            part = (tensor.float() * (i % weights + 1)).sum()
            total = part if total is None else total + part
        if total is not None:
            total.backward()


def offsets(tensor: torch.Tensor) -> list[int]:
    """The place in memory of every element, in units of the element."""
    ranges = [range(size) for size in tensor.shape]
    return [
        tensor.storage_offset() + sum(i * s for i, s in zip(place, tensor.stride(), strict=True))
        for place in itertools.product(*ranges)
    ]


def overlaps_itself(tensor: torch.Tensor) -> bool:
    places = offsets(tensor)
    return len(places) != len(set(places))


def overlaps_without_a_word(tensor: torch.Tensor) -> bool:
    """Whether writes depend on their order; where a stride is 0 PyTorch refuses them."""
    is_expanded = any(n > 1 and s == 0 for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return not is_expanded and overlaps_itself(tensor)


def shares_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata


def has_defined_writes(written: torch.Tensor, read: torch.Tensor) -> bool:
    """False where CPU's result depends on the order in which it visits the elements."""
    if not shares_memory(written, read):
        return True
    same = written.stride() == read.stride() and written.shape == read.shape
    if same and written.storage_offset() == read.storage_offset() and written.dtype == read.dtype:
        return True
    return written.is_contiguous() and read.is_contiguous()


def has_defined_puts(written: torch.Tensor, read: torch.Tensor) -> bool:
    """The same where indices say what is written: without gaps, shared memory is refused."""
    return not shares_memory(written, read) or (written.is_contiguous() and read.is_contiguous())


class ProgramMaker:
    run_class: type[Run] = ViewRun

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.program = Program(seed)
        self.run = self.run_class(self.program, "cpu")
        self.has_grad = self.rng.random() < 0.5
        self.count = 0

    # Choices.

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def tensor(self) -> str:
        return self.rng.choice(list(self.run.tensors()))

    def value(self, name: str) -> torch.Tensor:
        return self.run.scope[name]

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def dtype(self) -> torch.dtype:
        if self.has_grad or self.chance(0.5):
            return torch.float32
        return self.rng.choice(DTYPES)

    def shape(self) -> tuple[int, ...]:
        sizes = [1, 2, 3, 4, 5] if self.chance(0.95) else [0, 1, 2]
        return tuple(
            self.rng.choice(sizes) for _ in range(self.rng.choice([0, 1, 2, 2, 2, 3, 3, 4]))
        )

    def dim(self, t: torch.Tensor, extra: int = 0) -> int:
        rank = t.dim() + extra
        return self.rng.randrange(-rank, rank) if rank else 0

    def number(self, t: torch.Tensor) -> str:
        if t.dtype == torch.bool:
            return self.rng.choice(["True", "False"])
        choices = ["0", "1", "2", "3", "-1", "-2"]
        if t.dtype.is_floating_point or self.chance(0.05):
            choices += ["0.5", "1.5"]
        return self.rng.choice(choices)

    def factors(self, count: int) -> tuple[int, ...]:
        shape = []
        for size in (2, 3, 4, 5, 1):
            if count and count % size == 0 and self.chance(0.6):
                shape.append(size)
                count //= size
        shape.append(count)
        self.rng.shuffle(shape)
        if self.chance(0.3) and 0 not in shape:
            shape[self.rng.randrange(len(shape))] = -1
        return tuple(shape)

    def subscript(self, t: torch.Tensor) -> str:
        parts = []
        for size in t.shape[: self.rng.randint(0, t.dim())]:
            kind = self.rng.random()
            if kind < 0.35 and size:
                parts.append(str(self.rng.randrange(-size, size)))
            elif kind < 0.8:
                start = self.rng.choice(["", str(self.rng.randint(-size, size))])
                stop = self.rng.choice(["", str(self.rng.randint(-size, size + 1))])
                parts.append(f"{start}:{stop}" + self.rng.choice(["", "", ":2", ":3"]))
            else:
                parts.append(":")
        if self.chance(0.15):
            parts.insert(self.rng.randint(0, len(parts)), "None")
        if self.chance(0.2):
            parts.append("...")
        return ", ".join(parts) or "..."

    def like(self, shape, dtype: torch.dtype) -> str:
        """An expression of the shape, or of one that broadcasts to it."""
        shape = list(shape)
        if self.chance(0.3):
            shape = shape[self.rng.randint(0, len(shape)) :]
        shape = [1 if self.chance(0.2) else size for size in shape]
        if self.has_grad and dtype.is_floating_point:
            for name, t in self.run.tensors().items():
                if list(t.shape) == shape and self.chance(0.5):
                    return name
        return f"make({tuple(shape)}, {dtype}, {self.rng.randrange(20)})"

    # Lines. Each gives a line's text, or nothing where the operation does not fit.

    def new_tensor(self) -> str:
        shape, dtype = self.shape(), self.dtype()
        grad = self.has_grad and dtype.is_floating_point and self.chance(0.6)
        text = f"make({shape}, {dtype}, {self.rng.randrange(20)}{', True' if grad else ''})"
        if grad and self.chance(0.5):
            return f"{self.fresh()} = {text}.mul({self.rng.randint(1, 3)})"
        return f"{self.fresh()} = {text}"

    def view(self) -> str:
        name = self.tensor()
        return f"{self.fresh()} = {name}{self.view_of(self.value(name))}"

    def view_of(self, t: torch.Tensor) -> str:
        kinds = [self.rearranged, self.cut, self.cut, self.reshaped, self.strided]
        if t.is_complex() or self.chance(0.15):
            kinds.append(self.reinterpreted)
        return self.rng.choice(kinds)(t)

    def rearranged(self, t: torch.Tensor) -> str:
        rng = self.rng
        permutation = tuple(rng.sample(range(t.dim()), t.dim()))
        return rng.choice(
            [
                f".transpose({self.dim(t)}, {self.dim(t)})",
                f".permute({permutation})",
                f".movedim({self.dim(t)}, {self.dim(t)})",
                f".swapaxes({self.dim(t)}, {self.dim(t)})",
                ".t()",
                ".mT",
                f".unsqueeze({self.dim(t, 1)})",
                ".squeeze()",
                f".squeeze({self.dim(t)})",
                f".squeeze(({self.dim(t)}, {self.dim(t)}))",
            ]
        )

    def cut(self, t: torch.Tensor) -> str:
        rng = self.rng
        d = self.dim(t)
        size = t.shape[d] if t.dim() else 1
        start = rng.randint(0, size)
        choices = [
            f"[{self.subscript(t)}]",
            f"[{self.subscript(t)}]",
            f".narrow({d}, {start}, {rng.randint(0, size - start)})",
            f".diagonal({rng.randint(-2, 2)}, {self.dim(t)}, {self.dim(t)})",
            f".unfold({d}, {rng.randint(0, size + 1)}, {rng.randint(1, 3)})",
            f".split({rng.randint(1, max(size, 1))}, {d})[-1]",
            f".split([{start}, {size - start}], {d})[{rng.randint(0, 1)}]",
            f".chunk({rng.randint(1, 3)}, {d})[0]",
            f".tensor_split({rng.randint(1, 3)}, {d})[-1]",
        ]
        if size:
            choices += [
                f".select({d}, {rng.randrange(-size, size)})",
                f".unbind({d})[{rng.randrange(size)}]",
            ]
        return rng.choice(choices)

    def reshaped(self, t: torch.Tensor) -> str:
        first = self.dim(t)
        expanded = [self.rng.randint(1, 3) if size == 1 else -1 for size in t.shape]
        if self.chance(0.5):
            expanded.insert(0, self.rng.randint(1, 3))
        return self.rng.choice(
            [
                f".view({self.factors(t.numel())})",
                f".view({self.factors(t.numel())})",
                f".reshape({self.factors(t.numel())})",
                f".flatten({first})",
                ".ravel()",
                ".contiguous()",
                ".view(-1)",
                f".expand({tuple(expanded)})",
            ]
        )

    def strided(self, t: torch.Tensor) -> str:
        rng = self.rng
        storage = t.untyped_storage().nbytes() // t.element_size()
        is_alone = t._base is None and t.is_contiguous()
        if is_alone:  # some kernels of the CPU leave more behind it
            storage = t.storage_offset() + t.numel()
        sizes = [rng.randint(1, 3) for _ in range(rng.randint(0, 3))]
        strides = [rng.randint(0, 4) for _ in sizes]
        extent = sum((a - 1) * b for a, b in zip(sizes, strides, strict=True))
        if is_alone and extent >= storage:
            return ""
        offset = rng.randint(0, max(storage - extent - 1, 0))
        return f".as_strided({tuple(sizes)}, {tuple(strides)}, {offset})"

    def reinterpreted(self, t: torch.Tensor) -> str:
        if t.is_complex():
            return self.rng.choice([".real", ".imag", ".conj()", ".mH"])
        if t.dtype == torch.int32:  # of floats, this would make subnormal numbers
            return self.rng.choice([".view(torch.int16)", ".view(torch.uint8)"])
        return self.rng.choice([".detach()", ".real", ".view_as(" + self.tensor() + ")"])

    def copy(self) -> str:
        name = self.tensor()
        t = self.value(name)
        other = self.like(t.shape, self.rng.choice([t.dtype, self.dtype()]))
        if t.dtype == torch.float16 and t.dim():  # complex32 is no type of XLA's
            other = other.replace("make((), torch.complex64", "make((), torch.float16")
        dim = self.dim(t)
        text = self.rng.choice(
            [
                f"{name}.clone()",
                f"{name}.clone(memory_format=torch.contiguous_format)",
                f"{name}.detach()",
                f"{name}.data",
                f"{name} + {other}",
                f"{name} * {self.number(t)}",
                f"{name} * {name}",
                f"torch.where(mask({tuple(t.shape)}, {self.rng.randrange(9)}), {name}, {other})",
                f"{name}.to({self.dtype()})",
                f"torch.cat([{name}, {name}], {dim})",
                f"torch.stack([{name}, {name}], {dim})",
                f"{name}.sum({dim})",
                f"{name}.flip({dim})",
                f"torch.zeros_like({name})",
                f"{name}.repeat({(2,) * t.dim()})",
                f"{name}[{self.advanced(t)}]",
            ]
        )
        return f"{self.fresh()} = {text}"

    def advanced(self, t: torch.Tensor) -> str:
        """A subscript with index tensors or a mask."""
        if not t.dim() or 0 in t.shape or self.chance(0.3):
            return (
                f"mask({tuple(t.shape[: self.rng.randint(0, t.dim())])}, {self.rng.randrange(9)})"
            )
        size = t.shape[0]
        picks = self.rng.sample(range(-size, size), self.rng.randint(1, size))
        picks = list({p % size: p for p in picks}.values())  # no element twice: the last one wins
        if t.dim() > 1 and self.chance(0.4):
            rest = self.rng.choice([":", str(self.rng.randrange(t.shape[1])), "None", "::2"])
            return f"index({picks}), {rest}"
        return f"index({picks})"

    def write(self) -> str:
        name = self.tensor()
        t = self.value(name)
        if overlaps_without_a_word(t):
            return ""
        kind = self.rng.random()
        if kind < 0.4:
            line = self.arithmetic(name, t)
        elif kind < 0.75:
            line = self.assignment(name, t)
        else:
            line = self.indexed(name, t)
        if self.has_grad and self.chance(0.2):
            line = f"with torch.no_grad(): {line}"
        return line

    def operand(self, t: torch.Tensor, written: torch.Tensor | None = None) -> str:
        """What to write into `t`: another variable, one of its own views, or a new tensor. Where
        indices say what `t` is a copy of, `written` is what they are of."""
        target = t if written is None else written
        is_defined = has_defined_writes if written is None else has_defined_puts
        if self.chance(0.35):
            for name in self.rng.sample(list(self.run.tensors()), len(self.run.tensors())):
                other = self.value(name)
                try:
                    fits = torch.broadcast_shapes(other.shape, t.shape) == t.shape
                except RuntimeError:
                    continue
                if not fits:
                    continue
                return name if is_defined(target, other) else f"{name}.clone()"
        source = self.like(t.shape, self.rng.choice([t.dtype, t.dtype, self.dtype()]))
        known = self.run.tensors().get(source)
        return source if known is None or is_defined(target, known) else f"{source}.clone()"

    def arithmetic(self, name: str, t: torch.Tensor) -> str:
        op = self.rng.choice(["add_", "sub_", "mul_"])
        argument = self.number(t) if self.chance(0.5) else self.operand(t)
        return self.rng.choice(
            [
                f"{name}.{op}({argument})",
                f"{name}.{op}({argument})",
                f"{name}.add_({self.operand(t)}, alpha=2)",
                f"{name}.neg_()",
                f"{name}.clamp_(-1, 2)",
                f"{name}.zero_()",
                f"{name}.fill_({self.number(t)})",
                f"{name} += {argument}",
                f"{name} *= {argument}",
                f"{name}.masked_fill_(mask({tuple(t.shape)}, {self.rng.randrange(9)}), "
                f"{self.number(t)})",
                f"{name}.abs_()" if not t.is_complex() else f"{name}.conj_physical_()",
                f"{name}.logical_not_()",
                f"{name}.tril_()",
                self.view_in_place(name, t),
            ]
        )

    def view_in_place(self, name: str, t: torch.Tensor) -> str:
        if self.has_grad:  # torch takes the gradients of the views of such a tensor in another way
            return ""
        return self.rng.choice(
            [
                f"{name}.t_()",
                f"{name}.unsqueeze_({self.dim(t, 1)})",
                f"{name}.squeeze_()",
                f"{name}.transpose_({self.dim(t)}, {self.dim(t)})",
                f"{name}.data = {self.like(t.shape, t.dtype)}",
                # On the CPU, a conjugate stays one whatever memory it is given.
                f"{name}.set_({self.like(t.shape, t.dtype)})" if not t.is_conj() else "",
            ]
        )

    def assignment(self, name: str, t: torch.Tensor) -> str:
        subscript = self.subscript(t)
        try:
            part = eval(f"t[{subscript}]", {"t": t})
        except (IndexError, RuntimeError):
            return ""
        if overlaps_without_a_word(part):
            return ""
        return self.rng.choice(
            [
                f"{name}[{subscript}] = {self.number(t)}",
                f"{name}[{subscript}] = {self.operand(part)}",
                f"{name}[{subscript}] += {self.number(t)}",
                f"{name}[{subscript}].mul_({self.operand(part)})",
                f"{name}.copy_({self.operand(t)})",
                f"{name}{self.view_of(t)}.fill_({self.number(t)})" if self.safe(t) else "",
                f"{name}{self.view_of(t)}.add_({self.number(t)})" if self.safe(t) else "",
                f"torch.add({name}, {self.operand(t)}, out={name})" if not self.has_grad else "",
                # An empty part would be resized, and with it the memory that it shares.
                f"torch.mul({self.like(part.shape, t.dtype)}, 2, out={name}[{subscript}])"
                if not self.has_grad and part.numel()
                else "",
                f"{name}.data.add_({self.number(t)})",
            ]
        )

    def safe(self, t: torch.Tensor) -> bool:
        return not overlaps_itself(t)

    def indexed(self, name: str, t: torch.Tensor) -> str:
        if overlaps_itself(t):
            return ""
        subscript = self.advanced(t)
        try:
            part = eval(f"t[{subscript}]", {"t": t, **self.run.scope})
        except (IndexError, RuntimeError):
            return ""
        dim = self.dim(t)
        size = t.shape[dim] if t.dim() else 1
        picks = self.rng.sample(range(size), self.rng.randint(0, size))
        chosen = list(t.shape)
        if t.dim():
            chosen[dim] = len(picks)
        update = f"make({tuple(part.shape)}, {t.dtype}, {self.rng.randrange(20)})"
        source = f"make({tuple(chosen)}, {t.dtype}, {self.rng.randrange(20)})"
        return self.rng.choice(
            [
                f"{name}[{subscript}] = {self.number(t)}",
                f"{name}[{subscript}] = {update}",
                f"{name}[{subscript}] = {self.operand(part, t)}",
                f"{name}[{subscript}] += {self.number(t)}",
                f"{name}.index_fill_({dim}, index({picks}).long(), {self.number(t)})",
                f"{name}.index_copy_({dim}, index({picks}).long(), {source})",
                f"{name}.index_add_({dim}, index({picks}).long(), {source})",
            ]
        )

    # Programs.

    def add_line(self) -> None:
        kinds = [self.view] * 8 + [self.write] * 10 + [self.copy] * 3 + [self.new_tensor]
        line = self.rng.choice(kinds)()
        if not line or self.is_undefined(line):
            return
        error = self.run.line(line)
        keeps = not error or (self.chance(0.3) and not self.may_differ(line))
        if keeps:
            self.program.lines.append(line)
        else:
            self.run.errors.pop()

    def is_undefined(self, line: str) -> bool:
        """Lines whose view of what they write may overlap itself."""
        return any(op in line for op in (".unfold(", ".as_strided(", ".expand(")) and (
            ".fill_(" in line or ".add_(" in line or ".mul_(" in line
        )

    def may_differ(self, line: str) -> bool:
        """True for the errors that this device does not have.

        Views of any strides work on it, and whether a number on the device fits another dtype is
        not known when it is put into a tensor. `tril_` of repeated elements is refused on the CPU
        where its kernel works on a copy, from four dimensions on. A number that is put into
        another view of itself is refused on the CPU if it has a dimension. Conjugates are views
        like others.
        """
        if ".tril_(" in line:
            return True
        message = self.run.scope["last_error"]
        if "single memory location" in message and (
            names := re.findall(r"(?:\] = |\.copy_\()(v\d+)", line)
        ):
            return self.value(names[0]).numel() == 1
        unknown = ("view size is not compatible", "self.stride(-1)", "without overflow")
        unknown += ("unresolved conjugated tensors",)
        return any(words in message for words in unknown)

    def make(self, num_lines: int = 12) -> Program:
        self.program.lines.append(self.new_tensor())
        self.run.line(self.program.lines[-1])
        for _ in range(4 * num_lines):
            if len(self.program.lines) >= num_lines:
                break
            self.add_line()
        self.program.barriers = (self.rng.randint(1, len(self.program.lines)),)
        if self.has_grad:
            self.program.lines.append("backward()")
        return self.program


KIND = kind_of(ProgramMaker)
search = KIND.search

if __name__ == "__main__":
    KIND.main(__doc__)
