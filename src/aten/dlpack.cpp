// CPU tensors and xla tensors of one memory, where the plugin allows.
#include "aten/dlpack.h"

#include <ATen/ops/from_blob.h>

#include "aten/blocking.h"
#include "aten/copy.h"
#include "aten/device.h"
#include "aten/errors.h"
#include "aten/tensor.h"
#include "base/stored_dtype.h"
#include "runtime/shared_memory.h"

namespace torch_xla::aten {
namespace {

bool is_stored_as_reported(const at::Tensor& tensor) {
  const base::DType dtype = to_dtype(tensor.scalar_type());
  return base::stored_dtype(dtype) == dtype;
}

}  // namespace

at::Tensor cpu_view(const at::Tensor& tensor) {
  TensorImpl& impl = expect_xla(tensor, "to_dlpack", "xla_tensor");
  if (tensor.numel() == 0 || !is_stored_as_reported(tensor) ||
      !runtime::shares_host_memory(impl.xla_device())) {
    return to_cpu({tensor}).front();
  }
  std::shared_ptr<runtime::SharedMemory> memory;
  blocking([&] {
    const std::shared_ptr<runtime::Array> array = materialize(tensor);
    memory = translating([&] { return std::make_shared<runtime::SharedMemory>(array); });
  });
  void* const data = memory->data();
  return at::from_blob(
      data, tensor.sizes(), [memory](void*) mutable { memory.reset(); },
      at::TensorOptions().dtype(tensor.scalar_type()).device(at::kCPU));
}

at::Tensor adopt(const at::Tensor& cpu, c10::Device device) {
  TORCH_CHECK(cpu.device().is_cpu(), "from_dlpack: expected memory of the CPU, got ", cpu.device());
  const at::Tensor dense = cpu.resolve_conj().resolve_neg().contiguous();
  if (dense.numel() > 0 && is_stored_as_reported(dense)) {
    runtime::Device& target = device_of(device);
    const base::Shape shape{to_dtype(dense.scalar_type()), dense.sizes().vec()};
    // The callback holds the memory, and is dropped after its call.
    std::shared_ptr<runtime::Array> array = translating([&] {
      return runtime::adopt_memory(target, dense.mutable_data_ptr(), shape, [kept = dense] {});
    });
    if (array != nullptr) {
      return make_tensor_from_data(target, std::move(array), graph::intern_contiguous(shape));
    }
  }
  return to_device(dense, device);
}

}  // namespace torch_xla::aten
