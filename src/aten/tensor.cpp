// Construction, copies and materialisation of xla tensors.
#include "aten/tensor.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <typeinfo>

#include "aten/device.h"
#include "aten/errors.h"
#include "aten/storage.h"
#include "base/metrics.h"
#include "runtime/array.h"
#include "runtime/executor.h"

namespace torch_xla::aten {
namespace {

using base::DType;

constexpr c10::DispatchKeySet kXlaKeys(c10::DispatchKey::XLA);

}  // namespace

DType to_dtype(at::ScalarType type) {
  switch (type) {
    case at::kBool: return DType::kBool;
    case at::kByte: return DType::kUInt8;
    case at::kUInt16: return DType::kUInt16;
    case at::kUInt32: return DType::kUInt32;
    case at::kUInt64: return DType::kUInt64;
    case at::kChar: return DType::kInt8;
    case at::kShort: return DType::kInt16;
    case at::kInt: return DType::kInt32;
    case at::kLong: return DType::kInt64;
    case at::kFloat8_e4m3fn: return DType::kFloat8E4M3FN;
    case at::kFloat8_e5m2: return DType::kFloat8E5M2;
    case at::kHalf: return DType::kFloat16;
    case at::kBFloat16: return DType::kBFloat16;
    case at::kFloat: return DType::kFloat32;
    case at::kDouble: return DType::kFloat64;
    case at::kComplexFloat: return DType::kComplex64;
    case at::kComplexDouble: return DType::kComplex128;
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "tensors of dtype ", type,
                                  " are not supported on the xla device; convert them first");
  }
}

at::ScalarType to_scalar_type(DType dtype) {
  static constexpr at::ScalarType kTypes[] = {
      at::kBool,     at::kByte,  at::kUInt16, at::kUInt32,        at::kUInt64,       at::kChar,
      at::kShort,    at::kInt,   at::kLong,   at::kFloat8_e4m3fn, at::kFloat8_e5m2,  at::kHalf,
      at::kBFloat16, at::kFloat, at::kDouble, at::kComplexFloat,  at::kComplexDouble};
  return kTypes[static_cast<std::size_t>(dtype)];
}

namespace {

bool is_repeated(const graph::TensorType& type) {
  bool is_any = false;
  for (std::size_t d = 0; d < type.strides.size(); ++d) {
    if (type.shape.dims[d] == 0) return false;
    is_any = is_any || (type.strides[d] == 0 && type.shape.dims[d] > 1);
  }
  return is_any;
}

}  // namespace

// What tells normal tensors from those of `torch.inference_mode`.
constexpr c10::DispatchKeySet kModeKeys = c10::autograd_dispatch_keyset_with_ADInplaceOrView;

TensorImpl::TensorImpl(runtime::Device& device, graph::AliasRef alias, graph::ViewRef view,
                       const graph::TensorType* type)
    : c10::TensorImpl(
          c10::DispatchKeySet(kXlaKeys),
          c10::scalarTypeToTypeMeta(to_scalar_type(type->shape.dtype)),
          c10::Device(c10::DeviceType::XLA, static_cast<c10::DeviceIndex>(device.ordinal()))),
      xla_device_(&device),
      alias_(std::move(alias)),
      view_(std::move(view)) {
  static base::Counter& count = base::counter("CreateXlaTensor");
  count.add();
  set_type(type);
}

TensorImpl::~TensorImpl() {
  static base::Counter& count = base::counter("DestroyXlaTensor");
  count.add();
  leave();
}

namespace {

// Relatives share an alias, and so a mutex.
std::mutex& mutex_of_relatives(const graph::Alias& alias) {
  static auto* const mutexes = new std::array<std::mutex, 64>();
  return (*mutexes)[alias.number() % mutexes->size()];
}

}  // namespace

void TensorImpl::join(const TensorImpl& of) {
  const std::lock_guard lock(mutex_of_relatives(*alias_));
  next_relative_ = of.next_relative_;
  previous_relative_ = &of;
  next_relative_->previous_relative_ = this;
  of.next_relative_ = this;
  has_joined_ = of.has_joined_ = true;
}

void TensorImpl::leave() {
  if (!has_joined_) return;
  const std::lock_guard lock(mutex_of_relatives(*alias_));
  next_relative_->previous_relative_ = previous_relative_;
  previous_relative_->next_relative_ = next_relative_;
  next_relative_ = previous_relative_ = this;
  has_joined_ = false;
}

