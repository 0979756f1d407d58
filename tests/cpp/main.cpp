// The entry point of every C++ test program.
#include "check.h"

int main(int argc, char** argv) { return torch_xla::testing::run_tests(argc, argv); }
