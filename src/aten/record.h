// The recording kernel: one boxed function behind every operator that has a lowering. It reads the
// arguments, finds the memo entry, appends a node and makes the result tensors; in-place calls
// write the node's outputs to their arguments.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/stack.h>

#include <memory>
#include <mutex>

#include "aten/operator.h"
#include "aten/tensor.h"
#include "graph/memo.h"

namespace torch_xla::aten {

class RecordingKernel final : public c10::OperatorKernel {
 public:
  explicit RecordingKernel(std::unique_ptr<Operator> op) : op_(std::move(op)) {}
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  std::unique_ptr<Operator> op_;
};

// Records an operator whose kernel prepares the arguments first.
class Recorder {
 public:
  Recorder(const char* name, const char* overload);
  // The call's first result.
  at::Tensor operator()(torch::jit::Stack stack);

 private:
  c10::OperatorHandle handle_;
  std::unique_ptr<RecordingKernel> kernel_;
};

// `out=` overloads: runs the functional overload, resizes the out tensors and copies into them.
// What out tensors PyTorch accepts its Meta kernel says, where there is a compiled one.
class OutKernel final : public c10::OperatorKernel {
 public:
  OutKernel(c10::OperatorHandle functional, std::vector<std::size_t> out_arguments)
      : functional_(functional), out_arguments_(std::move(out_arguments)) {}
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  // Throws if the out tensors, of the results' sizes, lie where PyTorch does not write.
  void check_memory(const c10::OperatorHandle& handle,
                    const std::vector<c10::IValue>& arguments) const;
  // Throws if PyTorch would refuse the out tensors, and warns if it would resize them.
  void check(const c10::OperatorHandle& handle, const std::vector<c10::IValue>& arguments,
             const torch::jit::Stack& results);
  // The argument in which the functional overload must be told the out tensor's dtype, if it
  // computes in that and the caller says no other.
  std::optional<std::size_t> missing_dtype(const std::vector<c10::IValue>& arguments) const;

  c10::OperatorHandle functional_;
  std::vector<std::size_t> out_arguments_;
  std::once_flag looked_;
  std::optional<c10::KernelFunction> compiled_meta_;
};

// The process's memo.
graph::Memo& memo();

// Whether elements of such a tensor share memory: expanded ones do.
bool has_repeats(const graph::TensorType& type);
// Throws as PyTorch does when elements of a tensor that is written to share memory.
void check_no_overlap(const graph::TensorType& type);
// Warns as PyTorch does of a call, and of the form of assignment that comes to it, that writes such
// elements.
void warn_if_repeated(const TensorImpl& written, std::string_view name, std::string_view form);
// Throws as PyTorch's indexing does when what is written shares memory with what is read.
void check_apart(const TensorImpl& written, const TensorImpl& read);
// Throws as PyTorch does when a call reads and writes two tensors that share a part of their
// memory: which elements it reads before and which after the write would be undefined.
void check_no_partial_overlap(const TensorImpl& written, const TensorImpl& read);

}  // namespace torch_xla::aten
