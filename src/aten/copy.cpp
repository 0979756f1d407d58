// Copies to, from and between devices.
#include "aten/copy.h"

#include <ATen/ops/_copy_from.h>
#include <ATen/ops/all.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/full.h>

#include <algorithm>

#include "aten/blocking.h"
#include "aten/device.h"
#include "aten/errors.h"
#include "aten/overlap.h"
#include "aten/record.h"
#include "aten/registration.h"
#include "aten/sharding.h"
#include "aten/tensor.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/settings.h"
#include "base/stored_dtype.h"
#include "base/user_code.h"
#include "runtime/array.h"
#include "runtime/automatic_sharding.h"
#include "runtime/transfer.h"

namespace torch_xla::aten {
namespace {

base::Shape shape_of(const at::Tensor& tensor) {
  return {to_dtype(tensor.scalar_type()), tensor.sizes().vec()};
}

// It lies as `sharding` says, else as `automatic_sharding`, if the device stands for several.
std::shared_ptr<runtime::Array> upload(const at::Tensor& cpu, runtime::Device& device,
                                       const base::Sharding* sharding = nullptr) {
  const base::DType stored = base::stored_dtype(to_dtype(cpu.scalar_type()));
  const at::Tensor dense = dense_values(cpu, stored);
  return translating([&] {
    const base::Shape shape = shape_of(dense);
    const base::Sharding* const said =
        sharding != nullptr ? sharding : runtime::automatic_sharding(shape);
    return runtime::upload(device, dense.const_data_ptr(), shape, device.boundary(said, shape));
  });
}

// What XLA_TRANSFER_GUARD asks for when the host reads tensors.
void guard_read(at::TensorList tensors) {
  const std::string guard = base::settings().transfer_guard();
  if (guard == "allow" || tensors.empty()) return;
  const std::string line = base::user_line();
  const std::string what =
      base::str("the host reads ", tensors.size() == 1 ? "a tensor " : "tensors, the first ",
                base::to_string(shape_of(tensors[0])), line.empty() ? "" : " at ", line);
  if (guard == "log") {
    base::log(what);
    return;
  }
  TORCH_CHECK_VALUE(guard == "forbid", "XLA_TRANSFER_GUARD must be allow, log or forbid, got '",
                    guard, "'");
  TORCH_CHECK(false, what, ", which the transfer guard forbids (XLA_TRANSFER_GUARD=forbid)");
}

// The memory goes on lying as it does.
void copy_from_cpu(const at::Tensor& self, TensorImpl& dst, const at::Tensor& src) {
  const graph::TensorType& type = *dst.xla_type();
  check_no_overlap(type);
  const at::Tensor converted = src.to(to_scalar_type(type.shape.dtype)).expand(type.shape.dims);
  const bool may_be_split = dst.xla_device().num_devices() > 1;
  write_data(dst, upload(converted, dst.xla_device(), may_be_split ? sharding_of(self) : nullptr));
}

std::shared_ptr<runtime::Array> copied_array(const at::Tensor& src, runtime::Device& to) {
  std::shared_ptr<runtime::Array> array;
  blocking([&] {
    array = materialize(src);
    array = translating([&] { return runtime::copy_to_device(*array, to); });
  });
  return array;
}

void copy_between_devices(TensorImpl& dst, const at::Tensor& src) {
  const at::Tensor converted =
      src.to(to_scalar_type(dst.xla_type()->shape.dtype)).expand(dst.xla_type()->shape.dims);
  write_data(dst, copied_array(converted, dst.xla_device()));
}

// "copy" is the registry's name for the conversion and broadcast of a source to self's type.
at::Tensor& record_copy(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  static auto* const record = new Recorder("aten::copy_", "");
  (*record)({self, src, non_blocking});
  return self;
}

// Two views of the same elements, read alike: nothing to copy, even where they overlap.
bool shows_the_same(const TensorImpl& a, const TensorImpl& b) {
  return a.alias() == b.alias() && a.storage_offset() == b.storage_offset() &&
         a.xla_type() == b.xla_type() && a.sign_bits() == b.sign_bits();
}

// What `x[i] = y` copies for a 0-dim y, on devices but the CPU, where it fills: y may be of x.
bool is_expanded_number(const TensorImpl& src) {
  const auto is_zero = [](std::int64_t stride) { return stride == 0; };
  return src.numel() == 1 && src.dim() > 0 &&
         std::all_of(src.strides().begin(), src.strides().end(), is_zero);
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  if (self.is_same(src)) return self;
  TensorImpl* to = as_xla(self);
  TensorImpl* from = as_xla(src);
  if (to != nullptr && from != nullptr && shows_the_same(*to, *from)) return self;
  if (to != nullptr && from != nullptr && &to->xla_device() == &from->xla_device()) {
    const bool is_own_number = to->alias() == from->alias() && is_expanded_number(*from);
    return record_copy(self, is_own_number ? src.clone() : src, non_blocking);
  }
  if (to != nullptr && from != nullptr) {
    copy_between_devices(*to, src);
  } else if (to != nullptr) {
    if (src.dim() == 0 && self.dim() > 0) return record_copy(self, src, non_blocking);
    copy_from_cpu(self, *to, src);
  } else {
    self.copy_(to_cpu({src}).front());
  }
  return self;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  at::Tensor target = dst;
  return copy_(target, self, non_blocking);
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  if (self.sizes() != dst.sizes()) dst.resize_(self.sizes());
  return copy_from(self, dst, false);
}

at::Tensor record_to_copy(const at::Tensor& self, std::optional<at::ScalarType> dtype,
                          std::optional<at::MemoryFormat> memory_format) {
  static auto* const record = new Recorder("aten::_to_copy", "");
  return (*record)(
      {self, dtype, c10::IValue(), c10::IValue(), c10::IValue(), false, memory_format});
}

// The strides that a copy of `self` on another device has.
base::Dims copied_strides(const at::Tensor& self, std::optional<at::MemoryFormat> memory_format) {
  const at::Tensor like =
      at::empty_like(self, self.options().device(c10::DeviceType::Meta), memory_format);
  return like.strides().vec();
}

at::Tensor to_copy(const at::Tensor& self, std::optional<at::ScalarType> dtype,
                   std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>,
                   bool, std::optional<at::MemoryFormat> memory_format) {
  const at::Device target = device.value_or(self.device());
  if (TensorImpl* impl = as_xla(self)) {
    if (target.is_xla() && &device_of(target) == &impl->xla_device()) {
      return record_to_copy(self, dtype, memory_format);
    }
    if (!target.is_xla()) {
      // Converted where it is: what crosses the border is what was asked for.
      // A copy in between would make every read of a value run a program.
      const bool is_converted = dtype.has_value() && *dtype != self.scalar_type();
      const at::Tensor converted = is_converted ? record_to_copy(self, dtype, std::nullopt) : self;
      const at::Tensor cpu = to_cpu({converted}).front();
      return memory_format.has_value() || !target.is_cpu()
                 ? cpu.to(cpu.options().device(target), false, false, memory_format)
                 : cpu;
    }
  }
  runtime::Device& to = device_of(target);
  const at::Tensor converted = dtype.has_value() ? self.to(*dtype) : self;
  const graph::TensorType* type =
      graph::intern({shape_of(converted), copied_strides(converted, memory_format)});
  std::shared_ptr<runtime::Array> array;
  if (as_xla(converted) == nullptr) {
    array = upload(converted.device().is_cpu() ? converted : converted.cpu(), to);
  } else {
    array = copied_array(converted, to);
  }
  return make_tensor_from_data(to, std::move(array), type);
}

// A value read by the host: counted under the name that reports look for.
at::Scalar local_scalar_dense(const at::Tensor& self) {
  static base::Counter& count = base::counter("aten::_local_scalar_dense");
  count.add();
  return to_cpu({self}).front().item();
}

std::vector<at::Tensor> to_cpu_list(at::TensorList tensors) {
  std::vector<at::Tensor> xla;
  for (const at::Tensor& tensor : tensors) {
    if (as_xla(tensor) != nullptr) xla.push_back(tensor);
  }
  const runtime::ReadsForOperator reads;  // the fallback asks for them
  std::vector<at::Tensor> moved = to_cpu(xla);
  std::vector<at::Tensor> out;
  std::size_t next = 0;
  for (const at::Tensor& tensor : tensors) {
    out.push_back(as_xla(tensor) != nullptr ? moved[next++] : tensor);
  }
  return out;
}

bool equal(const at::Tensor& self, const at::Tensor& other) {
  if (self.sizes() != other.sizes()) return false;
  return at::eq(self, other).all().item().toBool();
}

// A tensor of `size` elements whose first ones are the `known` ones that follow self's first one.
at::Tensor grown(const at::Tensor& self, at::IntArrayRef size, std::int64_t known) {
  at::Tensor out = at::empty(size, self.options());
  if (known <= 0) return out;
  const at::Tensor old = self.as_strided({known}, {1}, self.storage_offset());
  out.view(-1).slice(0, 0, known).copy_(old);
  return out;
}

// Within the memory it has, a tensor keeps what it shares; beyond it, it gets memory of its own.
const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size,
                          std::optional<at::MemoryFormat>) {
  TensorImpl& impl = expect_xla(self, "resize_", "self");
  if (self.sizes() == size) return self;
  const at::NoGradGuard no_grad;
  const base::Dims sizes = size.vec();
  const auto width = static_cast<std::int64_t>(self.element_size());
  const std::int64_t known =
      impl.alias()->type()->shape.num_bytes() / width - self.storage_offset();
  const at::Tensor resized =
      base::num_elements(sizes) <= known
          ? self.as_strided(sizes, graph::contiguous_strides(sizes), self.storage_offset())
          : grown(self, size, known);
  const TensorImpl& fresh = *as_xla(resized);
  impl.reset(fresh.alias(), fresh.view(), fresh.xla_type());
  impl.set_offset(resized.storage_offset());
  return self;
}

at::Tensor& set_source_tensor(at::Tensor& self, const at::Tensor& source) {
  TensorImpl& from = expect_xla(source, "set_", "source");
  TensorImpl& to = expect_xla(self, "set_", "self");
  to.reset(from.alias(), from.view(), from.xla_type());
  to.set_offset(from.storage_offset());
  return self;
}

bool is_set_to(const at::Tensor& self, const at::Tensor& tensor) {
  TensorImpl& a = expect_xla(self, "is_set_to", "self");
  TensorImpl& b = expect_xla(tensor, "is_set_to", "tensor");
  return a.alias() == b.alias() && a.xla_type() == b.xla_type() &&
         self.storage_offset() == tensor.storage_offset();
}

}  // namespace

