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

from torch_xla import _XLAC, _custom_calls, _hlo_types, _other_names
from torch_xla._capture import loops
from torch_xla._hlo_types import Shape, Type
from torch_xla.core import _hlo_indexing
from torch_xla.core._jax_functions import JaxCallable as JaxCallable, call_jax as call_jax
from torch_xla.core._windowed_op import WindowedOp, tensor_of as _tensor

__all__ = [
    "JaxCallable",
    "Op",
    "Shape",
    "Type",
    "XlaCallable",
    "call_jax",
    "create_builder",
    "create_computation",
]

Dims = Sequence[int]


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


class Op(WindowedOp):
    """A value of a program.

    Args:
        op: the xla tensor that it is, or the tuple of them.
    """

    def shape(self) -> Shape:
        """Its type; a tuple's has those of the elements."""
        if isinstance(self._value, tuple):
            return Shape.of_tuple([Op(element).shape() for element in self._value])
        return Shape(_hlo_types.NAMES[self.tensor.dtype], tuple(self.tensor.shape))

    def builder(self) -> Builder:
        return Builder("computation")

    # Of other types and sizes.

    def cast(self, to_type: str) -> Op:
        return Op(self.tensor.to(_hlo_types.dtype_of(to_type)))

    def bitcast_convert(self, to_type: str) -> Op:
        """The same bits as another type."""
        return Op(self.tensor.view(_hlo_types.dtype_of(to_type)))

    bitcast = bitcast_convert

    def reshape(
        self,
        sizes: Dims,
        dimensions: Dims | None = None,
        inferred_dimension: int | None = None,
    ) -> Op:
        """The elements in another shape; with `dimensions`, read in that order of them."""
        del inferred_dimension
        tensor = self.tensor if dimensions is None else self.tensor.permute(*dimensions)
        return Op(tensor.reshape([*sizes]))

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

    def slice_in_dim(self, start_index: int, limit_index: int, dimno: int, stride: int = 1) -> Op:
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

    def get_dimension_size(self, dimension: int) -> Op:
        size = self.tensor.shape[dimension]
        return Op(torch.full((), size, dtype=torch.int32, device=self.tensor.device))

    def set_dimension_size(self, size: Op, dimension: int) -> Op:
        """Not here: every size is a constant of its program."""
        raise NotImplementedError(
            "Op.set_dimension_size: every size is a constant of its program; pad, and mask"
        )

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

    triangualr_solve = triangular_solve  # as it is spelled elsewhere

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

    @staticmethod
    def map(
        ops: Sequence[Op],
        computation: Callable[..., Op],
        dimensions: Dims,
        static_operands: Sequence[Any] = (),
        builder: Builder | None = None,
    ) -> Op:
        """`computation` of the elements of arrays of one shape, along all dimensions."""
        del dimensions, builder
        if static_operands:
            raise NotImplementedError("Op.map: expected no static_operands, as XLA does")
        return computation(*ops)

    def select(self, true_value: Op, false_value: Op) -> Op:
        return Op(torch.where(self.tensor, true_value.tensor, false_value.tensor))

    def clamp(self, min_value: Any, max_value: Any) -> Op:
        low, high = (_tensor(value, self.tensor) for value in (min_value, max_value))
        return Op(torch.minimum(torch.maximum(self.tensor, low), high))

    @staticmethod
    def sort(
        ops: Sequence[Op],
        comparator: Callable[..., Op] | None = None,
        dimension: int | None = None,
        is_stable: bool | None = None,
    ) -> Op:
        """Arrays of one shape, which are ordered together; equals keep their order.

        Args:
            ops: the arrays. The result is a tuple of them, or the one.
            comparator: of two elements of each array, (a0, b0, a1, b1, ...), whether the first come
                before the second; by default the first array's lesser one does.
            dimension: along which; the last by default.
            is_stable: it always is.
        """
        del is_stable
        tensors = [op.tensor for op in ops]
        along = -1 if dimension is None else dimension
        if comparator is None and len(tensors) == 1:
            return Op(tensors[0].sort(dim=along, stable=True).values)

        def is_before(*values: torch.Tensor) -> torch.Tensor:
            if comparator is not None:
                return comparator(*map(Op, values)).tensor
            return values[0] < values[1]

        results = _hlo_indexing.sort(tensors, is_before, along)
        return Op(tuple(results)) if len(results) > 1 else Op(results[0])

    def gather(
        self,
        start_indices: Op,
        offset_dims: Dims,
        collapsed_slice_dims: Dims,
        start_index_map: Dims,
        index_vector_dim: int,
        indices_are_sorted: bool | None = None,
        slice_sizes: Dims | None = None,
    ) -> Op:
        """A window of `slice_sizes` at each index vector, moved inside if it is not; by default of
        size 1 along collapsed dimensions, and of all along the others."""
        del indices_are_sorted
        sizes = slice_sizes or [
            1 if d in set(collapsed_slice_dims) else size
            for d, size in enumerate(self.tensor.shape)
        ]
        return Op(
            _hlo_indexing.gather(
                self.tensor, start_indices.tensor, sizes, offset_dims, collapsed_slice_dims,
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
        indices_are_sorted: bool | None = None,
        unique_indices: bool | None = None,
    ) -> Op:
        """The array in which a window of updates at each index vector is combined with what is
        there by `computation` of both; windows that are not inside are left out."""
        del indices_are_sorted, unique_indices
        return Op(
            _hlo_indexing.scatter(
                self.tensor, scatter_indices.tensor, updates.tensor,
                lambda a, b: computation(Op(a), Op(b)).tensor, update_window_dims,
                inserted_window_dims, scatter_dims_to_operand_dims, index_vector_dim,
            )
        )  # fmt: skip

    def while_loop(
        self, condition_computation: Callable[..., Op], body_computation: Callable[..., Any]
    ) -> Op:
        """Of an array or a tuple, which both functions take and `body_computation` returns."""
        values = self._value if isinstance(self._value, tuple) else (self._value,)
        is_tuple = isinstance(self._value, tuple)

        def given(tensors: Sequence[torch.Tensor]) -> Op:
            return Op(tuple(tensors) if is_tuple else tensors[0])

        def turn(*tensors: torch.Tensor) -> list[torch.Tensor]:
            result = body_computation(given(tensors))._value
            return list(result) if is_tuple else [result]

        def goes_on(*tensors: torch.Tensor) -> torch.Tensor:
            wanted: Op = condition_computation(given(tensors))
            return wanted.tensor

        return given(loops.while_loop(goes_on, turn, tuple(values)))

    @staticmethod
    def mkwhile(
        ops: Sequence[Op],
        condition_fn: Callable[..., Op],
        body_fn: Callable[..., Op],
        **kwargs: Any,
    ) -> Op:
        """`Op.tuple(ops).while_loop` of functions that take the tuple's elements one by one; the
        second returns a tuple."""

        def apart(fn: Callable[..., Op]) -> Callable[[Op], Op]:
            return lambda state: fn(*map(Op, state._value), **kwargs)

        return Op.tuple(ops).while_loop(apart(condition_fn), apart(body_fn))

    def conditional(
        self,
        true_operand: Op,
        false_operand: Op,
        true_computation: Callable[..., Op],
        false_computation: Callable[..., Op],
    ) -> Op:
        """`true_computation(true_operand)` where this, one flag, is true, else the other."""
        operands = [true_operand, false_operand]
        return self._branch(
            operands, lambda a, b: true_computation(a), lambda a, b: false_computation(b)
        )

    def mkconditional(
        self,
        ops: Sequence[Op],
        true_fn: Callable[..., Op],
        false_fn: Callable[..., Op],
        **kwargs: Any,
    ) -> Op:
        """`true_fn(*ops)` where this, one flag, is true, else `false_fn(*ops)`."""
        return self._branch(
            ops, lambda *given: true_fn(*given, **kwargs), lambda *given: false_fn(*given, **kwargs)
        )

    def _branch(
        self, ops: Sequence[Op], true_fn: Callable[..., Op], false_fn: Callable[..., Op]
    ) -> Op:
        def on_tensors(fn: Callable[..., Op]) -> Callable[..., Any]:
            return lambda *tensors: fn(*map(Op, tensors))._value

        tensors = [op.tensor for op in ops]
        result = loops.cond_operator(
            self.tensor, on_tensors(true_fn), on_tensors(false_fn), tensors
        )
        return Op(tuple(result) if isinstance(result, (list, tuple)) else result)

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

    @staticmethod
    def call(
        computation: Callable[..., Op], ops: Sequence[Op], builder: Builder | None = None
    ) -> Op:
        """What a computation gives for these operands."""
        del builder
        return computation(*ops)

    @staticmethod
    def make_computation(
        name: str,
        computation: Callable[..., Op] | Computation,
        args_or_shapes: Sequence[Op | Shape],
        **kwargs: Any,
    ) -> Computation:
        """`create_computation` for parameters of the shapes of these, which may be `Op`s; what is a
        computation already, as it is."""
        if isinstance(computation, Computation):
            return computation
        shapes = [x.shape() if isinstance(x, Op) else x for x in args_or_shapes]
        return create_computation(name, computation, shapes, **kwargs)

    wrap_function = _other_names.Refused(
        "torch_xla.core.xla_builder.Op.wrap_function",
        "functions on Ops are computations as they are",
        "pass the function",
    )

    def get_tuple_element(self, index: int) -> Op:
        return Op(self._value[index])

    # Constants.

    def zeros_like(self) -> Op:
        return Op(torch.zeros_like(self.tensor))

    def ones_like(self) -> Op:
        return Op(torch.ones_like(self.tensor))

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
        return Op.scalar(builder, _hlo_types.limits(dtype).min, dtype)

    @staticmethod
    def maxval(builder: Builder, dtype: str = Type.F32) -> Op:
        return Op.scalar(builder, _hlo_types.limits(dtype).max, dtype)

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
    def concat_in_dim(ops: Sequence[Op], dimension: int, builder: Builder | None = None) -> Op:
        """Arrays one after the other along a dimension."""
        del builder
        return Op(torch.cat([op.tensor for op in ops], dim=dimension))

    @staticmethod
    def to_torch_type(dtype: str) -> torch.dtype:
        """The dtype of one of `Type`'s names."""
        return _hlo_types.dtype_of(dtype)

    @staticmethod
    def from_torch_type(dtype: torch.dtype) -> str:
        """The name that `Type` has for a dtype."""
        return _hlo_types.NAMES[dtype]

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
    clz = _unary(_hlo_indexing.leading_zeros)
    conj = _unary(torch.conj_physical)
    real = _unary(torch.real)
    imag = _unary(torch.imag)
    acos = _unary(torch.acos)
    asin = _unary(torch.asin)
    atan = _unary(torch.atan)
    ceil = _unary(torch.ceil)
    cos = _unary(torch.cos)
    cosh = _unary(torch.cosh)
    erf = _unary(torch.erf)
    erfc = _unary(torch.erfc)
    erfinv = erfinf = _unary(torch.erfinv)  # the second as it is spelled elsewhere
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


# The builder whose parameters were asked for last: `Op.build` is not told.
_latest_builder: list[Builder] = []


def _owner_of_parameters() -> Builder:
    if not _latest_builder:
        raise RuntimeError("xla_builder: make parameters with mkparam first")
    return _latest_builder[-1]


def create_builder(name: str) -> Builder:
    """A new program."""
    return Builder(name)


def mkshape(dtype: str, sizes: Dims, dynamic_dimensions: Sequence[bool] | None = None) -> Shape:
    """As `Shape.create`."""
    return Shape.create(dtype, sizes, dynamic_dimensions)


def mkparam(builder: Builder, param_no: int, shape: Shape) -> Op:
    """Parameter `param_no` of the program."""
    dtype = _hlo_types.dtype_of(shape.dtype)
    builder.parameters[param_no] = torch.zeros(shape.sizes, dtype=dtype, device="xla")
    _latest_builder[:] = [builder]
    return Op(builder.parameters[param_no])


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


def computation_from_module_proto(
    name: str, proto: str, results: Sequence[Shape] | None = None
) -> Computation:
    """A StableHLO module, as text, as a computation with these results.

    Raises:
        NotImplementedError: it is a serialized HLO module, or without `results`.
    """
    if not isinstance(proto, str) or results is None:
        raise NotImplementedError(
            "computation_from_module_proto: HLO's protobuf is not read here; expected StableHLO as "
            "text, and the shapes of its results"
        )
    types = [(_hlo_types.dtype_of(shape.dtype), shape.sizes) for shape in results]
    return Computation(name, proto, _hlo_types.text_of(types), None)


def tensor_shape(tensor: torch.Tensor, device: str = "") -> Shape:
    """The shape of a tensor, of any device."""
    del device
    return Shape(_hlo_types.NAMES[tensor.dtype], tuple(tensor.shape))


def xla_computation_as_func(
    computation: Computation, name: str | None = None
) -> Callable[..., Any]:
    """A computation as a function of xla tensors."""

    def function(*tensors: torch.Tensor) -> Any:
        result = computation(*map(Op, tensors))
        if isinstance(result, list):
            return [op.tensor for op in result]
        return result._value

    function.__name__ = name or computation.name
    return function


class XlaCallable:
    """A function on `Op`s as a function of xla tensors in any nesting; other arguments are
    constants."""

    def __init__(self, xla_func: Callable[..., Any]) -> None:
        self._function = xla_func

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map_only(torch.Tensor, Op, (args, kwargs))
        results = self._function(*args, **kwargs)
        return pytree.tree_map(lambda x: x._value if isinstance(x, Op) else x, results)

    specialize = _other_names.Refused(
        "torch_xla.core.xla_builder.XlaCallable.specialize",
        "a function is recorded by each call",
        "call it",
    )


def get_computation_hlo(computation: Computation) -> str:
    """Its program, as StableHLO."""
    return computation.text


def create_placeholder_tensor(shape: Dims, dtype: torch.dtype) -> torch.Tensor:
    """An xla tensor of a type, of which only that is used."""
    return torch.empty(tuple(shape), dtype=dtype, device="xla")


__getattr__ = _other_names.refusing(__name__)
