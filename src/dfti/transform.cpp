// Names and values are those of MKL's reference for developers, section "Fourier Transform
// Functions"; MKL's header is not needed to build.
#include "dfti/transform.h"

#include <memory>

#include "base/error.h"

using Descriptor = struct DFTI_DESCRIPTOR;

// Weak: of a PyTorch without MKL they are null. An MKL_LONG is a long on the processors that have
// it.
extern "C" {
[[gnu::weak]] long DftiCreateDescriptor_s_md(Descriptor**, int, long, const long*);
[[gnu::weak]] long DftiCreateDescriptor_d_md(Descriptor**, int, long, const long*);
[[gnu::weak]] long DftiCreateDescriptor_s_1d(Descriptor**, int, long);
[[gnu::weak]] long DftiCreateDescriptor_d_1d(Descriptor**, int, long);
[[gnu::weak]] long DftiSetValue(Descriptor*, int, ...);
[[gnu::weak]] long DftiCommitDescriptor(Descriptor*);
[[gnu::weak]] long DftiComputeForward(Descriptor*, void*, ...);
[[gnu::weak]] long DftiComputeBackward(Descriptor*, void*, ...);
[[gnu::weak]] long DftiFreeDescriptor(Descriptor**);
[[gnu::weak]] char* DftiErrorMessage(long);
}

namespace torch_xla::dfti {
namespace {

enum Parameter : int {
  DFTI_FORWARD_SCALE = 4,
  DFTI_BACKWARD_SCALE = 5,
  DFTI_NUMBER_OF_TRANSFORMS = 7,
  DFTI_CONJUGATE_EVEN_STORAGE = 10,
  DFTI_PLACEMENT = 11,
  DFTI_INPUT_DISTANCE = 14,
  DFTI_OUTPUT_DISTANCE = 15,
};
enum Setting : int {
  DFTI_COMPLEX = 32,
  DFTI_REAL = 33,
  DFTI_COMPLEX_COMPLEX = 39,
  DFTI_NOT_INPLACE = 44,
};

void expect_success(long status) {
  base::internal_check(status == 0, "DFTI: ", status == 0 ? "" : DftiErrorMessage(status));
}

struct Free {
  void operator()(Descriptor* descriptor) const { DftiFreeDescriptor(&descriptor); }
};
using Owned = std::unique_ptr<Descriptor, Free>;

Owned create(const Transforms& transforms) {
  const int domain = transforms.is_of_reals ? DFTI_REAL : DFTI_COMPLEX;
  const std::vector<long> sizes(transforms.sizes.begin(), transforms.sizes.end());
  Descriptor* descriptor = nullptr;
  if (sizes.size() == 1) {
    const auto create_1d =
        transforms.is_double ? DftiCreateDescriptor_d_1d : DftiCreateDescriptor_s_1d;
    expect_success(create_1d(&descriptor, domain, sizes[0]));
  } else {
    const auto create_md =
        transforms.is_double ? DftiCreateDescriptor_d_md : DftiCreateDescriptor_s_md;
    expect_success(create_md(&descriptor, domain, static_cast<long>(sizes.size()), sizes.data()));
  }
  return Owned(descriptor);
}

}  // namespace

bool is_available() { return DftiCommitDescriptor != nullptr; }

void run(const Transforms& transforms, const void* from, void* to) {
  const Owned owned = create(transforms);
  Descriptor* const descriptor = owned.get();
  const auto set = [&](Parameter parameter, auto value) {
    expect_success(DftiSetValue(descriptor, parameter, value));
  };
  long size = 1;
  for (const std::int64_t dim : transforms.sizes) size *= dim;
  set(DFTI_PLACEMENT, static_cast<int>(DFTI_NOT_INPLACE));
  set(DFTI_NUMBER_OF_TRANSFORMS, static_cast<long>(transforms.count));
  set(DFTI_INPUT_DISTANCE, size);
  set(DFTI_OUTPUT_DISTANCE, static_cast<long>(transforms.distance));
  set(transforms.is_forward ? DFTI_FORWARD_SCALE : DFTI_BACKWARD_SCALE, transforms.scale);
  if (transforms.is_of_reals) {
    set(DFTI_CONJUGATE_EVEN_STORAGE, static_cast<int>(DFTI_COMPLEX_COMPLEX));
  }
  expect_success(DftiCommitDescriptor(descriptor));
  const auto compute = transforms.is_forward ? DftiComputeForward : DftiComputeBackward;
  expect_success(compute(descriptor, const_cast<void*>(from), to));
}

}  // namespace torch_xla::dfti
