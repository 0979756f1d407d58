// Preparation of indices.
#include "aten/indexing.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include "aten/copy.h"
#include "aten/record.h"
#include "aten/tensor.h"

namespace torch_xla::aten {
namespace {

using Indices = c10::List<std::optional<at::Tensor>>;

// Integer indices on self's device. A mask becomes the indices of its true elements, which reads
// it.
Indices prepare(const at::Tensor& self, const Indices& indices) {
  Indices out;
  std::int64_t dim = 0;
  for (const std::optional<at::Tensor>& optional : indices) {
    if (!optional.has_value() || !optional->defined()) {
      out.push_back(std::nullopt);
      ++dim;
      continue;
    }
    const at::Tensor& index = *optional;
    TORCH_CHECK_INDEX(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt ||
                          index.scalar_type() == at::kBool || index.scalar_type() == at::kByte,
                      "tensors used as indices must be long, int, byte or bool tensors");
    if (index.scalar_type() != at::kBool && index.scalar_type() != at::kByte) {
      out.push_back(index.to(self.device()));
      ++dim;
      continue;
    }
    for (std::int64_t k = 0; k < index.dim(); ++k) {
      TORCH_CHECK_INDEX(dim + k < self.dim() && index.size(k) == self.size(dim + k),
                        "The shape of the mask ", index.sizes(), " at index ", k,
                        " does not match the shape of the indexed tensor ", self.sizes(),
                        " at index ", dim + k);
    }
    const at::Tensor mask = as_xla(index) != nullptr ? to_cpu({index}).front() : index;
    for (const at::Tensor& positions : mask.nonzero().unbind(1)) {
      out.push_back(positions.contiguous().to(self.device()));
    }
    dim += index.dim();
  }
  TORCH_CHECK_INDEX(static_cast<std::int64_t>(out.size()) <= self.dim(),
                    "too many indices for tensor of dimension ", self.dim(), " (got ", out.size(),
                    ")");
  return out;
}

at::Tensor index(const at::Tensor& self, const Indices& indices) {
  static auto* const record = new Recorder("aten::index", "Tensor");
  return (*record)({self, prepare(self, indices)});
}

// True for `self[mask] = one value`, which needs no indices: a select does it.
bool is_masked_fill(const at::Tensor& self, const Indices& indices, const at::Tensor& values,
                    bool accumulate) {
  if (accumulate || indices.size() != 1 || values.numel() != 1) return false;
  const std::optional<at::Tensor> mask = indices.get(0);
  return mask.has_value() && mask->defined() && mask->scalar_type() == at::kBool &&
         mask->sizes() ==
             self.sizes().slice(0, std::min<std::size_t>(static_cast<std::size_t>(mask->dim()),
                                                         static_cast<std::size_t>(self.dim())));
}

at::Tensor on_device_of(const at::Tensor& self, const at::Tensor& values) {
  return values.device().is_cpu() && values.dim() == 0 ? values.to(self.device()) : values;
}

at::Tensor& index_put_impl_(at::Tensor& self, const Indices& indices, const at::Tensor& values,
                            bool accumulate, bool unsafe) {
  static auto* const record = new Recorder("aten::_index_put_impl_", "");
  const at::Tensor update = on_device_of(self, values);
  if (is_masked_fill(self, indices, update, accumulate)) {
    at::Tensor mask = indices.get(0)->to(self.device());
    while (mask.dim() < self.dim()) mask = mask.unsqueeze(-1);
    self.masked_fill_(mask, update.reshape({}).to(self.scalar_type()));
    return self;
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

void register_indexing(torch::Library& m) {
  m.impl("index.Tensor", index);
  m.impl("index_put", index_put);
  m.impl("index_put_", index_put_);
  m.impl("_index_put_impl_", index_put_impl_);
}

}  // namespace torch_xla::aten
