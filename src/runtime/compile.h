// From the text of a program to its executable: out of the persistent cache, or compiled and put
// there.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "pjrt/compile_options.h"
#include "pjrt/executable.h"
#include "runtime/program_spec.h"
#include "runtime/tiers.h"

namespace torch_xla::runtime {

class Client;

struct Compiled {
  std::unique_ptr<pjrt::Executable> executable;
  bool was_compiled = false;  // by XLA; else it came from the disk
  bool is_quick = false;      // may be had faster, by more compilation
};

// All that a compilation needs of the thread that asks for it: it may then run on another one, and
// outlast a shutdown, with the plugin's client.
class Compilation {
 public:
  // The persistent cache knows the program by `known_as`: the text without what changes nothing in
  // the results. Empty stands for the text.
  Compilation(std::shared_ptr<Client> client, const ProgramSpec& spec, std::string text,
              const std::string& known_as = {});

  // Blocks while compiling. A fast program that is on the disk is taken in every tier. Throws
  // pjrt::Error if the plugin rejects the program.
  Compiled run(Tier tier = Tier::kOnly) const;

  // What the program takes of the host's memory, roughly.
  std::size_t estimate_bytes() const;

  const Client& client() const { return *client_; }

 private:
  pjrt::CompileOptions options(bool is_quick) const;

  std::shared_ptr<Client> client_;
  std::string text_;
  base::Hash128 key_;  // of the spec, with the text in the place of the graph
  Placement placement_;
  std::map<std::string, pjrt::OptionOverride> options_;  // the user's
};

}  // namespace torch_xla::runtime
