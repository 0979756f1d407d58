// Has XLA dump what it reads into a folder of its own.
#include "runtime/hlo_text.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "base/error.h"
#include "pjrt/client.h"
#include "runtime/client.h"
#include "runtime/platform_options.h"

namespace torch_xla::runtime {
namespace {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "torch_xla_XXXXXX").string();
    const char* const made = ::mkdtemp(pattern.data());
    base::check(made != nullptr, "can't make a folder in ", pattern);
    path_ = made;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace

std::string hlo_text(const std::string& stablehlo, bool is_optimized) {
  const TemporaryFolder folder;
  pjrt::CompileOptions options = compile_options(platform());
  options.env_option_overrides["xla_dump_to"] = folder.path().string();
  options.env_option_overrides["xla_dump_hlo_as_text"] = true;
  client().pjrt_client().compile(stablehlo, options);
  const std::string_view wanted =
      is_optimized ? "after_optimizations.txt" : "before_optimizations.txt";
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (!entry.path().filename().string().ends_with(wanted)) continue;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    return text.str();
  }
  base::fail(base::ErrorKind::kUnimplemented, "the plugin for '", platform(),
             "' does not write its programs as HLO text");
}

}  // namespace torch_xla::runtime
