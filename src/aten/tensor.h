// The tensor implementation behind the `xla` device: a c10::TensorImpl without storage that points
// to the alias (the memory it stands for) and, for views, to how it is read from it. Conversions
// between PyTorch's dtypes and ours live here too.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>

#include <vector>

#include "base/dtype.h"
#include "base/pool.h"
#include "graph/alias.h"
#include "graph/entry.h"
#include "runtime/device.h"

namespace torch_xla::aten {

// Throws NotImplementedError for types that no program can hold (quantized, bits).
base::DType to_dtype(at::ScalarType type);
at::ScalarType to_scalar_type(base::DType dtype);

// Whether a view shows its memory conjugated, or negated: what PyTorch keeps in bits of a tensor.
struct SignBits {
  bool is_conj = false;
  bool is_neg = false;
  friend bool operator==(const SignBits&, const SignBits&) = default;
};

class TensorImpl final : public c10::TensorImpl, public base::Pooled {
 public:
  // `view` is null for a tensor that is its alias; `type` is the view's type, or the alias's.
  TensorImpl(runtime::Device& device, graph::AliasRef alias, graph::ViewRef view,
             const graph::TensorType* type);
  ~TensorImpl() override;
  TensorImpl(const TensorImpl&) = delete;
  TensorImpl& operator=(const TensorImpl&) = delete;

  runtime::Device& xla_device() const { return *xla_device_; }
  const graph::AliasRef& alias() const { return alias_; }
  const graph::ViewRef& view() const { return view_; }
  const graph::TensorType* xla_type() const { return type_; }
  SignBits sign_bits() const;

  // The current value. Under the device's recording lock, as is the use of what is returned.
  const graph::Value& read(std::vector<graph::NodeRef>& garbage) {
    return graph::read_view(*alias_, view_.get(), cache_, garbage);
  }
  // Writes through the view into the alias. Under the device's recording lock.
  void write(graph::Value value, std::vector<graph::NodeRef>& garbage) {
    graph::write_view(*alias_, view_.get(), std::move(value), cache_, garbage);
  }
  // Makes this tensor stand for other memory, as `set_data`, `set_` and `resize_` do. Not under the
  // recording lock.
  void reset(graph::AliasRef alias, graph::ViewRef view, const graph::TensorType* type);

  void set_offset(std::int64_t offset) { storage_offset_ = offset; }
  // This one was made as a view of `of`: the two, and all that joined either, are relatives.
  void join(const TensorImpl& of);
  // Those that are still alive.
  std::vector<at::Tensor> relatives() const;
  // Makes this one an inference tensor, or a normal one, as `of` is, whichever mode is on now: what
  // a view of it is.
  void set_mode_of(const TensorImpl& of);

  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(
      const c10::VariableVersion& version_counter,
      bool allow_tensor_metadata_change) const override;
  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(
      c10::VariableVersion&& version_counter, bool allow_tensor_metadata_change) const override;
  void shallow_copy_from(const c10::intrusive_ptr<c10::TensorImpl>& impl) override;
  void release_resources() override;
  // There is no memory to show: a storage of the right size whose data pointer raises.
  const at::Storage& storage() const override;

 private:
  template <typename Version>
  c10::intrusive_ptr<c10::TensorImpl> detached_copy(Version&& version,
                                                    bool allow_tensor_metadata_change) const;
  void set_type(const graph::TensorType* type);
  void leave();

  runtime::Device* xla_device_;
  graph::AliasRef alias_;
  graph::ViewRef view_;
  const graph::TensorType* type_ = nullptr;
  graph::ViewCache cache_;  // under the device's recording lock
  // Beside torch's own member, which stays empty: a tensor without storage has no data_ptr().
  mutable at::Storage exposed_storage_;
  // A ring; under a mutex of its own.
  mutable const TensorImpl* next_relative_ = this;
  mutable const TensorImpl* previous_relative_ = this;
  mutable bool has_joined_ = false;
};

// Null when the tensor is undefined or not ours (a CPU tensor, a FakeTensor on the xla device).
TensorImpl* as_xla(const at::Tensor& tensor);
using TensorImpls = c10::SmallVector<TensorImpl*, 8>;
// Appends ours among the tensors of an argument.
void append_xla(const c10::IValue& argument, TensorImpls& out);
// Ours; throws the error for tensors of other devices, which names the operator and the argument.
TensorImpl& expect_xla(const at::Tensor& tensor, std::string_view op, std::string_view argument);
// The device of tensors that must be ours and on one, else as `expect_xla`; the current device
// where there are none.
runtime::Device& common_device(at::TensorList tensors, std::string_view op);
// The current values of tensors of that device. Takes its recording lock.
std::vector<graph::Value> values_of(at::TensorList tensors, runtime::Device& device);

// A tensor that is all of `alias`.
at::Tensor make_tensor(runtime::Device& device, graph::AliasRef alias);
at::Tensor make_view(const TensorImpl& of, graph::ViewRef view, const graph::TensorType* type,
                     std::int64_t storage_offset);
// A tensor that holds `data`.
at::Tensor make_tensor_from_data(runtime::Device& device, graph::DataPtr data,
                                 const graph::TensorType* type);

// The array that holds the tensor's value, computed if it was not; it may still be on its way.
std::shared_ptr<runtime::Array> materialize(const at::Tensor& tensor);
std::vector<std::shared_ptr<runtime::Array>> materialize(at::TensorList tensors);

}  // namespace torch_xla::aten
