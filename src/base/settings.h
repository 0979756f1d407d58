// The settings table. One row declares a setting; its accessor, environment variable, Python
// attribute, row in docs/settings.md and place in the compile-cache key all come from that row. To
// add a setting, add a row, then run `make docs`. Environment variables are read nowhere else.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/hash.h"

// X(type, accessor and Python attribute, environment variable, default, compile-key part, doc)
#define TORCH_XLA_SETTINGS(X)                                                                      \
  X(std::string, pjrt_device, "PJRT_DEVICE", "", kNotInKey,                                        \
    "Which kind of device to use: `CPU`, `CUDA`, `TPU`, or the name of an installed plugin. "      \
    "Empty: the first plugin that is installed, CPU last.")                                        \
  X(std::string, pjrt_library_path, "PJRT_LIBRARY_PATH", "", kNotInKey,                            \
    "Path of a PJRT plugin library to load in place of the one that `PJRT_DEVICE` names.")         \
  X(std::string, pjrt_create_options, "PJRT_CREATE_OPTIONS", "", kNotInKey,                        \
    "What the plugin is told when its client is created, besides what its package says: "          \
    "`name=value`, separated by spaces. NVIDIA's takes `preallocate=false`, "                      \
    "`memory_fraction=0.5`, `allocator=cuda_async`, `visible_devices=[0,1]` and others.")          \
  X(std::int64_t, cpu_num_devices, "CPU_NUM_DEVICES", 1, kNotInKey,                                \
    "How many devices the CPU plugin offers in one process.")                                      \
  X(std::string, xla_flags, "XLA_FLAGS", "", kInKey,                                               \
    "XLA flags (`--xla_name=value`, separated by spaces), passed with each compilation.")          \
  X(bool, no_special_scalars, "XLA_NO_SPECIAL_SCALARS", false, kNotInKey,                          \
    "Pass the scalars 0 and 1 to the program as data, like all others, instead of compiling them " \
    "in.")                                                                                         \
  X(bool, enable_param_aliasing, "XLA_ENABLE_PARAM_ALIASING", true, kInKey,                        \
    "Let a program reuse the memory of the inputs that the step replaces.")                        \
  X(bool, select_default_device, "PJRT_SELECT_DEFAULT_DEVICE", true, kNotInKey,                    \
    "Choose a device when `PJRT_DEVICE` is not set. Off: that is an error.")                       \
  X(bool, dynamic_plugins, "PJRT_DYNAMIC_PLUGINS", true, kNotInKey,                                \
    "Use plugins that are registered by `experimental.plugins` or an entry point "                 \
    "`torch_xla.plugins`. Off: only those that other packages name.")                              \
  X(bool, register_installed_plugins, "XLA_REGISTER_INSTALLED_PLUGINS", true, kNotInKey,           \
    "Look at the entry points `torch_xla.plugins`. Off: only at what the program registers.")      \
  X(std::string, tpu_library_path, "TPU_LIBRARY_PATH", "", kNotInKey,                              \
    "As `PJRT_LIBRARY_PATH`, when the device is `TPU`.")                                           \
  X(std::string, xpu_library_path, "XPU_LIBRARY_PATH", "", kNotInKey,                              \
    "As `PJRT_LIBRARY_PATH`, when the device is `XPU`.")                                           \
  X(std::string, neuron_library_path, "NEURON_LIBRARY_PATH", "", kNotInKey,                        \
    "As `PJRT_LIBRARY_PATH`, when the device is `NEURON`.")                                        \
  X(std::string, mat_mul_precision, "XLA_MAT_MUL_PRECISION", "default", kInKey,                    \
    "How exactly float32 matrix products and convolutions are computed where the hardware has "    \
    "faster ways: `default`, `high` or `highest`.")                                                \
  X(bool, use_bf16, "XLA_USE_BF16", false, kInKey,                                                 \
    "Keep float32 and float64 tensors in bfloat16 on the device. They report their own dtype, "    \
    "and "                                                                                         \
    "are converted back when they are read. Read once, at the first use of a device.")             \
  X(bool, downcast_bf16, "XLA_DOWNCAST_BF16", false, kInKey,                                       \
    "Likewise, float32 in bfloat16 and float64 in float32.")                                       \
  X(bool, use_fp16, "XLA_USE_FP16", false, kInKey, "Likewise, float32 and float64 in float16.")    \
  X(bool, downcast_fp16, "XLA_DOWNCAST_FP16", false, kInKey,                                       \
    "Likewise, float32 in float16 and float64 in float32.")                                        \
  X(bool, use_32bit_long, "XLA_USE_32BIT_LONG", false, kInKey, "Likewise, int64 in int32.")        \
  X(bool, bounded_sizes, "XLA_BOUNDED_SIZES", false, kNotInKey,                                    \
    "Compile a graph that comes with other sizes again for all sizes up to a bound, where each "   \
    "of its operators has a rule for that.")                                                       \
  X(bool, bounded_growth, "XLA_BOUNDED_GROWTH", true, kNotInKey,                                   \
    "Likewise, but only where its sizes grow by 1 or 2 at first, as those of generation do.")      \
  X(bool, host_reads, "XLA_HOST_READS", true, kNotInKey,                                           \
    "On the CPU, compute what is read of a few small integers without a program.")                 \
  X(bool, tiered_compilation, "XLA_TIERED_COMPILATION", false, kNotInKey,                          \
    "Compile a program quickly at first, and with all of the compiler's optimizations in the "     \
    "background when it has been launched some times. Not where deterministic algorithms are "     \
    "asked for, in replicas and over several devices.")                                            \
  X(bool, graph_cuts, "XLA_GRAPH_CUTS", false, kNotInKey,                                          \
    "Compute a large graph that differs in a small part from one that came before in parts, so "   \
    "that the rest is compiled once.")                                                             \
  X(bool, layer_programs, "XLA_LAYER_PROGRAMS", false, kNotInKey,                                  \
    "Compute a graph that has equal layers in a row layer by layer, so that a program for one of " \
    "them is compiled in the place of one for all.")                                               \
  X(std::string, partitioner, "XLA_PARTITIONER", "", kInKey,                                       \
    "Which of XLA's partitioners divides programs over several devices: `shardy`, or `gspmd`, "    \
    "the one before, for plugins that know no other. Empty: `gspmd` on Neuron, `shardy` "          \
    "elsewhere.")                                                                                  \
  X(bool, keep_freed_memory, "XLA_KEEP_FREED_MEMORY", true, kNotInKey,                             \
    "On the CPU, keep the memory that a program frees for the next one, until none has been "      \
    "launched for two seconds. Read once, at the first use of a device.")                          \
  X(std::int64_t, compilation_cache_size, "XLA_COMPILATION_CACHE_SIZE", 2048, kNotInKey,           \
    "How many executables are kept in memory; the least recently used one is dropped.")            \
  X(std::int64_t, compilation_cache_max_megabytes, "XLA_COMPILATION_CACHE_MAX_MB", 0, kNotInKey,   \
    "How much of the host's memory these may take, by estimate; 0: an eighth.")                    \
  X(bool, persistent_cache, "XLA_PERSISTENT_CACHE", true, kNotInKey,                               \
    "Keep the programs of processes that compile for a second or more in `torch_xla/programs` of " \
    "the user's cache directory (`$XDG_CACHE_HOME` or `~/.cache`), when no other directory is "    \
    "named.")                                                                                      \
  X(std::string, persistent_cache_path, "XLA_PERSISTENT_CACHE_PATH", "", kNotInKey,                \
    "Directory in which all compiled programs are kept, for this and other processes.")            \
  X(bool, persistent_cache_read_only, "XLA_PERSISTENT_CACHE_READ_ONLY", false, kNotInKey,          \
    "Take compiled programs from the directory, but write nothing to it.")                         \
  X(std::string, persistent_cache_owners, "XLA_PERSISTENT_CACHE_OWNERS", "", kNotInKey,            \
    "Numbers of users, separated by commas, who may own that directory and the programs in it, "   \
    "beside the user of the process and root.")                                                    \
  X(bool, persistent_cache_preload, "XLA_PERSISTENT_CACHE_PRELOAD", true, kNotInKey,               \
    "Load what the last run of the same script took from that directory in the background, from "  \
    "the first use of a device on.")                                                               \
  X(std::int64_t, persistent_cache_max_megabytes, "XLA_PERSISTENT_CACHE_MAX_MB", 4096, kNotInKey,  \
    "Size of that directory beyond which the least recently used programs are removed; 0: none.")  \
  X(std::int64_t, max_inflight_launches, "XLA_MAX_INFLIGHT_LAUNCHES", 128, kNotInKey,              \
    "How many launched programs may be unfinished per device before a barrier waits; of programs " \
    "longer than 12 ms no more than 8.")                                                           \
  X(std::int64_t, metrics_samples, "XLA_METRICS_SAMPLES", 1024, kNotInKey,                         \
    "How many of the last samples a metric keeps for its rate and percentiles.")                   \
  X(std::string, metrics_percentiles, "XLA_METRICS_PERCENTILES",                                   \
    "0.01:0.05:0.1:0.2:0.5:0.8:0.9:0.95:0.99", kNotInKey,                                          \
    "The percentiles that the metrics report prints, as fractions separated by colons.")           \
  X(bool, pt_xla_debug, "PT_XLA_DEBUG", false, kNotInKey,                                          \
    "Explain compilations, executions and fallbacks as they happen.")                              \
  X(std::int64_t, pt_xla_debug_level, "PT_XLA_DEBUG_LEVEL", 0, kNotInKey,                          \
    "1: explain compilations; 2: explain executions too.")                                         \
  X(std::string, pt_xla_debug_file, "PT_XLA_DEBUG_FILE", "", kNotInKey,                            \
    "File that receives the explanations instead of the standard error stream.")                   \
  X(std::int64_t, pt_xla_debug_max_frame, "PT_XLA_DEBUG_MAX_FRAME", 8, kNotInKey,                  \
    "How many lines of the Python stack an explanation shows.")                                    \
  X(bool, ir_debug, "XLA_IR_DEBUG", false, kNotInKey,                                              \
    "Note for every operation the user's line that recorded it, for graphs that are printed.")     \
  X(bool, hlo_debug, "XLA_HLO_DEBUG", false, kNotInKey,                                            \
    "Note the lines too, and put them into the compiled program's metadata.")                      \
  X(std::string, transfer_guard, "XLA_TRANSFER_GUARD", "allow", kNotInKey,                         \
    "What to do when the host reads a tensor: `allow`, `log` (with the user's line), `forbid` "    \
    "(an error).")                                                                                 \
  X(std::int64_t, collective_timeout, "XLA_COLLECTIVE_TIMEOUT", 600, kNotInKey,                    \
    "How many seconds a replica waits for the others before that is an error.")                    \
  X(std::int64_t, compile_wait, "XLA_COMPILE_WAIT", 300, kNotInKey,                                \
    "How many seconds a replica waits for another one of its host that compiles the same "         \
    "program before it compiles that itself; 0: each compiles for itself.")                        \
  X(std::int64_t, graph_size_warning, "XLA_GRAPH_SIZE_WARNING", 100000, kNotInKey,                 \
    "Warn once when that many operations were recorded on a device without a barrier; 0: never.")  \
  X(std::int64_t, wait_warning, "XLA_WAIT_WARNING", 60, kNotInKey,                                 \
    "Warn when a thread has waited for the device or the compiler for that many seconds, and say " \
    "for what; 0: never.")                                                                         \
  X(std::string, metrics_file, "XLA_METRICS_FILE", "", kNotInKey,                                  \
    "File to which the metrics report is appended at every barrier, or `STDERR` or `STDOUT`.")     \
  X(std::string, save_tensors_file, "XLA_SAVE_TENSORS_FILE", "", kNotInKey,                        \
    "File to which the graph of every barrier and read is appended.")                              \
  X(std::string, save_tensors_fmt, "XLA_SAVE_TENSORS_FMT", "text", kNotInKey,                      \
    "Format of those graphs: `text`, `hlo`, `stablehlo` or `dot`.")                                \
  X(bool, dump_post_optimizations, "XLA_DUMP_POST_OPTIMIZATIONS", false, kNotInKey,                \
    "The format `hlo` shows what the compiler made of the program, not what it was given.")        \
  X(std::string, save_hlo_file, "XLA_SAVE_HLO_FILE", "", kNotInKey,                                \
    "File to which the StableHLO of a program that can't be compiled is appended.")                \
  X(bool, dump_hlo_graph, "XLA_DUMP_HLO_GRAPH", false, kNotInKey,                                  \
    "Put the graph of a program that can't be compiled into the error message.")                   \
  X(bool, dump_fatal_stack, "XLA_DUMP_FATAL_STACK", false, kNotInKey,                              \
    "Put the Python stack there too.")                                                             \
  X(bool, use_eager_debug_mode, "XLA_USE_EAGER_DEBUG_MODE", false, kNotInKey,                      \
    "Run every operation as a program of its own, as soon as it is recorded.")                     \
  X(std::string, experimental, "XLA_EXPERIMENTAL", "", kNotInKey,                                  \
    "Names separated by colons. `nonzero`, `masked_select` and other operators whose result has "  \
    "as many elements as its input's values say: the program knows, so do not warn. "              \
    "`early_sync`: "                                                                               \
    "where one of them is read, run all that was recorded.")                                       \
  X(std::int64_t, ir_shape_cache_size, "XLA_IR_SHAPE_CACHE_SIZE", 12288, kNotInKey,                \
    "Warn once when types of results were inferred for more calls than that: sizes that change "   \
    "all the time fill the memory of the host. 0: never.")                                         \
  X(std::string, libtpu_init_args, "LIBTPU_INIT_ARGS", "", kInKey,                                 \
    "Flags that the TPU plugin reads by itself.")                                                  \
  X(std::int64_t, tpu_num_devices, "TPU_NUM_DEVICES", 0, kNotInKey,                                \
    "How many TPU devices this host has; 0: as many as are found.")

