// Random state of the xla device. Nothing random runs on the host: a random call draws a 64-bit key
// from its generator while it is recorded, and the program derives its numbers from that key. So
// the state is two integers, readable without running anything, and results do not depend on where
// the barriers are.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <cstdint>
#include <optional>

#include "runtime/device.h"

namespace torch_xla::aten {

class XlaGenerator final : public c10::GeneratorImpl {
 public:
  explicit XlaGenerator(c10::DeviceIndex index);

  void set_current_seed(std::uint64_t seed) override;
  std::uint64_t current_seed() const override { return seed_; }
  // Seeds from the system's entropy and returns the seed.
  std::uint64_t seed() override;
  // How many keys were drawn since the seed was set.
  void set_offset(std::uint64_t offset) override { offset_ = offset; }
  std::uint64_t get_offset() const override { return offset_; }
  // A CPU tensor of 16 bytes: seed and offset.
  void set_state(const c10::TensorImpl& new_state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  // The next key. The caller holds mutex_.
  std::uint64_t next_key();

 private:
  XlaGenerator* clone_impl() const override;

  std::uint64_t seed_ = c10::default_rng_seed_val;
  std::uint64_t offset_ = 0;
};

// The device's own generator; makes no client.
const at::Generator& default_generator(c10::DeviceIndex index);
// A key from `generator`, or from the device's own.
std::uint64_t next_random_key(const runtime::Device& device,
                              const std::optional<at::Generator>& generator);

}  // namespace torch_xla::aten
