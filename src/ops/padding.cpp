// Padding by a constant, by reflection and by replication with their gradients, and the patches of
// im2col and col2im.
#include <algorithm>

#include "base/error.h"
#include "ops/at.h"
#include "ops/expression.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/views.h"

namespace torch_xla::ops {
namespace {

using base::check;

// PyTorch's list of paddings: (before, after) of the last dimension, then of the one before it.
struct EdgePadding {
  Dims low;
  Dims high;

  EdgePadding(const Dims& pad, std::int64_t rank) : low(at(rank), 0), high(at(rank), 0) {
    check(pad.size() % 2 == 0, "Length of pad must be even but instead it equals ", pad.size());
    const auto count = static_cast<std::int64_t>(pad.size()) / 2;
    check(count <= rank,
          "Length of pad should be no more than twice the number of dimensions of the input. Pad "
          "length is ",
          pad.size(), " while the input has ", rank, " dimensions.");
    for (std::int64_t i = 0; i < count; ++i) {
      low[at(rank - 1 - i)] = pad[at(2 * i)];
      high[at(rank - 1 - i)] = pad[at(2 * i + 1)];
    }
  }
};

Value pad_with_zeros(Value self, const Dims& low, const Dims& high) {
  return hlo::pad(self, scalar(self.builder(), self.dtype(), 0), low, high);
}

enum class EdgeMode : std::uint8_t { kReflect, kReplicate };

// A reflection or replication of one dimension, by `low` and `high` elements; a negative number
// takes elements away, after the other edge was extended.
struct DimPadding {
  EdgeMode mode;
  std::int64_t dim;
  std::int64_t low;
  std::int64_t high;

  std::int64_t added_low() const { return std::max<std::int64_t>(low, 0); }
  std::int64_t added_high() const { return std::max<std::int64_t>(high, 0); }
  std::int64_t cut_low() const { return std::max<std::int64_t>(-low, 0); }
  std::int64_t cut_high() const { return std::max<std::int64_t>(-high, 0); }
};

Value edge(Value self, const DimPadding& p, std::int64_t count, bool is_low) {
  const std::int64_t size = self.dim(p.dim);
  if (p.mode == EdgeMode::kReflect) {
    const std::int64_t start = is_low ? 1 : size - 1 - count;
    return hlo::reverse(slice_dim(self, p.dim, start, start + count), {p.dim});
  }
  const std::int64_t start = is_low ? 0 : size - 1;
  return broadcast_to(slice_dim(self, p.dim, start, start + 1),
                      with_dim(self.dims(), p.dim, count));
}

Value extend(Value self, const DimPadding& p) {
  hlo::Values parts;
  if (p.added_low() > 0) parts.push_back(edge(self, p, p.added_low(), true));
  parts.push_back(self);
  if (p.added_high() > 0) parts.push_back(edge(self, p, p.added_high(), false));
  const Value padded = parts.size() == 1 ? self : hlo::concatenate(parts, p.dim);
  return slice_dim(padded, p.dim, p.cut_low(), padded.dim(p.dim) - p.cut_high());
}

// The gradient of what `edge` copied, at its place in a tensor of `size` along the dimension.
Value edge_gradient(Value grad, const DimPadding& p, std::int64_t size, bool is_low) {
  std::int64_t start = is_low ? 0 : size - 1;
  if (p.mode == EdgeMode::kReflect) {
    start = is_low ? 1 : size - 1 - grad.dim(p.dim);
    grad = hlo::reverse(grad, {p.dim});
  } else {
    grad = keep_dims(reduce_sum(grad, {p.dim}), grad.dims(), {p.dim});
  }
  const Dims none(at(grad.rank()), 0);
  const std::int64_t after = size - start - grad.dim(p.dim);
  return pad_with_zeros(grad, with_dim(none, p.dim, start), with_dim(none, p.dim, after));
}

Value extend_gradient(Value grad, const DimPadding& p, std::int64_t size) {
  const Dims none(at(grad.rank()), 0);
  grad =
      pad_with_zeros(grad, with_dim(none, p.dim, p.cut_low()), with_dim(none, p.dim, p.cut_high()));
  const std::int64_t low = p.added_low();
  Value sum = slice_dim(grad, p.dim, low, low + size);
  if (low > 0) {
    sum = hlo::add(sum, edge_gradient(slice_dim(grad, p.dim, 0, low), p, size, true));
  }
  if (p.added_high() > 0) {
    const Value tail = slice_dim(grad, p.dim, low + size, grad.dim(p.dim));
    sum = hlo::add(sum, edge_gradient(tail, p, size, false));
  }
  return sum;
}

std::vector<DimPadding> dim_paddings(EdgeMode mode, const Dims& padding, std::int64_t rank) {
  const EdgePadding edges(padding, rank);
  std::vector<DimPadding> out;
  for (std::int64_t d = 0; d < rank; ++d) {
    if (edges.low[at(d)] != 0 || edges.high[at(d)] != 0) {
      out.push_back({mode, d, edges.low[at(d)], edges.high[at(d)]});
    }
  }
  return out;
}

// The input of an operator over `spatial` last dimensions, as PyTorch checks it.
void check_spatial_input(Value self, const Dims& padding, std::int64_t spatial, EdgeMode mode) {
  check(static_cast<std::int64_t>(padding.size()) == 2 * spatial, "padding size is expected to be ",
        2 * spatial, ", but got: ", padding.size());
  const std::int64_t rank = self.rank();
  bool is_valid = rank == spatial + 1 || rank == spatial + 2;
  for (std::int64_t d = rank == spatial + 2 ? 1 : 0; d < rank; ++d) {
    is_valid = is_valid && self.dim(d) != 0;
  }
  check(is_valid, "Expected ", spatial + 1, "D or ", spatial + 2,
        "D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for "
        "input, but got: ",
        base::to_string(self.dims()));
  for (const DimPadding& p : dim_paddings(mode, padding, rank)) {
    const std::int64_t size = self.dim(p.dim);
    check(mode == EdgeMode::kReplicate || (p.low < size && p.high < size), "Argument #",
          4 + 2 * (rank - 1 - p.dim),
          ": Padding size should be less than the corresponding input dimension, but got: "
          "padding (",
          p.low, ", ", p.high, ") at dimension ", p.dim, " of input ",
          base::to_string(self.dims()));
  }
}

void register_edges(Registry& m, const std::string& name, EdgeMode mode, std::int64_t spatial) {
  m.impl(name, [mode, spatial](Value self, Dims padding) {
    check_spatial_input(self, padding, spatial, mode);
    for (const DimPadding& p : dim_paddings(mode, padding, self.rank())) self = extend(self, p);
    return self;
  });
  m.impl(name + "_backward", [mode, spatial](Value grad, Value self, Dims padding) {
    check_spatial_input(self, padding, spatial, mode);
    const DType dtype = accumulate_dtype(grad.dtype());
    Value sum = convert(grad, dtype);
    for (const DimPadding& p : dim_paddings(mode, padding, self.rank())) {
      const std::int64_t expected = self.dim(p.dim) + p.low + p.high;
      check(grad.dim(p.dim) == expected, "grad_output size unexpected at dimension ", p.dim,
            ". Expected: ", expected, ", Got: ", grad.dim(p.dim));
      sum = extend_gradient(sum, p, self.dim(p.dim));
    }
    return convert(sum, grad.dtype());
  });
}

// The windows that im2col takes and col2im puts back, over the last two dimensions of [N, C, H, W].
struct Patches {
  Dims kernel;
  Dims dilation;
  Dims padding;
  Dims stride;
  Dims blocks;  // how many windows there are, down and across