namespace torch_xla::base {

enum class CompileKeyPart : bool { kNotInKey, kInKey };

// The least that an integer may be: none means anything below zero, and of some there must be one.
constexpr std::int64_t least_of(std::string_view name) {
  for (const std::string_view needed :
       {"cpu_num_devices", "compilation_cache_size", "max_inflight_launches", "metrics_samples"}) {
    if (name == needed) return 1;
  }
  return 0;
}

// The most: PyTorch counts the devices of one kind with eight bits, a sign among them.
constexpr std::int64_t most_of(std::string_view name) {
  return name == "cpu_num_devices" ? 127 : std::numeric_limits<std::int64_t>::max();
}

// What a row says. The views point to static storage.
struct SettingInfo {
  std::string_view name;
  std::string_view environment_variable;
  std::string_view type_name;  // "bool", "int" or "str"
  std::string_view documentation;
  CompileKeyPart key_part;
};

// The part of a setting that does not depend on its type. Thread-safe.
class SettingBase {
 public:
  explicit SettingBase(const SettingInfo& info) : info_(info) {}
  virtual ~SettingBase() = default;
  SettingBase(const SettingBase&) = delete;
  SettingBase& operator=(const SettingBase&) = delete;

  const SettingInfo& info() const { return info_; }
  // The value as its environment variable would spell it.
  virtual std::string text() const = 0;
  virtual std::string default_text() const = 0;
  // Throws an Error of kind kValue, and leaves the value alone, when the text does not parse.
  virtual void set_text(std::string_view text) = 0;
  // Forgets the value: the next use reads the environment again.
  void reload() {
    is_loaded_.store(false, std::memory_order_release);
    note_change();
  }
  // How often a setting, of any kind, was given another value or made to forget its own.
  static std::uint64_t num_changes();

