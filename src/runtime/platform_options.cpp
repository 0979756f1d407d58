// The options of each platform, and the user's.
#include "runtime/platform_options.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/settings.h"

namespace torch_xla::runtime {
namespace {

using Options = std::map<std::string, pjrt::OptionOverride>;

// What XLA does best with. Each with the reason, since its defaults change.
Options defaults_of(std::string_view platform) {
  if (platform != "cpu") return {};
  return {
      // A transformer's training step takes three quarters of the time: YNNPACK packs weights and
      // fuses what follows a product, which XLA's own calls into Eigen do not.
      {"xla_cpu_experimental_ynn_fusion_type",
       std::string("LIBRARY_FUSION_TYPE_DOT,LIBRARY_FUSION_TYPE_REDUCE")},
      // Else a NaN that is the second operand of a maximum or minimum is lost.
      {"xla_cpu_enable_fast_min_max", false},
      // The first moves a reshape past a product of gathers out of constants, and then multiplies
      // the wrong elements. The second computes what is made of constants, by an evaluator of 50 us
      // for an element of a window: a cumsum of a million ones compiled for a minute.
      {"xla_disable_hlo_passes", std::string("reshape-mover,constant_folding")},
  };
}

// What is added for a program that is to compile soon. On the CPU XLA without its fusion emitters
// compiles small programs faster still, but an optimizer's eight times as long
// (benchmarks/README.md).
Options quick_options() { return {{"xla_backend_optimization_level", std::int64_t{0}}}; }

// What is added for a program of several replicas.
Options replica_options(std::string_view platform) {
  if (platform != "cuda" && platform != "rocm") return {};
  // One communicator is split off another by all members of that one, in whose programs it may not
  // be: they differ from replica to replica.
  return {{"xla_gpu_enable_nccl_comm_splitting", false}};
}

// Flags that are lists: what the user adds leaves what is there.
constexpr std::string_view kLists[] = {"xla_disable_hlo_passes"};

void add_option(Options& options, const std::string& name, const pjrt::OptionOverride& value) {
  const bool is_list = std::find(std::begin(kLists), std::end(kLists), name) != std::end(kLists);
  const auto* added = std::get_if<std::string>(&value);
  const auto found = options.find(name);
  if (is_list && added != nullptr && found != options.end()) {
    const auto* present = std::get_if<std::string>(&found->second);
    if (present != nullptr && !present->empty() && !added->empty()) {
      found->second = base::str(*present, ",", *added);
      return;
    }
  }
  options.insert_or_assign(name, value);
}

// Of a platform, what is not rejected.
struct Defaults {
  Options always;
  Options quick;
  Options of_replicas;
};

struct State {
  std::mutex mutex;
  Options custom;                            // under mutex
  std::map<std::string, Defaults> defaults;  // by platform; under mutex
  // Of `custom`, counted after the change; from 1, so that no key is kept at first.
  std::atomic<std::uint64_t> num_changes{1};
};

thread_local std::optional<Options> thread_options;

// The key that this thread asked for last: each launch asks, and nothing has changed.
struct KeptKey {
  std::uint64_t num_changes = 0;
  std::string platform;
  base::Hash128 key;
};
thread_local KeptKey kept_key;

State& state() {
  static auto* const instance = new State();
  return *instance;
}

// Under the mutex.
Defaults& platform_defaults(std::string_view platform) {
  const auto [found, is_new] = state().defaults.try_emplace(std::string(platform));
  if (is_new) {
    found->second = {defaults_of(platform), quick_options(), replica_options(platform)};
  }
  return found->second;
}

// XLA parses numbers and names out of strings, but booleans only as Python spells them.
pjrt::OptionOverride with_booleans(pjrt::OptionOverride value) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return value;
  if (*text == "true" || *text == "True") return true;
  if (*text == "false" || *text == "False") return false;
  return value;
}

void add_options(base::Hasher& hasher, const Options& options) {
  hasher.add(options.size());
  for (const auto& [name, value] : options) {
    hasher.add(std::string_view(name));
    hasher.add(value.index());
    std::visit([&](const auto& v) { hasher.add(std::string_view(base::str(v))); }, value);
  }
}

}  // namespace

void set_custom_compile_options(Options options) {
  const std::lock_guard lock(state().mutex);
  state().custom = std::move(options);
  state().num_changes.fetch_add(1, std::memory_order_release);
}