  Patches(const Dims& image, Dims kernel_size, Dims dilation_arg, Dims padding_arg, Dims stride_arg)
      : kernel(pair(kernel_size)),
        dilation(pair(dilation_arg)),
        padding(pair(padding_arg)),
        stride(pair(stride_arg)) {
    check_positive(kernel, "kernel size", "kernel");
    check_positive(stride, "stride", "stride");
    check_positive(dilation, "dilation", "dilation");
    check(padding[0] >= 0 && padding[1] >= 0,
          "padding should be non-negative, but got pad_height: ", padding[0],
          " pad_width: ", padding[1]);
    for (std::size_t d = 0; d < 2; ++d) {
      const std::int64_t reach = dilation[d] * (kernel[d] - 1) + 1;
      const std::int64_t room = image[d] + 2 * padding[d] - reach;
      // Rounded down, so that no room gives no block.
      blocks.push_back((room < 0 ? -((-room + stride[d] - 1) / stride[d]) : room / stride[d]) + 1);
    }
  }

  std::string text(const Dims& values) const {
    return base::str("(", values[0], ", ", values[1], ")");
  }
  std::int64_t size() const { return kernel[0] * kernel[1]; }

 private:
  static Dims pair(const Dims& values) {
    return values.size() == 1 ? Dims{values[0], values[0]} : values;
  }
  static void check_positive(const Dims& values, const char* what, const char* name) {
    check(values[0] > 0 && values[1] > 0, what, " should be greater than zero, but got ", name,
          "_height: ", values[0], " ", name, "_width: ", values[1]);
  }
};

void check_patch_dtype(Value self, const char* kernel) {
  const bool is_supported = base::is_floating(self.dtype()) || base::is_complex(self.dtype()) ||
                            self.dtype() == DType::kBool;
  check_implemented(is_supported, kernel, self.dtype());
}

// Of more positions in the kernel, rows and columns are gathered, so that the text is bounded.
constexpr std::int64_t kMostSlices = 128;

// Where the windows' elements lie in the padded image, down or across: [kernel, block], int64.
Value window_places(hlo::Builder& builder, const Patches& p, std::size_t d) {
  const Shape table{DType::kInt64, {p.kernel[d], p.blocks[d]}};
  return hlo::iota(builder, table, 0) * static_cast<double>(p.dilation[d]) +
         hlo::iota(builder, table, 1) * static_cast<double>(p.stride[d]);
}

Value gather_patches(Value padded, const Patches& p) {
  const Value columns = take_slices(padded, 3, window_places(padded.builder(), p, 1));
  const Value all = take_slices(columns, 2, window_places(padded.builder(), p, 0));
  return hlo::transpose(all, {0, 1, 2, 4, 3, 5});
}

Value take_patches(Value image, const Patches& p) {
  const Value padded =
      pad_with_zeros(image, {0, 0, p.padding[0], p.padding[1]}, {0, 0, p.padding[0], p.padding[1]});
  const Dims dims{image.dim(0), image.dim(1) * p.size(), p.blocks[0] * p.blocks[1]};
  if (p.size() > kMostSlices) return hlo::reshape(gather_patches(padded, p), dims);
  hlo::Values parts;
  for (std::int64_t i = 0; i < p.kernel[0]; ++i) {
    const std::int64_t row = i * p.dilation[0];
    const Value rows =
        slice_dim(padded, 2, row, row + (p.blocks[0] - 1) * p.stride[0] + 1, p.stride[0]);
    for (std::int64_t j = 0; j < p.kernel[1]; ++j) {
      const std::int64_t column = j * p.dilation[1];
      const std::int64_t limit = column + (p.blocks[1] - 1) * p.stride[1] + 1;
      parts.push_back(insert_dim(slice_dim(rows, 3, column, limit, p.stride[1]), 2));
    }
  }
  const Value patches = parts.size() == 1 ? parts[0] : hlo::concatenate(parts, 2);
  return hlo::reshape(patches, dims);
}

Value im2col(Value self, const Dims& kernel, const Dims& dilation, const Dims& padding,
             const Dims& stride) {
  const std::int64_t rank = self.rank();
  wrap_dim(2, rank);
  const bool is_batched = rank == 4;
  const Patches p({self.dim(rank - 2), self.dim(rank - 1)}, kernel, dilation, padding, stride);
  bool is_valid = rank == 3 || rank == 4;
  for (std::int64_t d = rank - 3; is_valid && d < rank; ++d) is_valid = self.dim(d) != 0;
  check(is_valid,
        "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero "
        "dimensions for input, but got: ",
        base::to_string(self.dims()));
  check(p.blocks[0] >= 1 && p.blocks[1] >= 1, "Given input with spatial size (", self.dim(rank - 2),
        ", ", self.dim(rank - 1), "), kernel_size=", p.text(p.kernel),
        ", dilation=", p.text(p.dilation), ", padding=", p.text(p.padding),
        ", calculated shape of the array of sliding blocks as ", p.text(p.blocks),
        ", but its components must be at least one.");
  check_patch_dtype(self, "im2col_out_cpu");
  const Value out = take_patches(is_batched ? self : insert_dim(self, 0), p);
  return is_batched ? out : remove_dim(out, 0);
}

// The inverse of `gather_patches`, with what meets added: [N, C, kernel, kernel, block, block] to
// the padded image, one dimension after the other.
Value scatter_patches(Value patches, const Dims& padded, const Patches& p) {
  const std::int64_t batch = patches.dim(0);
  const std::int64_t channels = patches.dim(1);
  const auto scattered = [&](Value updates, const Dims& dims, std::int64_t dim, std::size_t d) {
    const Value places =
        hlo::reshape(window_places(updates.builder(), p, d), {p.kernel[d] * p.blocks[d]});
    const Value zeros = full(updates.builder(), {updates.dtype(), dims}, 0);
    return scatter_slices(zeros, dim, places, updates, hlo::add);
  };
  const std::int64_t down = p.kernel[0] * p.blocks[0];
  const std::int64_t across = p.kernel[1] * p.blocks[1];
  const Value updates =
      hlo::reshape(hlo::transpose(patches, {0, 1, 2, 4, 3, 5}), {batch, channels, down, across});
  const Value rows = scattered(updates, {batch, channels, padded[0], across}, 2, 0);
  return scattered(rows, {batch, channels, padded[0], padded[1]}, 3, 1);
}

// The sum of the patches, each at the place that it was taken from.
Value put_patches(Value columns, const Dims& image, const Patches& p) {
  const std::int64_t batch = columns.dim(0);
  const std::int64_t channels = columns.dim(1) / p.size();
  if (p.size() > kMostSlices) {
    const Value all = hlo::reshape(
        columns, {batch, channels, p.kernel[0], p.kernel[1], p.blocks[0], p.blocks[1]});
    const Dims& margin = p.padding;
    const Value padded =
        scatter_patches(all, {image[0] + 2 * margin[0], image[1] + 2 * margin[1]}, p);
    return slice_dim(slice_dim(padded, 2, margin[0], margin[0] + image[0]), 3, margin[1],
                     margin[1] + image[1]);
  }
  const Value patches =
      hlo::reshape(columns, {batch, channels, p.size(), p.blocks[0], p.blocks[1]});
  const Value zero = scalar(columns.builder(), columns.dtype(), 0);
  Value sum;
  for (std::int64_t k = 0; k < p.size(); ++k) {
    const Dims place{k / p.kernel[1], k % p.kernel[1]};
    Dims low{0, 0};
    Dims high{0, 0};
    for (std::size_t d = 0; d < 2; ++d) {
      low.push_back(place[d] * p.dilation[d] - p.padding[d]);
      high.push_back(image[d] - low.back() - ((p.blocks[d] - 1) * p.stride[d] + 1));
    }
    const Value part = hlo::pad(remove_dim(slice_dim(patches, 2, k, k + 1), 2), zero, low, high,
                                {0, 0, p.stride[0] - 1, p.stride[1] - 1});
    sum = sum ? hlo::add(sum, part) : part;
  }
  return sum;
}

Value col2im(Value self, const Dims& output_size, const Dims& kernel, const Dims& dilation,
             const Dims& padding, const Dims& stride) {
  const Patches p(output_size, kernel, dilation, padding, stride);
  const std::int64_t rank = self.rank();
  const bool is_batched = rank == 3;
  check((rank == 2 || rank == 3) && self.dim(rank - 2) != 0 && self.dim(rank - 1) != 0,
        "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero "
        "dimensions for input, but got: ",
        base::to_string(self.dims()));
  check(self.dim(rank - 2) % p.size() == 0,
        "Expected size of input's dimension 1 to be divisible by the product of kernel_size, but "
        "got input.size(1)=",
        self.dim(rank - 2), " and kernel_size=", p.text(p.kernel), ".");
  const std::int64_t count = p.blocks[0] * p.blocks[1];
  check(p.blocks[0] >= 1 && p.blocks[1] >= 1 && self.dim(rank - 1) == count,
        "Given output_size=", p.text(output_size), ", kernel_size=", p.text(p.kernel),
        ", dilation=", p.text(p.dilation), ", padding=", p.text(p.padding),
        ", stride=", p.text(p.stride),
        ", expected size of input's dimension 2 to match the calculated number of sliding blocks ",
        p.blocks[0], " * ", p.blocks[1], " = ", count,
        ", but got input.size(2)=", self.dim(rank - 1), ".");
  check_patch_dtype(self, "col2im_out_cpu");
  const Value columns = is_batched ? self : insert_dim(self, 0);
  const Value out = put_patches(convert(columns, accumulate_dtype(self.dtype())), output_size, p);
  return convert(is_batched ? out : remove_dim(out, 0), self.dtype());
}

}  // namespace

void register_padding(Registry& m) {
  m.impl("constant_pad_nd", [](Value self, Dims pad, Value value) {
    const EdgePadding edges(pad, self.rank());
    // Negative padding cuts the operand, before anything is added at its other end.
    for (std::int64_t dim = 0; dim < self.rank(); ++dim) {
      const std::int64_t low = std::min<std::int64_t>(edges.low[at(dim)], 0);
      const std::int64_t high = std::min<std::int64_t>(edges.high[at(dim)], 0);
      check(self.dim(dim) + low + high >= 0, "narrow(): length must be non-negative.");
    }
    return hlo::pad(self, convert(value, self.dtype()), edges.low, edges.high);
  });
  for (std::int64_t spatial = 1; spatial <= 3; ++spatial) {
    register_edges(m, base::str("reflection_pad", spatial, "d"), EdgeMode::kReflect, spatial);
    register_edges(m, base::str("replication_pad", spatial, "d"), EdgeMode::kReplicate, spatial);
  }
  m.impl("im2col", [](Value self, Dims kernel_size, Dims dilation, Dims padding, Dims stride) {
    return im2col(self, kernel_size, dilation, padding, stride);
  });
  m.impl("col2im", [](Value self, Dims output_size, Dims kernel_size, Dims dilation, Dims padding,
                      Dims stride) {
    return col2im(self, output_size, kernel_size, dilation, padding, stride);
  });
}

}  // namespace torch_xla::ops
