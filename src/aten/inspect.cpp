// Reading the graph behind tensors under the recording lock.
#include "aten/inspect.h"

#include <mutex>
#include <vector>

#include "aten/eager.h"
#include "aten/errors.h"
#include "aten/tensor.h"
#include "base/settings.h"
#include "graph/location.h"
#include "runtime/capture.h"
#include "runtime/inspect.h"
#include "runtime/observe.h"

namespace torch_xla::aten {

std::string graph_of(at::TensorList tensors, std::string_view format) {
  return translating([&] {
    TORCH_CHECK(!tensors.empty(), "graph_of: expected at least one xla tensor");
    runtime::Device& device = common_device(tensors, "graph_of");
    return runtime::pending_graph(device, values_of(tensors, device), format);
  });
}

std::string graph_key_of(at::TensorList tensors) {
  return translating([&] {
    TORCH_CHECK(!tensors.empty(), "graph_key_of: expected at least one xla tensor");
    runtime::Device& device = common_device(tensors, "graph_key_of");
    return runtime::pending_graph_key(device, values_of(tensors, device));
  });
}

std::string describe(const at::Tensor& tensor) {
  TensorImpl& impl = expect_xla(tensor, "describe", "tensor");
  std::vector<graph::NodeRef> garbage;
  std::string text = base::str("XLATensor {\n  Shape: ", base::to_string(impl.xla_type()->shape),
                               "\n  Device: xla:", impl.xla_device().ordinal(), "\n");
  const std::lock_guard lock(impl.xla_device().live().mutex);
  const graph::Value value = impl.read(garbage);
  if (impl.view()) text += "  View: of other memory\n";
  if (value.node->data(value.output) != nullptr) {
    text += "  IR: None\n  Data: on the device, or on its way\n";
  } else {
    text += base::str("  IR: aten::", value.node->entry()->op->name, "\n  Data: None\n");
  }
  if (value.node->location() != 0) {
    text += "  Location: " + graph::to_string(value.node->location()) + "\n";
  }
  return text + "}\n";
}

std::string_view kind_of_data(const at::Tensor& tensor) {
  TensorImpl& impl = expect_xla(tensor, "kind_of_data", "tensor");
  std::vector<graph::NodeRef> garbage;
  const std::lock_guard lock(impl.xla_device().live().mutex);
  const graph::Value value = impl.read(garbage);
  const graph::DataPtr data = value.node->data(value.output);
  if (data == nullptr) return "pending";
  return dynamic_cast<const runtime::Placeholder*>(data.get()) != nullptr ? "stand_in" : "array";
}

bool set_name(const at::Tensor& tensor, std::string name) {
  TensorImpl& impl = expect_xla(tensor, "set_name", "tensor");
  graph::SourceLine line;
  line.scope = std::move(name);
  if (std::vector<base::Frame> frames = base::user_frames(1); !frames.empty()) {
    line.frame = std::move(frames.front());
  }
  const graph::Location location = graph::intern(std::move(line));
  std::vector<graph::NodeRef> garbage;
  const std::lock_guard lock(impl.xla_device().live().mutex);
  const graph::Value value = impl.read(garbage);
  if (value.node->data(value.output) != nullptr) return false;
  value.node->set_location(location);
  return true;
}

void refresh_location_switch() {
  const base::Settings& settings = base::settings();
  graph::locations_are_wanted.store(settings.ir_debug() || settings.hlo_debug() ||
                                    runtime::debug_level() > 0);
  if (settings.use_eager_debug_mode()) set_eager_mode(true);
}

}  // namespace torch_xla::aten
