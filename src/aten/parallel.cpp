// An iteration over a tensor whose elements nobody reads: torch divides it among its threads.
#include "aten/parallel.h"

#include <ATen/TensorIterator.h>
#include <ATen/ops/from_blob.h>

namespace torch_xla::aten {

void in_parallel(std::int64_t count, std::int64_t grain,
                 const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (count <= grain) return body(0, count);
  char start = 0;  // places are counted from here
  const at::Tensor places = at::from_blob(&start, {count}, at::TensorOptions().dtype(at::kChar));
  at::TensorIterator iterator = at::TensorIteratorConfig()
                                    .set_check_mem_overlap(false)
                                    .resize_outputs(false)
                                    .add_const_input(places)
                                    .build();
  // Of one dimension, so there is one row at a time.
  iterator.for_each(
      [&](char** data, const std::int64_t*, std::int64_t size, std::int64_t) {
        const std::int64_t begin = data[0] - &start;
        body(begin, begin + size);
      },
      grain);
}

}  // namespace torch_xla::aten