SignBits TensorImpl::sign_bits() const {
  SignBits bits;
  for (const graph::View* view = view_.get(); view != nullptr; view = view->parent().get()) {
    bits.is_conj ^= view->op().name == "view:conj";
    bits.is_neg ^= view->op().name == "view:neg";
  }
  return bits;
}

std::vector<at::Tensor> TensorImpl::relatives() const {
  std::vector<at::Tensor> alive;
  const std::lock_guard lock(mutex_of_relatives(*alias_));
  for (const TensorImpl* it = next_relative_; it != this; it = it->next_relative_) {
    // One whose last reference is gone waits for the mutex to leave; it isn't to be had any more.
    auto weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim(
        const_cast<TensorImpl*>(it));
    auto strong = weak.lock();
    weak.release();
    if (strong) alive.emplace_back(std::move(strong));
  }
  return alive;
}

void TensorImpl::set_type(const graph::TensorType* type) {
  type_ = type;
  set_sizes_and_strides(type->shape.dims, type->strides);
  // XLA owns the layout: as the guides promise, tensors answer that they are contiguous. But for
  // those with one element in many places: torch's engine would make them gradients to write to.
  is_contiguous_ = !is_repeated(*type);
}

void TensorImpl::set_mode_of(const TensorImpl& of) {
  key_set_ = (key_set_ - kModeKeys) | (of.key_set_ & kModeKeys);
  if (is_inference()) set_version_counter(c10::VariableVersion(c10::VariableVersion::DISABLED));
}

void TensorImpl::reset(graph::AliasRef alias, graph::ViewRef view, const graph::TensorType* type) {
  {
    graph::LiveSet& live = alias_->live();
    const std::lock_guard lock(live.mutex);
    live.count_write();
  }
  if (alias != alias_) leave();
  alias_ = std::move(alias);
  view_ = std::move(view);
  cache_ = {};
  exposed_storage_ = {};
  data_type_ = c10::scalarTypeToTypeMeta(to_scalar_type(type->shape.dtype));
  set_type(type);
}

template <typename Version>
c10::intrusive_ptr<c10::TensorImpl> TensorImpl::detached_copy(
    Version&& version, bool allow_tensor_metadata_change) const {
  auto impl = c10::make_intrusive<TensorImpl>(*xla_device_, alias_, view_, type_);
  copy_tensor_metadata(this, impl.get(), std::forward<Version>(version),
                       allow_tensor_metadata_change);
  impl->is_contiguous_ = is_contiguous_;
  return impl;
}

c10::intrusive_ptr<c10::TensorImpl> TensorImpl::shallow_copy_and_detach(
    const c10::VariableVersion& version_counter, bool allow_tensor_metadata_change) const {
  return detached_copy(version_counter, allow_tensor_metadata_change);
}

c10::intrusive_ptr<c10::TensorImpl> TensorImpl::shallow_copy_and_detach(
    c10::VariableVersion&& version_counter, bool allow_tensor_metadata_change) const {
  return detached_copy(std::move(version_counter), allow_tensor_metadata_change);
}

void TensorImpl::shallow_copy_from(const c10::intrusive_ptr<c10::TensorImpl>& impl) {
  auto* other = dynamic_cast<TensorImpl*>(impl.get());
  TORCH_CHECK(other != nullptr, "set_data: an xla tensor takes its data from an xla tensor only");
  copy_tensor_metadata(other, this, version_counter(), allow_tensor_metadata_change());
  xla_device_ = other->xla_device_;
  device_opt_ = other->device_opt_;
  reset(other->alias_, other->view_, other->type_);
  storage_offset_ = other->storage_offset_;
}

void TensorImpl::release_resources() {
  c10::TensorImpl::release_resources();
  leave();
  cache_ = {};
  view_ = {};
  alias_ = {};
}

const at::Storage& TensorImpl::storage() const {
  if (!exposed_storage_) exposed_storage_ = storage_of(alias_, *xla_device_);
  return exposed_storage_;
}

TensorImpl* as_xla(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.key_set().has_backend(c10::BackendComponent::XLABit)) {
    return nullptr;
  }
  // A FakeTensor, and what it is made from, have the xla key without being ours.
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  return typeid(*impl) == typeid(TensorImpl) ? static_cast<TensorImpl*>(impl) : nullptr;
}

