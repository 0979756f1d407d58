// Bindings for what tensors on a mesh are asked and told. A sharding travels as its text, which the
// library's table knows.
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "aten/copy.h"
#include "aten/sharding.h"
#include "base/sharding.h"
#include "python/bindings.h"
#include "runtime/automatic_sharding.h"
#include "runtime/client.h"

namespace torch_xla::python {
namespace {

namespace py = pybind11;

std::string text_of(const base::Sharding* sharding) {
  return sharding == nullptr ? std::string() : sharding->text();
}

}  // namespace

void bind_sharding(py::module_& m) {
  const auto release = py::call_guard<WithoutLock>();
  m.def("_use_spmd", &runtime::use_spmd, release);
  m.def("_is_spmd", &runtime::is_spmd);
  m.def("_split_automatically", [](const std::vector<std::string>& by_dimension) {
    std::vector<const base::Sharding*> shardings;
    for (const std::string& text : by_dimension) shardings.push_back(base::Sharding::find(text));
    runtime::split_automatically(std::move(shardings));
  });
  m.def("_num_runtime_devices", &runtime::num_runtime_devices, release);
  m.def("_num_addressable_runtime_devices", &runtime::num_addressable_runtime_devices, release);
  m.def("_make_sharding", [](std::vector<std::int64_t> sizes, std::vector<int> devices,
                             std::vector<std::string> names, std::vector<std::vector<int>> axes) {
    return base::Sharding::make({std::move(sizes), std::move(devices), std::move(names)},
                                std::move(axes))
        ->text();
  });
  m.def("_tiling_text", [](const std::string& sharding, std::int64_t rank) {
    return base::tiling_text(*base::Sharding::find(sharding), rank);
  });
  m.def(
      "_mark_sharding",
      [](const at::Tensor& t, const std::string& sharding) {
        aten::mark_sharding(t, base::Sharding::find(sharding));
      },
      release);
  m.def(
      "_constrained",
      [](const std::vector<at::Tensor>& tensors, const std::vector<std::string>& texts) {
        std::vector<const base::Sharding*> shardings;
        for (const std::string& text : texts) shardings.push_back(base::Sharding::find(text));
        return aten::constrained(tensors, shardings);
      },
      release);
  m.def(
      "_upload_sharded",
      [](const at::Tensor& cpu, int device, const std::string& sharding) {
        return aten::to_device(
            cpu, c10::Device(c10::DeviceType::XLA, static_cast<c10::DeviceIndex>(device)),
            *base::Sharding::find(sharding));
      },
      release);
  m.def("_clear_sharding", &aten::clear_sharding, release);
  m.def("_sharding_of", [](const at::Tensor& t) { return text_of(aten::sharding_of(t)); }, release);
  m.def(
      "_marked_sharding", [](const at::Tensor& t) { return text_of(aten::marked_sharding(t)); },
      release);
  m.def(
      "_local_shard",
      [](const at::Tensor& t, std::size_t place) { return aten::local_shard(t, place).data; },
      release);
  m.def(
      "_shard_slices",
      [](const at::Tensor& t) {
        std::vector<std::pair<base::Dims, base::Dims>> slices;
        for (base::Slice& slice : aten::shard_slices(t)) {
          slices.emplace_back(std::move(slice.starts), std::move(slice.sizes));
        }
        return slices;
      },
      release);
  py::class_<aten::ShardLoad>(m, "_ShardLoad")
      .def(py::init<const at::Tensor&>(), py::arg("t"), release)
      .def("put", &aten::ShardLoad::put, release)
      .def("get", &aten::ShardLoad::get, release)
      .def("finish", &aten::ShardLoad::finish, release);
  m.def(
      "_local_shards",
      [](const at::Tensor& t) {
        std::vector<std::tuple<at::Tensor, base::Dims, base::Dims>> shards;
        for (aten::LocalShard& shard : aten::local_shards(t)) {
          shards.emplace_back(std::move(shard.data), std::move(shard.slice.starts),
                              std::move(shard.slice.sizes));
        }
        return shards;
      },
      release);
}

}  // namespace torch_xla::python
