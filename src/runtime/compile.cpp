// Asking the disk first, and the compiler again without those of our flags that it does not know.
#include "runtime/compile.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/memory_maps.h"
#include "base/metrics.h"
#include "runtime/client.h"
#include "runtime/platform_options.h"
#include "runtime/programs.h"
#include "runtime/watched_wait.h"

namespace torch_xla::runtime {
namespace {

std::unique_ptr<pjrt::Executable> compile(const std::string& text,
                                          const pjrt::CompileOptions& options, const Client& used) {
  static base::Counter& uncached = base::counter("UncachedCompile");
  static base::Metric& time = base::metric("CompileTime");
  static base::Counter& handles = base::counter("CreateCompileHandles");
  handles.add();
  uncached.add();
  const base::TimedSection timed(time);
  const WatchedWait watched([&text] {
    return base::str("XLA to compile a program of ", std::count(text.begin(), text.end(), '\n'),
                     " lines (turns of a Python loop are compiled one by one: "
                     "torch_xla.experimental.scan compiles them as one)");
  });
  return used.pjrt_client().compile(text, options);
}

// XLA leaves some twenty megabytes with the allocator for each second that it compiles, which
// programs that stay keep from shrinking by itself.
void give_back_memory_after(std::chrono::nanoseconds compile_time) {
  constexpr std::chrono::nanoseconds kWorthATrim = std::chrono::seconds(1);
  static std::atomic<std::chrono::nanoseconds::rep> since_last{0};
  const auto before = since_last.fetch_add(compile_time.count());
  if (before + compile_time.count() < kWorthATrim.count()) return;
  since_last.store(0);
  base::give_back_freed_memory();
}

base::Hash128 key_of_text(ProgramSpec spec, const std::string& text) {
  base::Hasher hasher;
  hasher.add(std::string_view(text));
  spec.program = hasher.finish();
  return key_of(spec);
}

}  // namespace

Compilation::Compilation(std::shared_ptr<Client> client, const ProgramSpec& spec, std::string text,
                         const std::string& known_as)
    : client_(std::move(client)),
      text_(std::move(text)),
      key_(key_of_text(spec, known_as.empty() ? text_ : known_as)),
      placement_(spec.placement),
      options_(custom_compile_options()) {}

// Plugins don't tell: the CPU's says 0. Measured there, of programs from one operation to a
// transformer's training step: 0.7 to 1.5 times this.
std::size_t Compilation::estimate_bytes() const {
  constexpr std::size_t kLeast = 100 << 10;
  constexpr std::size_t kPerByteOfText = 100;
  return kLeast + kPerByteOfText * text_.size();
}

Compiled Compilation::run() const {
  PersistentCache& kept = client_->programs().persistent_cache();
  while (true) {
    const pjrt::CompileOptions options = compile_options(client_->platform(), options_, placement_);
    const base::Hash128 key = kept.key_of(key_, options);
    // Holds its turn, if it has one, until the program is stored.
    Loaded loaded = kept.load(key);
    if (loaded.executable != nullptr) return {std::move(loaded.executable), false};
    try {
      const auto start = std::chrono::steady_clock::now();
      std::unique_ptr<pjrt::Executable> executable = compile(text_, options, *client_);
      const std::chrono::nanoseconds elapsed = std::chrono::steady_clock::now() - start;
      kept.store(key, *executable, elapsed);
      give_back_memory_after(elapsed);
      return {std::move(executable), true};
    } catch (const pjrt::Error& error) {
      if (!drop_rejected_defaults(client_->platform(), error.message())) throw;
    }
  }
}

}  // namespace torch_xla::runtime