void append_xla(const c10::IValue& argument, TensorImpls& out) {
  if (argument.isTensor()) {
    if (TensorImpl* impl = as_xla(argument.toTensor())) out.push_back(impl);
  } else if (argument.isTensorList()) {
    for (const at::Tensor& tensor : argument.toTensorList()) {
      if (TensorImpl* impl = as_xla(tensor)) out.push_back(impl);
    }
  } else if (argument.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : argument.toOptionalTensorList()) {
      if (tensor.has_value()) append_xla(*tensor, out);
    }
  }
}

TensorImpl& expect_xla(const at::Tensor& tensor, std::string_view op, std::string_view argument) {
  TensorImpl* impl = as_xla(tensor);
  TORCH_CHECK(impl != nullptr, "aten::", op, ": Input tensor is not an XLA tensor: ",
              tensor.defined() ? c10::str("torch.", tensor.scalar_type(), "Tensor") : "undefined",
              " (argument '", argument,
              tensor.defined() ? c10::str("', device ", tensor.device(), ", shape ", tensor.sizes())
                               : std::string("'"),
              "); move it with .to('xla')");
  return *impl;
}

runtime::Device& common_device(at::TensorList tensors, std::string_view op) {
  if (tensors.empty()) return current_device();
  runtime::Device& device = expect_xla(tensors[0], op, "tensors").xla_device();
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(&expect_xla(tensor, op, "tensors").xla_device() == &device, op,
                ": expected tensors of one device, got xla:", device.ordinal(), " and ",
                tensor.device());
  }
  return device;
}

std::vector<graph::Value> values_of(at::TensorList tensors, runtime::Device& device) {
  std::vector<graph::NodeRef> garbage;
  std::vector<graph::Value> values;
  const std::lock_guard lock(device.live().mutex);
  for (const at::Tensor& tensor : tensors) values.push_back(as_xla(tensor)->read(garbage));
  return values;
}

at::Tensor make_tensor(runtime::Device& device, graph::AliasRef alias) {
  keep_backward_in_this_thread();
  const graph::TensorType* type = alias->type();
  return at::Tensor(
      c10::make_intrusive<TensorImpl>(device, std::move(alias), graph::ViewRef(), type));
}

at::Tensor make_view(const TensorImpl& of, graph::ViewRef view, const graph::TensorType* type,
                     std::int64_t storage_offset) {
  auto impl = c10::make_intrusive<TensorImpl>(of.xla_device(), of.alias(), std::move(view), type);
  impl->set_offset(storage_offset);
  impl->join(of);
  if (c10::InferenceMode::is_enabled() || !of.key_set().has_any(kModeKeys)) [[unlikely]]
    impl->set_mode_of(of);
  return at::Tensor(std::move(impl));
}

at::Tensor make_tensor_from_data(runtime::Device& device, graph::DataPtr data,
                                 const graph::TensorType* type) {
  graph::AliasRef alias =
      graph::Alias::make(device.live(), type, graph::Value{graph::Node::make_leaf(data), 0});
  {
    const std::lock_guard lock(device.live().mutex);
    alias->settle(std::move(data));
  }
  return make_tensor(device, std::move(alias));
}

std::shared_ptr<runtime::Array> materialize(const at::Tensor& tensor) {
  return materialize(at::TensorList(tensor)).front();
}

std::vector<std::shared_ptr<runtime::Array>> materialize(at::TensorList tensors) {
  std::vector<std::shared_ptr<runtime::Array>> arrays(tensors.size());
  std::map<runtime::Device*, std::vector<std::size_t>> by_device;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    by_device[&expect_xla(tensors[i], "materialize", "tensors").xla_device()].push_back(i);
  }
  for (const auto& [device, indices] : by_device) {
    const auto read = [&](std::vector<graph::NodeRef>& garbage) {
      std::vector<graph::Value> values;
      for (const std::size_t i : indices) values.push_back(as_xla(tensors[i])->read(garbage));
      return values;
    };
    std::vector<runtime::ArrayPtr> computed =
        translating([&] { return runtime::compute(*device, read); });
    for (std::size_t k = 0; k < indices.size(); ++k) arrays[indices[k]] = std::move(computed[k]);
  }
  return arrays;
}

}  // namespace torch_xla::aten
