// Generators and their keys.
#include "aten/generator.h"

#include <ATen/Utils.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <map>
#include <mutex>

#include "base/hash.h"

namespace torch_xla::aten {

XlaGenerator::XlaGenerator(c10::DeviceIndex index)
    : c10::GeneratorImpl(c10::Device(c10::DeviceType::XLA, index),
                         c10::DispatchKeySet(c10::DispatchKey::XLA)) {}

void XlaGenerator::set_current_seed(std::uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

std::uint64_t XlaGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void XlaGenerator::set_state(const c10::TensorImpl& new_state) {
  TORCH_CHECK(
      new_state.numel() == 16 && new_state.dtype() == caffe2::TypeMeta::Make<std::uint8_t>(),
      "set_state: the state of an xla generator is a uint8 tensor of 16 elements, got ",
      new_state.numel(), " elements of ", new_state.dtype().name());
  const auto* bytes = static_cast<const std::uint8_t*>(new_state.data());
  std::memcpy(&seed_, bytes, sizeof seed_);
  std::memcpy(&offset_, bytes + sizeof seed_, sizeof offset_);
}

c10::intrusive_ptr<c10::TensorImpl> XlaGenerator::get_state() const {
  at::Tensor state = at::empty({16}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
  auto* bytes = state.mutable_data_ptr<std::uint8_t>();
  std::memcpy(bytes, &seed_, sizeof seed_);
  std::memcpy(bytes + sizeof seed_, &offset_, sizeof offset_);
  return state.getIntrusivePtr();
}

std::uint64_t XlaGenerator::next_key() {
  return base::mix64(base::mix64(seed_ + 0x9e3779b97f4a7c15ULL) + base::mix64(++offset_));
}

XlaGenerator* XlaGenerator::clone_impl() const {
  auto* copy = new XlaGenerator(device_.index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

const at::Generator& default_generator(c10::DeviceIndex index) {
  static auto* const mutex = new std::mutex();
  static auto* const generators = new std::map<c10::DeviceIndex, at::Generator>();
  const std::lock_guard lock(*mutex);
  const auto [it, is_new] = generators->try_emplace(index);
  if (is_new) it->second = at::make_generator<XlaGenerator>(index);
  return it->second;
}

std::uint64_t next_random_key(const runtime::Device& device,
                              const std::optional<at::Generator>& generator) {
  at::Generator chosen = generator.has_value() && generator->defined()
                             ? *generator
                             : default_generator(static_cast<c10::DeviceIndex>(device.ordinal()));
  TORCH_CHECK(chosen.device().is_xla(), "Expected a 'xla' device type for generator but found '",
              chosen.device().type(), "'");
  const std::lock_guard lock(chosen.mutex());
  return chosen.get<XlaGenerator>()->next_key();
}

}  // namespace torch_xla::aten