 protected:
  // Called after the change.
  static void note_change();

  SettingInfo info_;
  mutable std::atomic<bool> is_loaded_{false};
  mutable std::mutex load_mutex_;
};

// A string that several threads may read and replace.
class SharedString {
 public:
  std::string load() const {
    const std::lock_guard lock(mutex_);
    return value_;
  }
  void store(std::string value) {
    const std::lock_guard lock(mutex_);
    value_ = std::move(value);
  }

 private:
  mutable std::mutex mutex_;
  std::string value_;
};

// One setting of type bool, int64_t or std::string. The first use reads the environment variable; a
// text that does not parse is reported once on stderr and the default holds. Reading a bool or an
// integer costs two plain loads.
template <typename T>
class Setting final : public SettingBase {
 public:
  Setting(const SettingInfo& info, T default_value)
      : SettingBase(info), default_value_(std::move(default_value)) {}

  T operator()() const {
    if (!is_loaded_.load(std::memory_order_acquire)) [[unlikely]]
      load_from_environment();
    return value_.load();
  }
  void set(T value) {
    const std::lock_guard lock(load_mutex_);
    value_.store(std::move(value));
    is_loaded_.store(true, std::memory_order_release);
    note_change();
  }

  std::string text() const override;
  std::string default_text() const override;
  void set_text(std::string_view text) override;

