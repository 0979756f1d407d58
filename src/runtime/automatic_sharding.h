// How arrays lie that come from the host and of which nobody says anything, when the user leaves it
// to the library.
#pragma once

#include <vector>

#include "base/sharding.h"

namespace torch_xla::runtime {

// From now on such an array is split along its largest dimension that has equal parts, if it is
// large enough to be worth it: by the sharding in that dimension's place of the list. Thread-safe.
void split_automatically(std::vector<const base::Sharding*> by_dimension);
// How it lies; null: whole, as without `split_automatically`.
const base::Sharding* automatic_sharding(const base::Shape& shape);

}  // namespace torch_xla::runtime
