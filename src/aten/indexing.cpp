// Preparation of indices.
#include "aten/indexing.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "aten/copy.h"
#include "aten/dynamic_shapes.h"
#include "aten/overlap.h"
#include "aten/record.h"
#include "aten/registration.h"
#include "aten/tensor.h"
#include "runtime/transfer.h"

namespace torch_xla::aten {
namespace {

bool is_mask(const at::Tensor& index) {
  return index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
}

void check_mask(const at::Tensor& self, const at::Tensor& mask, std::int64_t dim) {
  for (std::int64_t k = 0; k < mask.dim(); ++k) {
    TORCH_CHECK_INDEX(dim + k < self.dim() && mask.size(k) == self.size(dim + k),
                      "The shape of the mask ", mask.sizes(), " at index ", k,
                      " does not match the shape of the indexed tensor ", self.sizes(),
                      " at index ", dim + k);
  }
}

// The positions of the masks' true elements, one tensor per dimension of a mask. The masks are read
// at once.
std::vector<at::Tensor> positions_of(std::vector<at::Tensor> masks, c10::Device device) {
  std::vector<at::Tensor> on_device;
  for (const at::Tensor& mask : masks) {
    if (as_xla(mask) != nullptr) on_device.push_back(mask);
  }
  if (!on_device.empty()) report_dynamic_shape("aten::index with a mask");
  const runtime::ReadsForOperator reads;
  const std::vector<at::Tensor> read = to_cpu(on_device);
  std::size_t next = 0;
  std::vector<at::Tensor> out;
  for (at::Tensor& mask : masks) {
    if (as_xla(mask) != nullptr) mask = read[next++];
    for (const at::Tensor& positions : mask.nonzero().unbind(1)) {
      out.push_back(positions.contiguous().to(device));
    }
  }
  return out;
}

// Integer indices on self's device. A mask becomes the indices of its true elements, which reads
// it.
Indices prepare(const at::Tensor& self, const Indices& indices) {
  std::vector<at::Tensor> masks;
  std::int64_t dim = 0;
  for (const std::optional<at::Tensor>& index : indices) {
    const bool is_given = index.has_value() && index->defined();
    TORCH_CHECK_INDEX(!is_given || index->scalar_type() == at::kLong ||
                          index->scalar_type() == at::kInt || is_mask(*index),
                      "tensors used as indices must be long, int, byte or bool tensors");
    if (is_given && is_mask(*index)) {
      check_mask(self, *index, dim);
      masks.push_back(*index);
      dim += index->dim();
    } else {
      ++dim;
    }
  }
  TORCH_CHECK_INDEX(dim <= self.dim(), "too many indices for tensor of dimension ", self.dim(),
                    " (got ", dim, ")");
  const std::vector<at::Tensor> positions = positions_of(std::move(masks), self.device());
  Indices out;
  std::size_t next = 0;
  for (const std::optional<at::Tensor>& index : indices) {
    if (!index.has_value() || !index->defined()) {
      out.push_back(std::nullopt);
    } else if (!is_mask(*index)) {
      out.push_back(index->to(self.device()));
    } else {
      for (std::int64_t k = 0; k < index->dim(); ++k) out.push_back(positions[next++]);
    }
  }
  return out;
}

at::Tensor index(const at::Tensor& self, const Indices& indices) {
  static auto* const record = new Recorder("aten::index", "Tensor");
  return (*record)({self, prepare(self, indices)});
}

at::Tensor on_device_of(const at::Tensor& self, const at::Tensor& values) {
  return values.device().is_cpu() && values.dim() == 0 ? values.to(self.device()) : values;
}

// One mask, and the dimension of the indexed tensor where it starts.
struct Mask {
  at::Tensor index;
  std::int64_t first;

