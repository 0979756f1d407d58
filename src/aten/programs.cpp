// Between tensors and what `runtime` exports and runs.
#include "aten/programs.h"

#include <mutex>
#include <utility>

#include "aten/copy.h"
#include "aten/device.h"
#include "aten/errors.h"
#include "aten/tensor.h"
#include "runtime/executor.h"
#include "runtime/export.h"

namespace torch_xla::aten {
namespace {

runtime::Device& device_of_all(at::TensorList tensors, const char* what) {
  if (tensors.empty()) return current_device();
  runtime::Device& device = expect_xla(tensors[0], what, "tensors").xla_device();
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(&expect_xla(tensor, what, "tensors").xla_device() == &device, what,
                ": expected tensors of one device, got xla:", device.ordinal(), " and ",
                tensor.device());
  }
  return device;
}

std::vector<graph::Value> read_all(at::TensorList tensors, runtime::Device& device) {
  std::vector<graph::NodeRef> garbage;
  std::vector<graph::Value> values;
  const std::lock_guard lock(device.live().mutex);
  for (const at::Tensor& tensor : tensors) values.push_back(as_xla(tensor)->read(garbage));
  return values;
}

std::vector<graph::DataPtr> computed(at::TensorList tensors) {
  std::vector<graph::DataPtr> data;
  for (std::shared_ptr<runtime::Array>& array : materialize(tensors)) {
    data.push_back(std::move(array));
  }
  return data;
}

base::Hash128 hash_of(const std::string& text) {
  base::Hasher hasher;
  hasher.add(std::string_view("program"));
  hasher.add(std::string_view(text));
  return hasher.finish();
}

at::Tensor to_tensor(runtime::Device& device, graph::DataPtr data) {
  const graph::TensorType* const type = graph::intern_contiguous(data->shape());
  return make_tensor_from_data(device, std::move(data), type);
}

}  // namespace

Program::Program(std::string module_text) : text(std::move(module_text)), key(hash_of(text)) {}

Exported export_program(at::TensorList outputs, at::TensorList inputs) {
  TORCH_CHECK(!outputs.empty(), "export: expected at least one result on the xla device");
  runtime::Device& device = device_of_all(outputs, "export");
  if (!inputs.empty()) {
    TORCH_CHECK(&device_of_all(inputs, "export") == &device,
                "export: the results are on another device than the inputs");
  }
  Exported result;
  blocking([&] {
    const std::vector<graph::DataPtr> data = computed(inputs);
    runtime::ExportedProgram program = translating(
        [&] { return runtime::export_program(device, read_all(outputs, device), data); });
    result.text = std::move(program.text);
    for (graph::DataPtr& captured : program.captured) {
      result.captured.push_back(to_tensor(device, std::move(captured)));
    }
  });
  return result;
}

std::vector<at::Tensor> run_program(const Program& program, at::TensorList inputs) {
  runtime::Device& device = device_of_all(inputs, "run_program");
  std::vector<at::Tensor> outputs;
  blocking([&] {
    std::vector<graph::DataPtr> data = computed(inputs);
    for (runtime::ArrayPtr& array : translating([&] {
           return runtime::run_program(device, program.text, program.key, std::move(data));
         })) {
      outputs.push_back(to_tensor(device, std::move(array)));
    }
  });
  return outputs;
}

std::map<std::string, std::int64_t> estimate_memory(at::TensorList tensors) {
  runtime::Device& device = device_of_all(tensors, "estimate_memory");
  return translating([&] { return runtime::estimate_memory(device, read_all(tensors, device)); });
}

}  // namespace torch_xla::aten
