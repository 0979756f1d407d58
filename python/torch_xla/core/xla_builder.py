"""Programs written operation by operation, with XLA's operations as methods of `Op`.

An `Op` is a value of the program that is being recorded; its methods record what they say. Unlike
tensors' methods they take XLA's arguments: dimensions as lists, sizes in full, computations for
reductions and loops. `create_computation` makes a computation of a function on `Op`s;
torch_xla.core.xla_op_registry makes an operator for tensors of one.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_xla import _XLAC, _custom_calls, _hlo_types
from torch_xla._capture import loops
from torch_xla._hlo_types import Shape, Type
from torch_xla.core import _hlo_indexing

__all__ = ["Op", "Shape", "Type", "call_jax", "create_builder", "create_computation"]

Dims = Sequence[int]
Pair = tuple[int, int]


class Builder:
    """A program under construction: a name, and its parameters in their order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.parameters: dict[int, torch.Tensor] = {}


class Computation:
    """A function on `Op`s, or the text of a program, that others may call."""

    def __init__(self, name: str, text: str, results: str, fn: Callable[..., Any] | None) -> None:
        self.name = name
        self.text = text
        self._results = results
        self._fn = fn

    def __call__(self, *operands: Op) -> Any:
        if self._fn is not None:
            return self._fn(*operands)
        tensors = [operand.tensor for operand in operands]
        results = torch.ops.xla._call_module(tensors, self.text, self._results)
        ops = [Op(result) for result in results]
        return ops[0] if len(ops) == 1 else ops


def _tensor(value: Any, like: torch.Tensor) -> torch.Tensor:
    if isinstance(value, Op):
        return value.tensor
    if isinstance(value, torch.Tensor):
        return value
    return torch.full((), value, dtype=like.dtype, device=like.device)


def _binary(function: Callable[..., torch.Tensor]) -> Callable[[Op, Any], Op]:
    def method(self: Op, other: Any) -> Op:
        return Op(function(self.tensor, _tensor(other, self.tensor)))

    return method


def _reflected(function: Callable[..., torch.Tensor]) -> Callable[[Op, Any], Op]:
    def method(self: Op, other: Any) -> Op:
        return Op(function(_tensor(other, self.tensor), self.tensor))

    return method


def _unary(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Op], Op]:
    def method(self: Op) -> Op:
        return Op(function(self.tensor))

    return method


