"""What an `Op` of `xla_builder` does with windows: padding, convolutions, pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch

from torch_xla import _hlo_types
from torch_xla.core import _hlo_windows

Dims = Sequence[int]
Pair = tuple[int, int]


def tensor_of(value: Any, like: torch.Tensor) -> torch.Tensor:
    """An operand as a tensor: an `Op`, a tensor, or a number of `like`'s type."""
    if isinstance(value, WindowedOp):
        return value.tensor
    if isinstance(value, torch.Tensor):
        return value
    return torch.full((), value, dtype=like.dtype, device=like.device)


class WindowedOp:
    """The base of `Op`."""

    def __init__(self, op: Any) -> None:
        self._value = op

    @property
    def tensor(self) -> torch.Tensor:
        """The array that it is.

        Raises:
            TypeError: it is a tuple.
        """
        if not isinstance(self._value, torch.Tensor):
            raise TypeError("xla_builder: expected an array, got a tuple; use get_tuple_element")
        return self._value

    @property
    def rank(self) -> int:
        """How many dimensions it has."""
        return self.tensor.dim()

    def reduce(self, init_value: Any, computation: Callable[..., Self], dimensions: Dims) -> Self:
        """Combine the elements along `dimensions`; `computation` of two values must be
        associative, and `init_value` change nothing."""
        raise NotImplementedError

    def scatter(self, *arguments: Any) -> Self:
        """XLA's scatter."""
        raise NotImplementedError

    def pad(self, value: Any, config: Sequence[tuple[int, int, int]]) -> Self:
        """`config` has (before, after, between) for each dimension; the first two may be
        negative."""
        return type(self)(_hlo_windows.pad(self.tensor, tensor_of(value, self.tensor), config))

    def conv(
        self,
        kernel: Self,
        window_strides: Dims,
        feature_group_count: int = 1,
        batch_group_count: int = 1,
        padding: Sequence[Pair] | str = "valid",
        precision_config: Any = None,
    ) -> Self:
        """Of (batch, features, spatial...) with (output features, input features, spatial...)."""
        return self.conv_general_dilated(
            kernel, window_strides, padding, None, None, *_hlo_windows.usual_places(self.rank),
            feature_group_count, batch_group_count, precision_config,
        )  # fmt: skip

    def conv_with_general_padding(
        self,
        kernel: Self,
        window_strides: Dims,
        padding: Sequence[Pair],
        feature_group_count: int = 1,
        batch_group_count: int = 1,
        precision_config: Any = None,
    ) -> Self:
        """As `conv`, with a pair of padding for each spatial dimension."""
        return self.conv(
            kernel, window_strides, feature_group_count, batch_group_count, padding,
            precision_config,
        )  # fmt: skip

    def conv_with_general_dimensions(
        self,
        kernel: Self,
        window_strides: Dims,
        input_batch_dimension: int,
        input_feature_dimension: int,
        kernel_input_feature_dimension: int,
        kernel_output_feature_dimension: int,
        output_batch_dimension: int,
        output_feature_dimension: int,
        input_spatial_dimensions: Dims,
        kernel_spatial_dimensions: Dims,
        output_spatial_dimensions: Dims,
        padding: Sequence[Pair] | str = "valid",
        feature_group_count: int = 1,
        batch_group_count: int = 1,
        precision_config: Any = None,
    ) -> Self:
        """As `conv`, with dimensions in the places that the numbers say."""
        return self.conv_general_dilated(
            kernel, window_strides, padding, None, None, input_batch_dimension,
            input_feature_dimension, kernel_input_feature_dimension,
            kernel_output_feature_dimension, output_batch_dimension, output_feature_dimension,
            input_spatial_dimensions, kernel_spatial_dimensions, output_spatial_dimensions,
            feature_group_count, batch_group_count, precision_config,
        )  # fmt: skip

    def conv_general(
        self,
        kernel: Self,
        window_strides: Dims,
        padding: Sequence[Pair],
        input_batch_dimension: int,
        input_feature_dimension: int,
        kernel_input_feature_dimension: int,
        kernel_output_feature_dimension: int,
        output_batch_dimension: int,
        output_feature_dimension: int,
        input_spatial_dimensions: Dims,
        kernel_spatial_dimensions: Dims,
        output_spatial_dimensions: Dims,
        feature_group_count: int = 1,
        batch_group_count: int = 1,
        precision_config: Any = None,
    ) -> Self:
        """As `conv_with_general_dimensions`, with a pair of padding for each spatial dimension."""
        return self.conv_general_dilated(
            kernel, window_strides, padding, None, None, input_batch_dimension,
            input_feature_dimension, kernel_input_feature_dimension,
            kernel_output_feature_dimension, output_batch_dimension, output_feature_dimension,
            input_spatial_dimensions, kernel_spatial_dimensions, output_spatial_dimensions,
            feature_group_count, batch_group_count, precision_config,
        )  # fmt: skip

    def conv_general_dilated(
        self,
        kernel: Self,
        window_strides: Dims,
        padding: Sequence[Pair] | str,
        lhs_dilation: Dims | None,
        rhs_dilation: Dims | None,
        input_batch_dimension: int,
        input_feature_dimension: int,
        kernel_input_feature_dimension: int,
        kernel_output_feature_dimension: int,
        output_batch_dimension: int,
        output_feature_dimension: int,
        input_spatial_dimensions: Dims,
        kernel_spatial_dimensions: Dims,
        output_spatial_dimensions: Dims,
        feature_group_count: int = 1,
        batch_group_count: int = 1,
        precision_config: Any = None,
    ) -> Self:
        """XLA's convolution in general: with gaps between the elements of the input
        (`lhs_dilation`) and of the kernel (`rhs_dilation`), and with dimensions in any place."""
        if batch_group_count != 1 or precision_config is not None:
            raise NotImplementedError(
                "conv: expected batch_group_count=1 and no precision_config; "
                "torch_xla.backends.set_mat_mul_precision chooses the precision"
            )
        return type(self)(
            _hlo_windows.convolution(
                self.tensor.permute(
                    input_batch_dimension, input_feature_dimension, *input_spatial_dimensions
                ),
                kernel.tensor.permute(
                    kernel_output_feature_dimension, kernel_input_feature_dimension,
                    *kernel_spatial_dimensions,
                ),
                window_strides, padding, lhs_dilation, rhs_dilation, feature_group_count,
            ).permute(
                _hlo_windows.inverse(
                    [output_batch_dimension, output_feature_dimension, *output_spatial_dimensions]
                )
            )
        )  # fmt: skip

    def reduce_window(
        self,
        init_value: Any,
        computation: Callable[..., Self],
        window_dimensions: Dims,
        window_strides: Dims,
        padding: Sequence[Pair] | str = "valid",
    ) -> Self:
        """`reduce` of the windows of a size, at strides."""
        count = len(window_dimensions)
        windows = _hlo_windows.windows(
            self.tensor,
            tensor_of(init_value, self.tensor),
            window_dimensions,
            window_strides,
            padding,
        )
        return type(self)(windows).reduce(init_value, computation, range(count, 2 * count))

    def max_pool(
        self,
        kernel_size: Dims,
        stride: Dims,
        batch_dimension: int,
        feature_dimension: int,
        spatial_dimensions: Dims,
        padding: Sequence[Pair] | str = "valid",
    ) -> Self:
        """The largest element of each window over the spatial dimensions; sizes and strides are of
        those, or of all dimensions."""
        del batch_dimension, feature_dimension
        sizes, strides = [1] * self.rank, [1] * self.rank
        for i, dimension in enumerate(spatial_dimensions):
            place = dimension if len(kernel_size) == self.rank else i
            sizes[dimension], strides[dimension] = kernel_size[place], stride[place]
        if not isinstance(padding, str) and len(padding) != self.rank:
            pairs = dict(zip(spatial_dimensions, padding, strict=True))
            padding = [pairs.get(dimension, (0, 0)) for dimension in range(self.rank)]
        lowest = _hlo_types.limits(_hlo_types.NAMES[self.tensor.dtype]).min
        return self.reduce_window(lowest, lambda a, b: a.max(b), sizes, strides, padding)

    def select_and_scatter(
        self,
        source: Self,
        init_value: Any,
        window_dimensions: Dims,
        window_strides: Dims,
        select_computation: Callable[..., Self],
        scatter_computation: Callable[..., Self],
        padding: Sequence[Pair] | str = "valid",
    ) -> Self:
        """Of each window the first element that `select_computation` prefers to the others gets the
        window's element of `source`, by `scatter_computation` with what is there: `init_value` at
        first."""
        flat, start = self.tensor, tensor_of(init_value, self.tensor)
        places = torch.arange(flat.numel(), device=flat.device).reshape(flat.shape)
        nowhere = torch.full((), flat.numel(), device=flat.device, dtype=torch.int64)
        count = len(window_dimensions)
        values, at = (
            _hlo_windows.windows(t, fill, window_dimensions, window_strides, padding).flatten(count)
            for t, fill in ((flat, start), (places, nowhere))
        )
        chosen, place = values[..., 0], at[..., 0]
        for i in range(1, values.shape[-1]):
            keeps = (place < nowhere) & (
                select_computation(type(self)(chosen), type(self)(values[..., i])).tensor
                | (at[..., i] >= nowhere)
            )
            chosen = torch.where(keeps, chosen, values[..., i])
            place = torch.where(keeps, place, at[..., i])
        result = type(self)(start.expand(flat.numel() + 1).contiguous()).scatter(
            type(self)(place.reshape(-1)), type(self)(source.tensor.reshape(-1)),
            scatter_computation, (), (0,), (0,), 1,
        )  # fmt: skip
        return type(self)(result.tensor[:-1].reshape(flat.shape))

    def select_and_scatter_with_general_padding(
        self,
        source: Self,
        init_value: Any,
        window_dimensions: Dims,
        window_strides: Dims,
        select_computation: Callable[..., Self],
        scatter_computation: Callable[..., Self],
        padding: Sequence[Pair],
    ) -> Self:
        """As `select_and_scatter`, with a pair of padding for each dimension."""
        return self.select_and_scatter(
            source, init_value, window_dimensions, window_strides, select_computation,
            scatter_computation, padding,
        )  # fmt: skip