 private:
  using Storage = std::conditional_t<std::is_same_v<T, std::string>, SharedString, std::atomic<T>>;

  void load_from_environment() const;

  const T default_value_;
  mutable Storage value_;
};

extern template class Setting<bool>;
extern template class Setting<std::int64_t>;
extern template class Setting<std::string>;

// All settings. `settings().xla_flags()` reads one, `settings().xla_flags.set(...)` sets one.
class Settings {
 public:
  Settings() = default;

  // In the order of the table.
  std::vector<SettingBase*> all();
  // By Python attribute or environment variable; null when there is none.
  SettingBase* find(std::string_view name);
  // Forgets all values, so that tests can change the environment.
  void reload();
  // Adds the names and values of the settings that decide what a compilation produces.
  void add_compile_key(Hasher& hasher);

#define TORCH_XLA_DECLARE_SETTING(type, name, variable, default_value, part, doc)                \
  Setting<type> name{SettingInfo{#name, variable, type_name<type>(), doc, CompileKeyPart::part}, \
                     default_value};
  TORCH_XLA_SETTINGS(TORCH_XLA_DECLARE_SETTING)
#undef TORCH_XLA_DECLARE_SETTING

 private:
  template <typename T>
  static constexpr std::string_view type_name() {
    if constexpr (std::is_same_v<T, bool>) return "bool";
    if constexpr (std::is_same_v<T, std::int64_t>) return "int";
    return "str";
  }
};

// The process's settings, made on first use and never destroyed.
Settings& settings();

// Where the user's programs keep what can be made again: `$XDG_CACHE_HOME`, or `~/.cache`. Empty
// when neither is known.
std::string user_cache_directory();

// docs/settings.md, whole.
std::string settings_page();

}  // namespace torch_xla::base
