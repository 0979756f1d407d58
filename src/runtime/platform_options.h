// The XLA options that programs are compiled with, per platform: the one place that says with which
// flags XLA does best. The user's own come after them: XLA_FLAGS, then
// `set_custom_compile_options`. They replace what is there, but for lists, which they lengthen, or
// clear if they are empty.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "hlo/builder.h"
#include "hlo/partitioned.h"
#include "pjrt/compile_options.h"
#include "runtime/program_spec.h"

namespace torch_xla::runtime {

// XLA's flags by name, without dashes; they hold for later compilations and are part of their key.
void set_custom_compile_options(std::map<std::string, pjrt::OptionOverride> options);
std::map<std::string, pjrt::OptionOverride> custom_compile_options();

// Options that hold in this thread, before those above; none: no such options. Returns what held.
std::optional<std::map<std::string, pjrt::OptionOverride>> set_thread_compile_options(
    std::optional<std::map<std::string, pjrt::OptionOverride>> options);

// For a program that is placed like this; `is_quick`: which compiles soon rather than runs fast.
// `custom` are the user's, as `custom_compile_options` gave them to the thread that needs the
// program.
pjrt::CompileOptions compile_options(std::string_view platform,
                                     const std::map<std::string, pjrt::OptionOverride>& custom,
                                     const Placement& placement = {}, bool is_quick = false);
inline pjrt::CompileOptions compile_options(std::string_view platform) {
  return compile_options(platform, custom_compile_options());
}
// Drops the flags of ours that `error` complains about, for the life of the process: another
// version of a plugin need not know them. False if there are none.
bool drop_rejected_defaults(std::string_view platform, std::string_view error);
// Of everything above, for the key of an executable.
base::Hash128 compile_options_key(std::string_view platform);

// Which one divides programs over several devices.
hlo::Partitioner partitioner(std::string_view platform);

// Of products of matrices and of convolutions, as the user set it; it stands in the program's text.
hlo::Precision mat_mul_precision();

// The flags in XLA_FLAGS: "--xla_a=b --xla_c".
std::map<std::string, pjrt::OptionOverride> parse_xla_flags(std::string_view text);

}  // namespace torch_xla::runtime
