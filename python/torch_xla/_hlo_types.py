"""Types as XLA names them: `F32`, shapes of such, and the dtypes that they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

# XLA's short names.
NAMES = {
    torch.bool: "pred",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.int8: "s8",
    torch.int16: "s16",
    torch.int32: "s32",
    torch.int64: "s64",
    torch.float8_e4m3fn: "f8e4m3fn",
    torch.float8_e5m2: "f8e5m2",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.complex64: "c64",
    torch.complex128: "c128",
}
DTYPES = {name: dtype for dtype, name in NAMES.items()}


class Type:
    """The element types, by the names that XLA gives them."""

    F32 = "f32"
    F64 = "f64"
    BF16 = "bf16"
    F16 = "f16"
    U8 = "u8"
    S8 = "s8"
    U16 = "u16"
    S16 = "s16"
    U32 = "u32"
    S32 = "s32"
    U64 = "u64"
    S64 = "s64"
    C64 = "c64"
    C128 = "c128"
    PRED = "pred"


def dtype_of(name: str | torch.dtype) -> torch.dtype:
    """The dtype that XLA calls `name`.

    Raises:
        ValueError: none is called so.
    """
    if isinstance(name, torch.dtype):
        return name
    if name not in DTYPES:
        raise ValueError(f"there is no element type {name!r}; there are {', '.join(DTYPES)}")
    return DTYPES[name]


@dataclasses.dataclass(frozen=True)
class Shape:
    """An element type and sizes, or those of a tuple's elements."""

    dtype: str
    sizes: tuple[int, ...]
    elements: tuple[Shape, ...] | None = None

    @staticmethod
    def create(
        dtype: str, sizes: Sequence[int], dynamic_dimensions: Sequence[bool] | None = None
    ) -> Shape:
        """The shape with these sizes, none of which may be dynamic."""
        if dynamic_dimensions is not None and any(dynamic_dimensions):
            raise NotImplementedError("xla_builder: every size is a constant of its program")
        dtype_of(dtype)
        return Shape(dtype, tuple(int(size) for size in sizes))

    @staticmethod
    def of_tuple(elements: Sequence[Shape]) -> Shape:
        """The shape of a tuple."""
        return Shape("tuple", (), tuple(elements))

    @property
    def shape(self) -> Shape:
        """Itself."""
        return self

    @property
    def rank(self) -> int:
        """How many dimensions there are."""
        return len(self.sizes)

    @property
    def dynamic_dimensions(self) -> tuple[bool, ...]:
        """Of each dimension whether its size may vary: none's may."""
        return (False,) * self.rank

    def is_tuple(self) -> bool:
        """Whether it is that of a tuple."""
        return self.elements is not None

    def tuple_size(self) -> int:
        """How many elements the tuple has."""
        return len(self._elements())

    def tuple_shape(self, index: int) -> Shape:
        """The shape of one of the tuple's elements."""
        return self._elements()[index]

    def _elements(self) -> tuple[Shape, ...]:
        if self.elements is None:
            raise TypeError(f"xla_builder: expected the shape of a tuple, got {self}")
        return self.elements

    def is_dynamic(self) -> bool:
        """Whether a size may vary: never."""
        return False

    def as_scalar(self) -> Shape:
        """The shape of one element."""
        return Shape(self.dtype, ())


def text_of(types: Sequence[tuple[torch.dtype, Sequence[int]]]) -> str:
    """As XLA prints types: "f32[2,3];s32[]"."""
    return ";".join(f"{NAMES[dtype]}[{','.join(map(str, sizes))}]" for dtype, sizes in types)


def limits(dtype: str) -> torch.finfo | torch.iinfo:
    """The numbers that a type has, as `torch.finfo` tells."""
    found = dtype_of(dtype)
    return torch.finfo(found) if found.is_floating_point else torch.iinfo(found)
