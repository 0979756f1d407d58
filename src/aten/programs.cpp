// Between tensors and what `runtime` exports and runs.
#include "aten/programs.h"

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "aten/blocking.h"
#include "aten/errors.h"
#include "aten/inspect.h"
#include "aten/tensor.h"
#include "runtime/capture.h"
#include "runtime/client.h"
#include "runtime/executor.h"
#include "runtime/export.h"
#include "runtime/inspect.h"
#include "runtime/plan.h"

namespace torch_xla::aten {
namespace {

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
  runtime::Device& device = common_device(outputs, "export");
  if (!inputs.empty()) {
    TORCH_CHECK(&common_device(inputs, "export") == &device,
                "export: the results are on another device than the inputs");
  }
  Exported result;
  blocking([&] {
    const std::vector<graph::DataPtr> data = computed(inputs);
    runtime::ExportedProgram program = translating(
        [&] { return runtime::export_program(device, values_of(outputs, device), data); });
    result.text = std::move(program.text);
    for (graph::DataPtr& captured : program.captured) {
      result.captured.push_back(to_tensor(device, std::move(captured)));
    }
  });
  return result;
}

std::vector<at::Tensor> run_program(const Program& program, at::TensorList inputs) {
  runtime::Device& device = common_device(inputs, "run_program");
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

std::uint64_t tensor_id(const at::Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(
      expect_xla(tensor, "get_tensor_id", "tensor").alias().get());
}

Leaves leaves_of(at::TensorList tensors) {
  runtime::Device& device = common_device(tensors, "leaves_of");
  const graph::Trace trace =
      translating([&] { return runtime::trace_of(device, values_of(tensors, device)); });
  std::map<const graph::Data*, std::uint64_t> holders;
  {
    const std::lock_guard lock(device.live().mutex);
    device.live().for_each([&](const graph::Alias& alias) {
      if (!alias.value()) return;
      const graph::DataPtr data = alias.value().node->data(alias.value().output);
      if (data != nullptr) holders.emplace(data.get(), reinterpret_cast<std::uintptr_t>(&alias));
    });
  }
  Leaves leaves;
  for (const graph::DataPtr& leaf : trace.leaves) {
    const auto holder = holders.find(leaf.get());
    leaves.ids.push_back(holder != holders.end() ? holder->second
                                                 : reinterpret_cast<std::uintptr_t>(leaf.get()));
    leaves.tensors.push_back(to_tensor(device, leaf));
  }
  return leaves;
}

namespace {

// A program for the leaves, and what it takes beside them.
struct CachedGraph {
  Program program;
  std::vector<at::Tensor> captured;
};

struct CachedGraphs {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const CachedGraph>> by_key;  // under mutex
};

CachedGraphs& cached_graphs() {
  static auto* const instance = [] {
    runtime::at_shutdown([] {
      std::map<std::string, std::shared_ptr<const CachedGraph>> graphs;  // freed without the lock
      const std::lock_guard lock(cached_graphs().mutex);
      graphs.swap(cached_graphs().by_key);
    });
    return new CachedGraphs();
  }();
  return *instance;
}

}  // namespace

void cache_graph(at::TensorList tensors) {
  const std::string key = graph_key_of(tensors);
  runtime::Device& device = common_device(tensors, "warm_up_cache");
  const std::vector<at::Tensor> leaves = leaves_of(tensors).tensors;
  Exported exported = export_program(tensors, leaves);
  auto graph = std::make_shared<CachedGraph>(
      CachedGraph{Program(std::move(exported.text)), std::move(exported.captured)});
  std::vector<at::Tensor> operands = leaves;
  operands.insert(operands.end(), graph->captured.begin(), graph->captured.end());
  blocking([&] {
    const std::vector<graph::DataPtr> inputs = computed(operands);
    translating(
        [&] { runtime::compile_program(device, graph->program.text, graph->program.key, inputs); });
  });
  const std::lock_guard lock(cached_graphs().mutex);
  cached_graphs().by_key[key] = std::move(graph);
}

std::vector<at::Tensor> run_cached_graph(const std::string& key, at::TensorList inputs) {
  std::shared_ptr<const CachedGraph> graph;
  {
    const std::lock_guard lock(cached_graphs().mutex);
    const auto found = cached_graphs().by_key.find(key);
    TORCH_CHECK(found != cached_graphs().by_key.end(),
                "run_cached_graph: no graph of this hash was warmed up");
    graph = found->second;
  }
  // What is exported is a program of whole tensors.
  const std::vector<graph::DataPtr> data = computed(inputs);
  for (std::size_t i = 0; i < data.size(); ++i) {
    TORCH_CHECK(base::is_whole(static_cast<const runtime::Array&>(*data[i]).sharding()),
                "run_cached_graph: expected whole tensors, and input ", i,
                " lies in parts on the mesh");
  }
  std::vector<at::Tensor> operands = inputs.vec();
  operands.insert(operands.end(), graph->captured.begin(), graph->captured.end());
  return run_program(graph->program, operands);
}

bool set_donor(const at::Tensor& tensor, bool is_donor) {
  const TensorImpl& impl = expect_xla(tensor, "set_buffer_donation", "tensor");
  std::vector<graph::NodeRef> garbage;
  const std::lock_guard lock(impl.xla_device().live().mutex);
  const graph::Value value = as_xla(tensor)->read(garbage);
  const graph::DataPtr data = value.node->data(value.output);
  if (data == nullptr) return false;
  runtime::check_is_array(*data);
  static_cast<runtime::Array&>(*data).set_donor(is_donor);
  return true;
}

std::map<std::string, std::int64_t> estimate_memory(at::TensorList tensors) {
  runtime::Device& device = common_device(tensors, "estimate_memory");
  return translating([&] { return runtime::estimate_memory(device, values_of(tensors, device)); });
}

}  // namespace torch_xla::aten