at::Tensor dense_values(const at::Tensor& cpu, base::DType dtype) {
  return cpu.resolve_conj().resolve_neg().to(to_scalar_type(dtype)).contiguous();
}

void write_data(TensorImpl& dst, std::shared_ptr<runtime::Array> array) {
  std::vector<graph::NodeRef> garbage;
  const std::lock_guard lock(dst.xla_device().live().mutex);
  if (!dst.view()) dst.alias()->settle(array);
  dst.write({graph::Node::make_leaf(std::move(array)), 0}, garbage);
}

std::vector<at::Tensor> to_cpu(at::TensorList tensors) {
  guard_read(tensors);
  std::vector<at::Tensor> dense;
  blocking([&] {
    const std::vector<std::shared_ptr<runtime::Array>> arrays = materialize(tensors);
    std::vector<runtime::Download> downloads;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const at::ScalarType stored = to_scalar_type(arrays[i]->shape().dtype);
      dense.push_back(
          at::empty(tensors[i].sizes(), at::TensorOptions().dtype(stored).device(at::kCPU)));
      if (dense.back().numel() > 0) {
        downloads.push_back({arrays[i].get(), dense.back().mutable_data_ptr()});
      }
    }
    translating([&] { runtime::download(downloads); });
  });
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    dense[i] = dense[i].to(tensor.scalar_type());
    if (!tensor.is_non_overlapping_and_dense() || tensor.strides() == dense[i].strides()) continue;
    at::Tensor strided = at::empty_strided(tensor.sizes(), tensor.strides(), dense[i].options());
    dense[i] = strided.copy_(dense[i]);
  }
  return dense;
}

// What `x.data = y` asks. PyTorch's own wants equal keys of this backend, which tensors of the two
// inference modes have not.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  return as_xla(self) != nullptr && as_xla(from) != nullptr;
}

at::Tensor to_device(const at::Tensor& cpu, c10::Device device) {
  runtime::Device& target = device_of(device);
  return make_tensor_from_data(target, upload(cpu, target),
                               graph::intern_contiguous(shape_of(cpu)));
}

at::Tensor to_device(const at::Tensor& cpu, c10::Device device, const base::Sharding& sharding) {
  runtime::Device& target = device_of(device);
  const at::Tensor tensor = make_tensor_from_data(target, upload(cpu, target, &sharding),
                                                  graph::intern_contiguous(shape_of(cpu)));
  mark_sharding(tensor, &sharding);
  return tensor;
}

void register_copies(torch::Library& m) {
  m.impl("copy_", copy_);
  m.impl("_to_copy", to_copy);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar_dense);
  m.impl("_to_cpu", to_cpu_list);
  m.impl("equal", equal);
  m.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
  m.impl("resize_", resize_);
  m.impl("set_.source_Tensor", set_source_tensor);
  m.impl("is_set_to", is_set_to);
}

}  // namespace torch_xla::aten
