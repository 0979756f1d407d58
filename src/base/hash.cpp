// Printing of hashes.
#include "base/hash.h"

namespace torch_xla::base {

std::string to_string(const Hash128& hash) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out(32, '0');
  for (int i = 0; i < 16; ++i) {
    out[15 - i] = kDigits[(hash.hi >> (4 * i)) & 15];
    out[31 - i] = kDigits[(hash.lo >> (4 * i)) & 15];
  }
  return out;
}

}  // namespace torch_xla::base