class Op:
    """A value of a program.

    Args:
        tensor: the xla tensor that it is.
    """

    def __init__(self, tensor: Any) -> None:
        self._value = tensor

    @property
    def tensor(self) -> torch.Tensor:
        if not isinstance(self._value, torch.Tensor):
            raise TypeError("xla_builder: expected an array, got a tuple; use get_tuple_element")
        return self._value

    def shape(self) -> Shape:
        return Shape(_hlo_types.NAMES[self.tensor.dtype], tuple(self.tensor.shape))

    def builder(self) -> Builder:
        return Builder("computation")

    # Of other types and sizes.

    def cast(self, to_type: str) -> Op:
        return Op(self.tensor.to(_hlo_types.dtype_of(to_type)))

    def bitcast_convert(self, to_type: str) -> Op:
        return Op(self.tensor.view(_hlo_types.dtype_of(to_type)))

    def reshape(self, sizes: Dims) -> Op:
        return Op(self.tensor.reshape(tuple(sizes)))

    def dynamic_reshape(self, sizes: Dims) -> Op:
        return self.reshape(sizes)

    def broadcast(self, sizes: Dims) -> Op:
        return Op(self.tensor.expand(*sizes, *self.tensor.shape))

    def broadcast_in_dim(self, sizes: Dims, dimensions: Dims) -> Op:
        placed = [1] * len(sizes)
        for size, dimension in zip(self.tensor.shape, dimensions, strict=True):
            placed[dimension] = size
        order = sorted(range(len(dimensions)), key=lambda i: dimensions[i])
        return Op(self.tensor.permute(order).reshape(placed).expand(tuple(sizes)))

    def transpose(self, permutation: Dims) -> Op:
        return Op(self.tensor.permute(tuple(permutation)))

    def rev(self, dimensions: Dims) -> Op:
        return Op(self.tensor.flip(tuple(dimensions)))

    def slice(self, start_indices: Dims, limit_indices: Dims, strides: Dims | None = None) -> Op:
        steps = strides or [1] * len(start_indices)
        index = tuple(map(slice, start_indices, limit_indices, steps))
        return Op(self.tensor[index])

    def slice_in_dim(self, start_index: int, limit_index: int, stride: int, dimno: int) -> Op:
        index = [slice(None)] * self.tensor.dim()
        index[dimno] = slice(start_index, limit_index, stride)
        return Op(self.tensor[tuple(index)])

    def _positions(self, start: Any, size: int, dimension: int) -> torch.Tensor:
        """Of a slice whose beginning is data, moved so that it is inside, as XLA does."""
        first = _tensor(start, self.tensor).reshape(()).to(torch.int64)
        first = first.clamp(0, self.tensor.shape[dimension] - size)
        return torch.arange(size, device=self.tensor.device) + first

    def dynamic_slice(self, start_indices: Sequence[Any], slice_sizes: Dims) -> Op:
        result = self
        for dimension, start in enumerate(start_indices):
            result = result.dynamic_slice_in_dim(start, slice_sizes[dimension], dimension)
        return result

    def dynamic_slice_in_dim(self, start_index: Any, slice_size: int, dimno: int) -> Op:
        positions = self._positions(start_index, slice_size, dimno)
        return Op(self.tensor.index_select(dimno, positions))

    def dynamic_update_slice(self, update: Op, start_indices: Sequence[Any]) -> Op:
        sizes = update.tensor.shape
        grid = torch.meshgrid(
            *(self._positions(s, sizes[i], i) for i, s in enumerate(start_indices)), indexing="ij"
        )
        return Op(self.tensor.index_put(grid, update.tensor))

    def dynamic_update_slice_in_dim(self, update: Op, start_index: Any, dimno: int) -> Op:
        starts: list[Any] = [0] * self.tensor.dim()
        starts[dimno] = start_index
        return self.dynamic_update_slice(update, starts)

    def pad(self, value: Any, config: Sequence[tuple[int, int, int]]) -> Op:
        """`config` has (before, after, between) for each dimension; the first two may be
        negative."""
        sizes = [
            max(before, 0) + max(after, 0) + size + max(size - 1, 0) * between
            for size, (before, after, between) in zip(self.tensor.shape, config, strict=True)
        ]
        out = _tensor(value, self.tensor).expand(sizes).clone()
        index = tuple(
            slice(
                max(before, 0), max(before, 0) + max(size - 1, 0) * (between + 1) + 1, between + 1
            )
            for size, (before, _, between) in zip(self.tensor.shape, config, strict=True)
        )
        out[index] = self.tensor
        crop = tuple(
            slice(max(-before, 0), size - max(-after, 0))
            for size, (before, after, _) in zip(sizes, config, strict=True)
        )
        return Op(out[crop])

    def get_dimension_size(self, dimension: int) -> Op:
        size = self.tensor.shape[dimension]
        return Op(torch.full((), size, dtype=torch.int32, device=self.tensor.device))

    def index_select(self, dim: int, index: Op) -> Op:
        return Op(self.tensor.index_select(dim, index.tensor))

    def __getitem__(self, index: Any) -> Op:
        return Op(self.tensor[index])

    # Products.

    def dot(self, other: Op) -> Op:
        return Op(torch.matmul(self.tensor, other.tensor))

    def dot_general(self, other: Op, dimension_numbers: tuple[Any, Any]) -> Op:
        """`dimension_numbers`: ((contracting left, right), (batch left, right))."""
        (left_contracted, right_contracted), (left_batch, right_batch) = dimension_numbers
        left = list(range(self.tensor.dim()))
        right = [len(left) + i for i in range(other.tensor.dim())]
        for mine, theirs in ((left_contracted, right_contracted), (left_batch, right_batch)):
            for i, j in zip(mine, theirs, strict=True):
                right[j] = left[i]
        batch = [left[i] for i in left_batch]
        summed = {left[i] for i in left_contracted}
        rest = [d for d in left + right if d not in summed and d not in batch]
        return Op(torch.einsum(self.tensor, left, other.tensor, right, batch + rest))

    def conv(
        self,
        kernel: Op,
        window_strides: Dims,
        feature_group_count: int = 1,
        padding: Sequence[Pair] | str = "valid",
        rhs_dilation: Dims | None = None,
    ) -> Op:
        """Of (batch, features, spatial...) with (output features, input features, spatial...)."""
        count = self.tensor.dim() - 2
        dilation = list(rhs_dilation or [1] * count)
        if isinstance(padding, str):
            padding = self._named_padding(padding, kernel, window_strides, dilation)
        padded = self.pad(0, [(0, 0, 0), (0, 0, 0), *((a, b, 0) for a, b in padding)])
        result = torch.convolution(
            padded.tensor, kernel.tensor, None, list(window_strides), [0] * count, dilation, False,
            [0] * count, feature_group_count,
        )  # fmt: skip
        return Op(result)

    def conv_with_general_padding(
        self, kernel: Op, window_strides: Dims, padding: Sequence[Pair], **options: Any
    ) -> Op:
        return self.conv(kernel, window_strides, padding=padding, **options)

    def _named_padding(self, name: str, kernel: Op, strides: Dims, dilation: Dims) -> list[Pair]:
        if name.lower() == "valid":
            return [(0, 0)] * len(strides)
        if name.lower() != "same":
            raise ValueError(f"conv: padding must be valid, same or pairs, got {name!r}")
        pairs = []
        for i, stride in enumerate(strides):
            size = self.tensor.shape[2 + i]
            window = (kernel.tensor.shape[2 + i] - 1) * dilation[i] + 1
            total = max((-(-size // stride) - 1) * stride + window - size, 0)
            pairs.append((total // 2, total - total // 2))
        return pairs

    def triangular_solve(
        self,
        b: Op,
        left_side: bool = True,
        lower: bool = False,
        unit_diagonal: bool = False,
        transpose_a: bool = False,
    ) -> Op:
        a = self.tensor.mT if transpose_a else self.tensor
        upper = lower if transpose_a else not lower
        return Op(
            torch.linalg.solve_triangular(
                a, b.tensor, upper=upper, left=left_side, unitriangular=unit_diagonal
            )
        )

    # Reductions, sorting, control flow.

    def reduce(self, init_value: Any, computation: Callable[..., Op], dimensions: Dims) -> Op:
        """Combine the elements along `dimensions`; `computation` of two values must be
        associative, and `init_value` change nothing."""
        kept = [i for i in range(self.tensor.dim()) if i not in set(dimensions)]
        sizes = [self.tensor.shape[i] for i in kept]
        x = self.tensor.permute(*kept, *dimensions).reshape(*sizes, -1)
        init = _tensor(init_value, self.tensor)
        while x.shape[-1] > 1:
            if x.shape[-1] % 2:
                x = torch.cat([x, init.expand(*sizes, 1)], dim=-1)
            half = x.shape[-1] // 2
            x = computation(Op(x[..., :half]), Op(x[..., half:])).tensor
        x = x.squeeze(-1) if x.shape[-1] else init.expand(sizes)
        return computation(Op(init.expand(sizes)), Op(x))

    def reduce_all(self, init_value: Any, computation: Callable[..., Op]) -> Op:
        return self.reduce(init_value, computation, range(self.tensor.dim()))

    def reduce_window(
        self,
        init_value: Any,
        computation: Callable[..., Op],
        window_dimensions: Dims,
        window_strides: Dims,
        padding: Sequence[Pair] | str = "valid",
    ) -> Op:
        if isinstance(padding, str):
            if padding.lower() != "valid":
                raise ValueError(f"reduce_window: padding must be valid or pairs, got {padding!r}")
            padding = [(0, 0)] * len(window_dimensions)
        x = self.pad(init_value, [(a, b, 0) for a, b in padding]).tensor
        for i, (size, stride) in enumerate(zip(window_dimensions, window_strides, strict=True)):
            x = x.unfold(i, size, stride)
        count = len(window_dimensions)
        return Op(x).reduce(init_value, computation, range(count, 2 * count))

    def map(self, computation: Callable[..., Op], *others: Op) -> Op:
        return computation(self, *others)

    def select(self, true_value: Op, false_value: Op) -> Op:
        return Op(torch.where(self.tensor, true_value.tensor, false_value.tensor))

    def clamp(self, min_value: Any, max_value: Any) -> Op:
        low, high = (_tensor(value, self.tensor) for value in (min_value, max_value))
        return Op(torch.minimum(torch.maximum(self.tensor, low), high))

    def sort(
        self,
        dimension: int = -1,
        descending: bool = False,
        comparator: Callable[..., Op] | None = None,
    ) -> Op:
        """An array or a tuple of arrays of one shape, which are ordered together; equals keep their
        order. `comparator` of two elements of each array, (a0, b0, a1, b1, ...), says whether the
        first come before the second; by default the first array's lesser one does."""
        tensors = self._value if isinstance(self._value, tuple) else (self.tensor,)
        if comparator is None and len(tensors) == 1:
            return Op(tensors[0].sort(dim=dimension, descending=descending, stable=True).values)

        def is_before(*values: torch.Tensor) -> torch.Tensor:
            if comparator is not None:
                return comparator(*map(Op, values)).tensor
            return values[0] > values[1] if descending else values[0] < values[1]

        results = _hlo_indexing.sort(tensors, is_before, dimension)
        return Op(tuple(results) if isinstance(self._value, tuple) else results[0])

    def gather(
        self,
        start_indices: Op,
        slice_sizes: Dims,
        offset_dims: Dims,
        collapsed_slice_dims: Dims,
        start_index_map: Dims,
        index_vector_dim: int,
    ) -> Op:
        """A window of `slice_sizes` at each index vector, moved inside if it is not."""
        return Op(
            _hlo_indexing.gather(
                self.tensor, start_indices.tensor, slice_sizes, offset_dims, collapsed_slice_dims,
                start_index_map, index_vector_dim,
            )
        )  # fmt: skip

    def scatter(
        self,
        scatter_indices: Op,
        updates: Op,
        computation: Callable[..., Op],
        update_window_dims: Dims,
        inserted_window_dims: Dims,
        scatter_dims_to_operand_dims: Dims,
        index_vector_dim: int,
    ) -> Op:
        """The array in which a window of updates at each index vector is combined with what is
        there by `computation` of both; windows that are not inside are left out."""
        return Op(
            _hlo_indexing.scatter(
                self.tensor, scatter_indices.tensor, updates.tensor,
                lambda a, b: computation(Op(a), Op(b)).tensor, update_window_dims,
                inserted_window_dims, scatter_dims_to_operand_dims, index_vector_dim,
            )
        )  # fmt: skip

    def while_loop(self, condition: Callable[..., Op], body: Callable[..., Any]) -> Op:
        """Of an array or a tuple, which both functions take and `body` returns."""
        values = self._value if isinstance(self._value, tuple) else (self._value,)
        is_tuple = isinstance(self._value, tuple)

        def given(tensors: Sequence[torch.Tensor]) -> Op:
            return Op(tuple(tensors) if is_tuple else tensors[0])

        def turn(*tensors: torch.Tensor) -> list[torch.Tensor]:
            result = body(given(tensors))._value
            return list(result) if is_tuple else [result]

        return given(loops.while_loop(lambda *ts: condition(given(ts)).tensor, turn, tuple(values)))

    def mkconditional(
        self,
        true_operand: Op,
        true_computation: Callable[..., Op],
        false_operand: Op,
        false_computation: Callable[..., Op],
    ) -> Op:
        result = loops.cond_operator(
            self.tensor,
            lambda a, b: true_computation(Op(a)).tensor,
            lambda a, b: false_computation(Op(b)).tensor,
            [true_operand.tensor, false_operand.tensor],
        )
        return Op(result)

    def optimization_barrier(self) -> Op:
        """The value or the tuple, which the compiler takes for a new one."""
        is_tuple = isinstance(self._value, tuple)
        values = list(self._value) if is_tuple else [self.tensor]
        results, _ = _XLAC._record_region("optimization_barrier", [], values, len(values))
        return Op(tuple(results) if is_tuple else results[0])

    def custom_call(
        self,
        call_target: str,
        shape: Shape,
        *others: Op,
        has_side_effect: bool = False,
        backend_config: str = "",
    ) -> Op:
        """The result, of type `shape`, of a function that the plugin knows by name."""
        tensors = [op.tensor for op in (self, *others)]
        dtype = _hlo_types.dtype_of(shape.dtype)
        return Op(
            _custom_calls.stablehlo_custom_call(
                tensors, call_target, [shape.sizes], [dtype], has_side_effect, backend_config
            )
        )

    def call(self, computation: Callable[..., Op], *others: Op) -> Op:
        return computation(self, *others)

    def get_tuple_element(self, index: int) -> Op:
        return Op(self._value[index])

    # Constants.

    def zeros_like(self) -> Op:
        return Op(torch.zeros_like(self.tensor))

    def scalar_like(self, value: float) -> Op:
        return Op(_tensor(value, self.tensor))

    @staticmethod
    def scalar(builder: Builder, value: Any, dtype: str | None = None) -> Op:
        if dtype is None:
            dtype = {bool: Type.PRED, int: Type.S32}.get(type(value), Type.F32)
        return Op(torch.full((), value, dtype=_hlo_types.dtype_of(dtype), device="xla"))

    @staticmethod
    def constant(builder: Builder, value: torch.Tensor) -> Op:
        return Op(value.to("xla"))

    @staticmethod
    def zero(builder: Builder, dtype: str = Type.F32) -> Op:
        return Op.scalar(builder, 0, dtype)

    @staticmethod
    def one(builder: Builder, dtype: str = Type.F32) -> Op:
        return Op.scalar(builder, 1, dtype)

    @staticmethod
    def minval(builder: Builder, dtype: str = Type.F32) -> Op:
        return Op.scalar(builder, _limits(dtype).min, dtype)

    @staticmethod
    def maxval(builder: Builder, dtype: str = Type.F32) -> Op:
        return Op.scalar(builder, _limits(dtype).max, dtype)

    @staticmethod
    def iota(builder: Builder, shape: Shape, iota_dimension: int) -> Op:
        dtype = _hlo_types.dtype_of(shape.dtype)
        numbers = torch.arange(shape.sizes[iota_dimension], device="xla").to(dtype)
        sizes = [1] * shape.rank
        sizes[iota_dimension] = -1
        return Op(numbers.reshape(sizes).expand(shape.sizes))

    @staticmethod
    def linspace(builder: Builder, dtype: str, start: Any, end: Any, count: int) -> Op:
        found = _hlo_types.dtype_of(dtype)
        return Op(torch.linspace(start, end, count, dtype=found, device="xla"))

    @staticmethod
    def tuple(ops: Sequence[Op], builder: Builder | None = None) -> Op:
        return Op(tuple(op.tensor for op in ops))

    def build(self, name: str) -> Computation:
        """The computation of this value from the parameters that `mkparam` made."""
        builder = _owner_of_parameters()
        parameters = [builder.parameters[i] for i in range(len(builder.parameters))]
        return _computation(name, parameters, self._value, None)

    __add__ = _binary(torch.add)
    __radd__ = _reflected(torch.add)
    __sub__ = _binary(torch.sub)
    __rsub__ = _reflected(torch.sub)
    __mul__ = _binary(torch.mul)
    __rmul__ = _reflected(torch.mul)
    __matmul__ = _binary(torch.matmul)
    __truediv__ = _binary(torch.true_divide)
    __rtruediv__ = _reflected(torch.true_divide)
    __pow__ = _binary(torch.pow)
    __mod__ = _binary(torch.fmod)
    __and__ = _binary(operator.and_)
    __or__ = _binary(operator.or_)
    __xor__ = _binary(operator.xor)
    __lshift__ = _binary(torch.bitwise_left_shift)
    __rshift__ = _binary(torch.bitwise_right_shift)
    __neg__ = _unary(torch.neg)
    __invert__ = _unary(torch.bitwise_not)
    __abs__ = _unary(torch.abs)
    __eq__ = _binary(torch.eq)  # type: ignore[assignment]
    __ne__ = _binary(torch.ne)  # type: ignore[assignment]
    __lt__ = _binary(torch.lt)
    __le__ = _binary(torch.le)
    __gt__ = _binary(torch.gt)
    __ge__ = _binary(torch.ge)
    __hash__ = object.__hash__

    max = _binary(torch.maximum)
    min = _binary(torch.minimum)
    rem = _binary(torch.fmod)
    pow = _binary(torch.pow)
    atan2 = _binary(torch.atan2)
    abs = _unary(torch.abs)
    acos = _unary(torch.acos)
    asin = _unary(torch.asin)
    atan = _unary(torch.atan)
    ceil = _unary(torch.ceil)
    cos = _unary(torch.cos)
    cosh = _unary(torch.cosh)
    erf = _unary(torch.erf)
    erfc = _unary(torch.erfc)
    erfinv = _unary(torch.erfinv)
    exp = _unary(torch.exp)
    expm1 = _unary(torch.expm1)
    floor = _unary(torch.floor)
    is_finite = _unary(torch.isfinite)
    log = _unary(torch.log)
    log1p = _unary(torch.log1p)
    neg = _unary(torch.neg)
    not_ = _unary(torch.bitwise_not)
    round = _unary(torch.round)
    rsqrt = _unary(torch.rsqrt)
    sigmoid = _unary(torch.sigmoid)
    sign = _unary(torch.sign)
    sin = _unary(torch.sin)
    sinh = _unary(torch.sinh)
    sqrt = _unary(torch.sqrt)
    tan = _unary(torch.tan)
    tanh = _unary(torch.tanh)


def _limits(dtype: str) -> Any:
    found = _hlo_types.dtype_of(dtype)
    return torch.finfo(found) if found.is_floating_point else torch.iinfo(found)


# The builder whose parameters were asked for last: `Op.build` is not told.
_latest_builder: list[Builder] = []


def _owner_of_parameters() -> Builder:
    if not _latest_builder:
        raise RuntimeError("xla_builder: make parameters with mkparam first")
    return _latest_builder[-1]


def create_builder(name: str) -> Builder:
    """A new program."""
    return Builder(name)


def mkshape(dtype: str, sizes: Dims, dynamic_dims: Sequence[bool] | None = None) -> Shape:
    return Shape.create(dtype, sizes, dynamic_dims)


def mkparam(builder: Builder, number: int, shape: Shape) -> Op:
    """Parameter `number` of the program."""
    dtype = _hlo_types.dtype_of(shape.dtype)
    builder.parameters[number] = torch.zeros(shape.sizes, dtype=dtype, device="xla")
    _latest_builder[:] = [builder]
    return Op(builder.parameters[number])


def create_param(builder: Builder, number: int, dtype: str, sizes: Dims) -> Op:
    """As `mkparam`."""
    return mkparam(builder, number, Shape.create(dtype, sizes))


def _computation(
    name: str, parameters: list[torch.Tensor], value: Any, fn: Callable[..., Any] | None
) -> Computation:
    results = list(value) if isinstance(value, tuple) else [value]
    text, captured = _XLAC._export(results, parameters)
    if captured:
        raise RuntimeError(
            f"computation {name}: it uses {len(captured)} values from outside; pass them as "
            "parameters, or make constants of them"
        )
    types = _hlo_types.text_of([(r.dtype, r.shape) for r in results])
    return Computation(name, text, types, fn)


def create_computation(
    name: str, fn: Callable[..., Op], shapes: Sequence[Shape], **kwargs: Any
) -> Computation:
    """The computation that `fn` describes for parameters of these shapes.

    Args:
        name: for messages.
        fn: takes an `Op` per shape, and `kwargs`; returns an `Op`.
    """
    builder = Builder(name)
    parameters = [mkparam(builder, i, shape) for i, shape in enumerate(shapes)]
    result = fn(*parameters, **kwargs)
    tensors = [parameter.tensor for parameter in parameters]
    return _computation(name, tensors, result._value, functools.partial(fn, **kwargs))


def computation_from_module_proto(name: str, text: str, results: Sequence[Shape]) -> Computation:
    """A StableHLO module as a computation with these results."""
    types = [(_hlo_types.dtype_of(shape.dtype), shape.sizes) for shape in results]
    return Computation(name, text, _hlo_types.text_of(types), None)


def get_computation_hlo(computation: Computation) -> str:
    """Its program, as StableHLO."""
    return computation.text


def create_placeholder_tensor(shape: Dims, dtype: torch.dtype) -> torch.Tensor:
    """An xla tensor of a type, of which only that is used."""
    return torch.empty(tuple(shape), dtype=dtype, device="xla")


class XlaCallable:
    """A function of JAX as a function of xla tensors in any nesting.

    It is lowered once per types of its tensors and values of its other arguments, and recorded as
    part of the program. It has no gradients: see `assume_pure.j2t_autograd`.
    """

    def __init__(self, jax_func: Callable[..., Any], name: str | None = None) -> None:
        self._function = jax_func
        self.name = name or getattr(jax_func, "__name__", "jax_function")
        self._lowered: dict[Any, tuple[str, list[tuple[torch.dtype, Dims]], Any]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        key = (spec, *(
            (leaf.dtype, leaf.shape) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves
        ))  # fmt: skip
        found = self._lowered.get(key)
        if found is None:
            found = self._lowered[key] = self._lower(leaves, spec)
        text, types, result_spec = found
        results = torch.ops.xla._call_module(tensors, text, _hlo_types.text_of(types))
        return pytree.tree_unflatten(results, result_spec)

    def _lower(self, leaves: list[Any], spec: Any) -> tuple[str, Any, Any]:
        import jax

        result_spec: list[Any] = []

        def function(*arrays: Any) -> list[Any]:
            remaining = iter(arrays)
            mixed = [next(remaining) if isinstance(x, torch.Tensor) else x for x in leaves]
            args, kwargs = pytree.tree_unflatten(mixed, spec)
            results, found = pytree.tree_flatten(self._function(*args, **kwargs))
            result_spec.append(found)
            return results

        examples = [
            jax.ShapeDtypeStruct(tuple(x.shape), _jax_dtype(x.dtype))
            for x in leaves
            if isinstance(x, torch.Tensor)
        ]
        # Every tensor is a parameter, used or not.
        lowered = jax.jit(function, keep_unused=True).lower(*examples)
        types = [(_torch_dtype(info.dtype), info.shape) for info in lowered.out_info]
        return lowered.as_text(), types, result_spec[-1]


def _jax_dtype(dtype: torch.dtype) -> Any:
    import jax.numpy as jnp

    return jnp.dtype("bool" if dtype == torch.bool else str(dtype).removeprefix("torch."))


def _torch_dtype(dtype: Any) -> torch.dtype:
    found = getattr(torch, str(dtype))
    assert isinstance(found, torch.dtype)
    return found


_callables: dict[Any, XlaCallable] = {}


def call_jax(
    jax_func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    name: str | None = None,
    override_hash: Any = None,
) -> Any:
    """Record `jax_func(*args, **kwargs)` on xla tensors; needs the package `jax`.

    Args:
        jax_func: a function on JAX's arrays; numbers and texts among its arguments are constants.
        args: tensors in any nesting, of dtypes that JAX has (64 bits only with `jax_enable_x64`).
        kwargs: likewise.
        name: for messages.
        override_hash: what the function is known by, for one that is made anew for each call.
    """
    key = jax_func if override_hash is None else override_hash
    found = _callables.get(key)
    if found is None:
        found = _callables[key] = XlaCallable(jax_func, name)
    return found(*args, **(kwargs or {}))
