// The entry point of every C++ test program.
#include "check.h"
#include "plugins.h"

namespace torch_xla::testing {

const char* const kCpuPlugin = TORCH_XLA_CPU_PLUGIN;
const char* const kFakePlugin = TORCH_XLA_FAKE_PLUGIN;

}  // namespace torch_xla::testing

int main(int argc, char** argv) { return torch_xla::testing::run_tests(argc, argv); }
