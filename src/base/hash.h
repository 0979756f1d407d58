// A 128-bit streaming hash, the same in every process and on every machine of one endianness, for
// keys of memo entries, graphs and the compile cache. Not cryptographic.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>

namespace torch_xla::base {

struct Hash128 {
  std::uint64_t lo = 0;
  std::uint64_t hi = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
};

// 32 lower-case hexadecimal digits.
std::string to_string(const Hash128& hash);

// The bit mixer of splitmix64: every input bit reaches every output bit.
inline std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

class Hasher {
 public:
  void add(std::uint64_t word) {
    lo_ = mul_fold(lo_ ^ word, 0x9e3779b97f4a7c15ULL);
    hi_ = mul_fold(hi_ + word, 0xd6e8feb86659fd93ULL) ^ lo_;
  }
  void add(std::string_view text) {
    add(text.size());
    for (std::size_t i = 0; i < text.size(); i += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data() + i, text.size() - i < 8 ? text.size() - i : 8);
      add(word);
    }
  }
  void add(const Hash128& hash) {
    add(hash.lo);
    add(hash.hi);
  }
  Hash128 finish() const { return {mix64(lo_ ^ (hi_ << 1)), mix64(hi_)}; }

 private:
  static std::uint64_t mul_fold(std::uint64_t a, std::uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a ^ 0xa0761d6478bd642fULL) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }

  std::uint64_t lo_ = 0x243f6a8885a308d3ULL;
  std::uint64_t hi_ = 0x13198a2e03707344ULL;
};

}  // namespace torch_xla::base

template <>
struct std::hash<torch_xla::base::Hash128> {
  std::size_t operator()(const torch_xla::base::Hash128& h) const noexcept { return h.lo; }
};
