// Tensors' graphs as programs of their own, and programs that were made elsewhere run on tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/hash.h"

namespace torch_xla::aten {

// A StableHLO module and its key, so that the text is hashed once.
struct Program {
  explicit Program(std::string module_text);
  std::string text;
  base::Hash128 key;
};

struct Exported {
  std::string text;
  // What the program takes after the inputs.
  std::vector<at::Tensor> captured;
};

// The program that computes `outputs` from `inputs`, which are computed first if they were not. All
// must be on one device.
Exported export_program(at::TensorList outputs, at::TensorList inputs);
// Runs it on tensors of one device, or without any on the current one.
std::vector<at::Tensor> run_program(const Program& program, at::TensorList inputs);

// The arrays that the tensors are computed from, as tensors, each with the number that
// `tensor_id` gives for the tensor that holds it (else one of its own).
struct Leaves {
  std::vector<std::uint64_t> ids;
  std::vector<at::Tensor> tensors;
};
Leaves leaves_of(at::TensorList tensors);
std::uint64_t tensor_id(const at::Tensor& tensor);

// Compiles what computes the tensors from their leaves, and keeps it under `graph_key_of(tensors)`.
void cache_graph(at::TensorList tensors);
// Runs what `cache_graph` keeps under the key, on tensors in the place of the leaves.
std::vector<at::Tensor> run_cached_graph(const std::string& key, at::TensorList inputs);

// Whether barriers within `donors_are_used` may hand the tensor's memory to a result. False if the
// tensor has none yet.
bool set_donor(const at::Tensor& tensor, bool is_donor);

// As `runtime::estimate_memory`: of what a read of the tensors runs.
std::map<std::string, std::int64_t> estimate_memory(at::TensorList tensors);

}  // namespace torch_xla::aten
