// Writes docs/settings.md from the settings table: to stdout, or with `--check FILE` compares the
// file with it and fails when it is out of date.
#include <fstream>
#include <iostream>
#include <sstream>
#include <string_view>

#include "base/settings.h"

int main(int argc, char** argv) {
  const std::string page = torch_xla::base::settings_page();
  if (argc != 3 || std::string_view(argv[1]) != "--check") {
    std::cout << page;
    return 0;
  }
  std::ostringstream file;
  file << std::ifstream(argv[2]).rdbuf();
  if (file.str() == page) return 0;
  std::cerr << argv[2] << " is out of date: run `make docs`\n";
  return 1;
}
