// Capturing a function on xla tensors as a region, and recording nodes that hold regions. Works
// below autograd: the Python package adds gradients.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/UndefinedTensorImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "graph/region.h"
#include "runtime/capture.h"
#include "runtime/device.h"
#include "runtime/executor.h"

namespace torch_xla::aten {

// The tensors of a graph's last launch whose arrays it keeps. While nothing is written on the
// device, and the graph keeps the same arrays, the same tensors mean the same arrays.
struct LaunchedTensors {
  using Strong = c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

  runtime::Device* device = nullptr;
  // By place, or undefined. Nothing else takes their addresses while these refer to them.
  std::vector<Weak> tensors;
  std::uint64_t num_writes = 0;  // on the device, until then
  std::weak_ptr<const runtime::ArgumentList> kept;

  // All of them, or none if something was written since.
  std::span<const Weak> unwritten() const {
    const bool is_any = device != nullptr && device->live().num_writes() == num_writes;
    return is_any ? tensors : std::span<const Weak>();
  }
};

// A region, and the tensors that it reads beside its arguments.
struct CapturedGraph {
  graph::RegionPtr region;
  std::vector<at::Tensor> constants;
  // What the last call's node pointed to, and for which operands: the next call's are the same,
  // nearly always. Under the interpreter's lock.
  struct LastCall {
    std::vector<const graph::TensorType*> types;
    const graph::Entry* entry = nullptr;
    // How `run_graph` may launch the graph again for those types.
    std::shared_ptr<const runtime::GraphCall> launch;
    LaunchedTensors launched;
  };
  std::shared_ptr<LastCall> last_call = std::make_shared<LastCall>();
};

// One capture: make placeholders, call the function on them, then `finish` with what it returned.
class Capture {
 public:
  explicit Capture(runtime::Device& device);

  // A tensor of the type of `like`, which must be on the capture's device. With `is_outside` it
  // stands for what the function takes from elsewhere: an operand behind the arguments, which are
  // made first.
  at::Tensor placeholder(const at::Tensor& like, bool is_outside);
  // The region from the placeholders, in the order of their making, to the values that `results`
  // have now. What was recorded before the capture began is read, not computed again. Ends the
  // capture.
  CapturedGraph finish(at::TensorList results);
  // Ends it without a result; also after `finish`.
  void close() { scope_.reset(); }

 private:
  // What is about to be computed outside, with the stand-in that the walk stops at.
  struct Outside {
    graph::Value value;
    graph::DataPtr data;
  };
  graph::Trace walk(at::TensorList results, std::vector<graph::NodeRef>& garbage);
  graph::Value value_of(const graph::DataPtr& leaf) const;

  runtime::Device* device_;
  std::unique_ptr<runtime::CaptureScope> scope_;
  std::vector<graph::DataPtr> placeholders_;
  std::vector<const graph::TensorType*> types_;
  std::size_t num_arguments_ = 0;
  std::vector<Outside> outside_;
};

using RandomKeys = std::vector<std::uint64_t>;

// Records one node for the regions: `operands` without the constants, which are added. `keys` are
// those of an earlier node whose random numbers are wanted again; else they are drawn. Returns the
// node's results and its keys. The same tensors that the region's function would have made, with
// gradients off.
std::pair<std::vector<at::Tensor>, RandomKeys> record_region(
    graph::RegionKind kind, const std::vector<CapturedGraph>& graphs, at::TensorList operands,
    const graph::RegionParameters& parameters, const std::optional<RandomKeys>& keys);

// What was recorded last on the device and is still to be computed, or an undefined tensor.
at::Tensor latest_pending(runtime::Device& device);

// Computes the region's results for `operands`, without the constants, in one launch. A call whose
// operands were computed before, of the types of the last one, records nothing.
std::vector<at::Tensor> run_graph(const CapturedGraph& graph,
                                  std::span<const at::Tensor* const> operands);

}  // namespace torch_xla::aten