Options custom_compile_options() {
  Options options = thread_options.value_or(Options());
  const std::lock_guard lock(state().mutex);
  options.insert(state().custom.begin(), state().custom.end());
  return options;
}

std::optional<Options> set_thread_compile_options(std::optional<Options> options) {
  kept_key = {};
  return std::exchange(thread_options, std::move(options));
}

Options parse_xla_flags(std::string_view text) {
  Options flags;
  while (true) {
    const std::size_t start = text.find_first_not_of(" \t\n");
    if (start == text.npos) return flags;
    text.remove_prefix(start);
    std::string_view flag = text.substr(0, text.find_first_of(" \t\n"));
    text.remove_prefix(flag.size());
    base::check(flag.starts_with("--"), "XLA_FLAGS: a flag must look like --xla_name=value, got '",
                flag, "'");
    flag.remove_prefix(2);
    const std::size_t equals = flag.find('=');
    if (equals == flag.npos) {
      flags.insert_or_assign(std::string(flag), true);
    } else {
      flags.insert_or_assign(std::string(flag.substr(0, equals)),
                             std::string(flag.substr(equals + 1)));
    }
  }
}

pjrt::CompileOptions compile_options(std::string_view platform, const Options& custom,
                                     const Placement& placement, bool is_quick) {
  pjrt::CompileOptions options;
  options.portable = placement.is_portable();
  options.num_replicas = placement.num_replicas();
  options.num_partitions = placement.num_partitions;
  options.device_assignment = placement.device_assignment;
  options.use_spmd_partitioning = placement.num_partitions > 1;
  options.use_shardy_partitioner =
      placement.num_partitions > 1 && partitioner(platform) == hlo::Partitioner::kShardy;
  {
    const std::lock_guard lock(state().mutex);
    const Defaults& defaults = platform_defaults(platform);
    options.env_option_overrides = defaults.always;
    const auto add = [&](const Options& added) {
      for (const auto& [name, value] : added) {
        add_option(options.env_option_overrides, name, value);
      }
    };
    if (is_quick) add(defaults.quick);
    if (options.num_replicas > 1) add(defaults.of_replicas);
  }
  for (auto& [name, value] : parse_xla_flags(base::settings().xla_flags())) {
    add_option(options.env_option_overrides, name, with_booleans(value));
  }
  for (const auto& [name, value] : custom) {
    add_option(options.env_option_overrides, name, with_booleans(value));
  }
  return options;
}

bool drop_rejected_defaults(std::string_view platform, std::string_view error) {
  const std::lock_guard lock(state().mutex);
  const auto is_rejected = [&](const auto& option) {
    return error.find(option.first) != error.npos;
  };
  Defaults& defaults = platform_defaults(platform);
  std::size_t count = 0;
  for (Options* const all : {&defaults.always, &defaults.quick, &defaults.of_replicas}) {
    count += std::erase_if(*all, is_rejected);
  }
  return count > 0;
}

base::Hash128 compile_options_key(std::string_view platform) {
  const std::uint64_t num_changes =
      base::SettingBase::num_changes() + state().num_changes.load(std::memory_order_acquire);
  if (kept_key.num_changes == num_changes && kept_key.platform == platform) return kept_key.key;
  base::Hasher hasher;
  hasher.add(platform);
  base::settings().add_compile_key(hasher);
  add_options(hasher, custom_compile_options());
  kept_key = {num_changes, std::string(platform), hasher.finish()};
  return kept_key.key;
}

hlo::Precision mat_mul_precision() {
  const std::string name = base::settings().mat_mul_precision();
  if (name == "high") return hlo::Precision::kHigh;
  if (name == "highest") return hlo::Precision::kHighest;
  base::check(name == "default", "XLA_MAT_MUL_PRECISION must be default, high or highest, got '",
              name, "'");
  return hlo::Precision::kDefault;
}

hlo::Partitioner partitioner(std::string_view platform) {
  const std::string name = base::settings().partitioner();
  if (name == "shardy") return hlo::Partitioner::kShardy;
  if (name == "gspmd") return hlo::Partitioner::kGspmd;
  base::check(name.empty(), "XLA_PARTITIONER must be shardy, gspmd or empty, got '", name, "'");
  // AWS's compiler divides programs in GSPMD's words.
  return platform == "neuron" ? hlo::Partitioner::kGspmd : hlo::Partitioner::kShardy;
}

}  // namespace torch_xla::runtime
