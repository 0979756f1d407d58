"""When parameters that lie in parts are gathered for a module that `fully_shard` manages, so that a
device has one module's at a time: for the forward pass, behind what the module takes, and once more
for the backward pass, behind the gradients of the module after it.

XLA on the CPU computes first what waits for nothing, and puts exchanges together that do not wait
for each other: all gathers would come first, and all gradients last. Optimization barriers are
gone when it decides that. So a matrix is gathered from `where(no, mark, part)`, which is the part:
the compiler does not know that it never has `mark`, a number of what is to come before. Vectors are
gathered once and kept: they are small, and recording them would cost as much.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch._compile import _disable_dynamo

from torch_xla import _XLAC


@dataclasses.dataclass(frozen=True)
class Shardings:
    """Of a parameter and of what stands for it, by the library's names."""

    parts: str
    whole: str
    # Of a batch in as many parts; None for parameters that wait for nothing.
    batch: str | None
    num_parts: int


class _Marks:
    """What gathers wait for in the backward pass that is under way."""

    def __init__(self) -> None:
        self.latest: torch.Tensor | None = None
        # False, by device: a parameter of programs.
        self._no: dict[torch.device, torch.Tensor] = {}
        # Of the parameters that were gathered last.
        self.whole: list[list[torch.Tensor]] = []

    def forget_whole(self) -> None:
        for one in self.whole:
            one.clear()
        self.whole.clear()

    def set(self, mark: torch.Tensor) -> None:
        if self.latest is None:
            engine = torch.autograd.Variable._execution_engine
            engine.queue_callback(self._clear)
        self.latest = mark

    def _clear(self) -> None:
        self.latest = None

    def no(self, device: torch.device) -> torch.Tensor:
        if device not in self._no:
            self._no[device] = torch.zeros((), dtype=torch.bool).to(device)
        return self._no[device]


_marks = _Marks()


def prepare(device: torch.device) -> None:
    """Make what gathers need; not within a function that is captured."""
    _marks.no(device)


def _number_of(t: torch.Tensor, sharding: str) -> torch.Tensor:
    """A number of each device's part of a tensor. They differ, so that it must not be used, and are
    not exchanged."""
    part: torch.Tensor = torch.ops.xla._full_to_shard(t, sharding)
    return part.reshape(-1)[0]


def _mark_of_inputs(inputs: Sequence[Any], its: Shardings) -> torch.Tensor | None:
    """That of the first input that has parts."""
    for t in inputs:
        if isinstance(t, torch.Tensor) and t.is_floating_point() and t.numel() > 0 and t.dim() > 0:
            first = t.detach().flatten(1)[:, 0] if t.dim() > 1 else t.detach()
            if its.batch is not None and len(first) % its.num_parts == 0:
                return _number_of(first, its.batch)
    return None


def _behind(part: torch.Tensor, mark: torch.Tensor | None, its: Shardings) -> torch.Tensor:
    """A parameter whole, which is not gathered before there is `mark`."""
    if mark is not None:
        late = torch.where(_marks.no(part.device), mark.to(part.dtype), part)
        # Else what is gathered would be `part`.
        (part,) = _XLAC._constrained([late], [its.parts])
    (whole,) = _XLAC._constrained([part], [its.whole])
    return whole


class _Placed(torch.autograd.Function):
    """Tensors of the same values, which lie by the shardings. Their derivatives are these."""

    @staticmethod
    def forward(
        ctx: Any, shardings: Sequence[str], *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        return tuple(_XLAC._constrained(tensors, shardings))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[Any, ...]:
        return None, *grads


class _Kept(NamedTuple):
    """What autograd keeps of a parameter that is gathered once more."""

    number: int
    part: torch.Tensor
    # It, until another module is called: the last one's are not gathered again.
    whole: list[torch.Tensor]


class Gathering:
    """The parameters of one call of a module.

    Args:
        shardings: of the parameters.
        is_repeated: matrices are gathered once more for the backward pass.
    """

    def __init__(self, shardings: Sequence[Shardings], is_repeated: bool) -> None:
        self._shardings, self._is_repeated = shardings, is_repeated
        # By their memory in the forward pass, and by their number in the backward pass.
        self._first: dict[int, _Kept] = {}
        self._again: dict[int, torch.Tensor] = {}

    def _waits(self, number: int) -> bool:
        return self._is_repeated and self._shardings[number].batch is not None

    def first(self, parts: Sequence[torch.Tensor], inputs: Sequence[Any]) -> list[torch.Tensor]:
        """The parameters for the forward pass; `inputs` are the module's."""
        _marks.forget_whole()
        marks = (_mark_of_inputs(inputs, its) for its in self._shardings if its.batch is not None)
        mark = next(marks, None) if self._is_repeated else None
        gathered = []
        for i, (part, its) in enumerate(zip(parts, self._shardings, strict=True)):
            if not self._waits(i):
                gathered += _XLAC._constrained([part], [its.whole])
                continue
            # The value that it has now: what is written to the parameter later is not for this.
            (now,) = _XLAC._constrained([part], [its.parts])
            gathered.append(_behind(now, mark, its))
            kept = _Kept(i, now, [gathered[i].detach()])
            self._first[_XLAC._alias_id(gathered[i])] = kept
            _marks.whole.append(kept.whole)
        return gathered

    def end_first(self) -> None:
        """The forward pass has ended: it is autograd that keeps what is still needed."""
        self._first = {}

    @_disable_dynamo  # autograd calls it within functions that Dynamo compiles
    def kept(self, t: torch.Tensor) -> torch.Tensor | _Kept:
        """What autograd keeps of a tensor."""
        if not self._first or not _XLAC._is_xla_tensor(t) or _XLAC._is_view(t):
            return t
        return self._first.get(_XLAC._alias_id(t), t)

    def of_kept(self, kept: torch.Tensor | _Kept) -> torch.Tensor:
        """The tensor."""
        if isinstance(kept, torch.Tensor):
            return kept
        if kept.whole:
            return kept.whole[0]
        if kept.number not in self._again:
            with torch.no_grad():
                its = self._shardings[kept.number]
                self._again[kept.number] = _behind(kept.part, _marks.latest, its)
        return self._again[kept.number]

    def gradients(self, grads: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """Those of the parameters, in parts, of those of what stands for them."""
        self._again = {}
        given = [(i, grad) for i, grad in enumerate(grads) if grad is not None]
        made = _Placed.apply(  # type: ignore[no-untyped-call]
            [self._shardings[i].parts for i, _ in given], *(grad for _, grad in given)
        )
        parts: list[torch.Tensor | None] = [None] * len(grads)
        numbers = []
        for (i, _), part in zip(given, made, strict=True):
            parts[i] = part
            if self._waits(i):
                numbers.append(_number_of(part.detach(), self._shardings[i].parts))
        if numbers:
            _marks.set(torch.stack(numbers).sum())
        return parts


class Gathered(torch.autograd.Function):
    """What a module takes in the place of parameters that lie in parts. All in one call: there are
    many, and a call takes longer than its work."""

    @staticmethod
    def forward(
        ctx: Any, gathering: Gathering, inputs: Sequence[Any], *parts: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.gathering = gathering
        return tuple(gathering.first(parts, inputs))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[Any, ...]:
        return None, None, *ctx.gathering.gradients(grads)