  // Of booleans on that device.
  at::Tensor on(c10::Device device) const {
    const at::Tensor there = index.to(device);
    return index.scalar_type() == at::kByte ? there.ne(0) : there;
  }
};

// The one among indices that are else None.
std::optional<Mask> only_mask(const Indices& indices) {
  std::optional<Mask> found;
  std::int64_t dim = 0;
  for (const std::optional<at::Tensor>& index : indices) {
    if (index.has_value() && index->defined()) {
      if (found.has_value() || !is_mask(*index)) return std::nullopt;
      found = {*index, dim};
    }
    ++dim;
  }
  return found;
}

// `values`, which has one element along `dim` for each true element of `mask`, with one for each of
// the mask's elements: the k-th value stands where the mask is true for the k-th time.
at::Tensor spread(const at::Tensor& values, const at::Tensor& mask, std::int64_t dim) {
  if (dim < 0 || values.size(dim) == 1) return values;
  // There is no k-th value to take, and no true element if the user is right.
  if (values.size(dim) == 0) {
    auto sizes = values.sizes().vec();
    sizes[static_cast<std::size_t>(dim)] = 1;
    return values.new_zeros(sizes) + values.sum(dim, /*keepdim=*/true);
  }
  const at::Tensor order = mask.reshape({-1}).cumsum(0) - 1;
  return values.index_select(dim, order.clamp(0, values.size(dim) - 1));
}

// See put_by_mask.
at::Tensor put(const at::Tensor& self, const Mask& mask, const at::Tensor& values,
               bool accumulate) {
  const auto& [index, first] = mask;
  check_mask(self, index, first);
  TORCH_CHECK(self.scalar_type() == values.scalar_type() || values.dim() == 0,
              "Index put requires the source and destination dtypes match, got ",
              self.scalar_type(), " for the destination and ", values.scalar_type(),
              " for the source.");
  const at::Tensor chosen = mask.on(self.device());
  const std::int64_t rest = self.dim() - first - index.dim();
  // As the indexed tensor would be, but for the mask's dimensions, which stay as one.
  const at::Tensor flat = index.dim() == 1 ? self : self.flatten(first, first + index.dim() - 1);
  const at::Tensor wide = spread(values, chosen, values.dim() - 1 - rest).to(self.scalar_type());
  at::DimVector sizes(static_cast<std::size_t>(rest) + 1, 1);
  sizes[0] = index.numel();
  TORCH_CHECK_INDEX(at::is_expandable_to(wide.sizes(), flat.sizes()),
                    "shape mismatch: value tensor of shape ", values.sizes(),
                    " cannot be broadcast to indexing result");
  const at::Tensor out = at::where(chosen.reshape(sizes), accumulate ? flat + wide : wide, flat);
  return index.dim() == 1 ? out : at::_unsafe_view(out, self.sizes());
}

// PyTorch fills where one number is put by a mask.
bool is_fill(const std::optional<Mask>& mask, const at::Tensor& values, bool accumulate) {
  return mask.has_value() && values.numel() == 1 && !accumulate;
}

at::Tensor& index_put_impl_(at::Tensor& self, const Indices& indices, const at::Tensor& values,
                            bool accumulate, bool unsafe) {
  static auto* const record = new Recorder("aten::_index_put_impl_", "");
  const at::Tensor update = on_device_of(self, values);
  const std::optional<Mask> mask = only_mask(indices);
  const TensorImpl* written = as_xla(self);
  if (written != nullptr) warn_if_repeated(*written, "index_put_", "tensor[indices] = tensor");
  check_put(self, indices, update, accumulate);
  const bool is_repeated = written != nullptr && has_repeats(*written->xla_type());
  if (is_fill(mask, update, accumulate) && (is_repeated || mask->index.dim() == 0)) {
    check_mask(self, mask->index, mask->first);
    at::Tensor chosen = mask->on(self.device());
    while (mask->first + chosen.dim() < self.dim()) chosen = chosen.unsqueeze(-1);
    return self.masked_fill_(chosen, update.reshape({}));
  }
  if (mask.has_value() && mask->index.dim() > 0 && written != nullptr && !is_repeated) {
    const at::Tensor result = put(self, *mask, update, accumulate);
    if (const TensorImpl* read = as_xla(mask->index)) check_no_partial_overlap(*written, *read);
    return self.copy_(result);
  }
  TORCH_CHECK(self.scalar_type() == values.scalar_type(),
              "Index put requires the source and destination dtypes match, got ",
              self.scalar_type(), " for the destination and ", values.scalar_type(),
              " for the source.");
  (*record)({self, prepare(self, indices), update, accumulate, unsafe});
  return self;
}

at::Tensor& index_put_(at::Tensor& self, const Indices& indices, const at::Tensor& values,
                       bool accumulate) {
  return index_put_impl_(self, indices, values, accumulate, false);
}

at::Tensor index_put(const at::Tensor& self, const Indices& indices, const at::Tensor& values,
                     bool accumulate) {
  at::Tensor out = self.clone();
  return index_put_impl_(out, indices, values, accumulate, false);
}

}  // namespace

void check_put(const at::Tensor& self, const Indices& indices, const at::Tensor& values,
               bool accumulate) {
  const TensorImpl* written = as_xla(self);
  if (written == nullptr || is_fill(only_mask(indices), values, accumulate)) return;
  for (const std::optional<at::Tensor>& index : indices) {
    const TensorImpl* read = index.has_value() && index->defined() ? as_xla(*index) : nullptr;
    if (read != nullptr) check_apart(*written, *read);
  }
  if (const TensorImpl* read = as_xla(values)) check_apart(*written, *read);
}

std::optional<at::Tensor> put_by_mask(const at::Tensor& self, const Indices& indices,
                                      const at::Tensor& values, bool accumulate) {
  const std::optional<Mask> mask = only_mask(indices);
  if (!mask.has_value() || mask->index.dim() == 0 || as_xla(self) == nullptr) return std::nullopt;
  return put(self, *mask, values, accumulate);
}

void register_indexing(torch::Library& m) {
  m.impl("index.Tensor", index);
  m.impl("index_put", index_put);
  m.impl("index_put_", index_put_);
  m.impl("_index_put_impl_", index_put_impl_);
}

}  // namespace torch_xla::aten
