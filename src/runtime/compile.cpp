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

// While someone waits for it.
std::unique_ptr<pjrt::Executable> compile(const std::string& text,
                                          const pjrt::CompileOptions& options, const Client& used,
                                          bool is_quick) {
  static base::Counter& uncached = base::counter("UncachedCompile");
  static base::Counter& quick = base::counter("QuickCompile");
  static base::Metric& time = base::metric("CompileTime");
  static base::Counter& handles = base::counter("CreateCompileHandles");
  handles.add();
  uncached.add();
  if (is_quick) quick.add();
  const base::TimedSection timed(time);
  const WatchedWait watched([&text] {
    return base::str("XLA to compile a program of ", std::count(text.begin(), text.end(), '\n'),
                     " lines (turns of a Python loop are compiled one by one: "
                     "torch_xla.experimental.scan compiles them as one)");
  });
  return used.pjrt_client().compile(text, options);
}

std::unique_ptr<pjrt::Executable> compile_in_background(const std::string& text,
                                                        const pjrt::CompileOptions& options,
                                                        const Client& used) {
  static base::Counter& full = base::counter("FullCompile");
  static base::Metric& time = base::metric("FullCompileTime");
  full.add();
  const base::TimedSection timed(time);
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
  spec.may_be_quick = false;  // what of the compiler's options follows from it, the options say
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

pjrt::CompileOptions Compilation::options(bool is_quick) const {
  return compile_options(client_->platform(), options_, placement_, is_quick);
}

Compiled Compilation::run(Tier tier) const {
  PersistentCache& kept = client_->programs().persistent_cache();
  while (true) {
    const pjrt::CompileOptions full = options(false);
    const pjrt::CompileOptions used = options(tier == Tier::kFirst);
    // Not where the user has set the same flags, or the plugin knows none of them.
    const bool is_quick = used.env_option_overrides != full.env_option_overrides;
    if (is_quick) {
      Loaded better = kept.load(kept.key_of(key_, full));
      if (better.executable != nullptr) return {.executable = std::move(better.executable)};
    }
    const base::Hash128 key = kept.key_of(key_, used);
    // Holds its turn, if it has one, until the program is stored.
    Loaded loaded = kept.load(key);
    if (loaded.executable != nullptr) return {std::move(loaded.executable), false, is_quick};
    try {
      const auto start = std::chrono::steady_clock::now();
      std::unique_ptr<pjrt::Executable> executable =
          tier == Tier::kSecond ? compile_in_background(text_, used, *client_)
                                : compile(text_, used, *client_, is_quick);
      const std::chrono::nanoseconds elapsed = std::chrono::steady_clock::now() - start;
      kept.store(key, *executable, elapsed);
      give_back_memory_after(elapsed);
      return {std::move(executable), true, is_quick};
    } catch (const pjrt::Error& error) {
      if (!drop_rejected_defaults(client_->platform(), error.message())) throw;
    }
  }
}

}  // namespace torch_xla::runtime
