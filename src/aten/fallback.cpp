// Operators without a lowering run on the CPU: right, counted as `aten::<op>`, and warned about
// once each, at the user's line.
#include "aten/fallback.h"

#include <ATen/native/CPUFallback.h>

#include <mutex>
#include <set>

#include "aten/operator_rules.h"
#include "aten/unsupported.h"
#include "aten/warning.h"
#include "base/metrics.h"
#include "base/user_code.h"
#include "runtime/observe.h"

namespace torch_xla::aten {
bool is_first_use(const std::string& name) {
  static auto* const mutex = new std::mutex();
  static auto* const seen = new std::set<std::string>();
  const std::lock_guard lock(*mutex);
  return seen->insert(name).second;
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string name = c10::toString(op.operator_name());
  check_kinds(op, *stack);
  base::counter(name).add();
  const bool is_first = is_first_use(name);
  if (is_first && runtime::debug_level() > 0) {
    const std::string line = base::user_line();
    runtime::write_explanation(name + " is not lowered: it runs on the CPU" +
                               (line.empty() ? "" : ", first at " + line) + "\n");
  }
  if (is_first) {
    warn(c10::str(name,
                  " has no lowering and runs on the CPU: its inputs are computed, copied to the "
                  "host and back, here and every time it is called."));
  }
  if (const ArgumentCheck check = check_of_values(name)) {
    check(torch::jit::last(*stack, op.schema().arguments().size()));
  }
  at::native::cpu_fallback(op, stack);
}

}  // namespace torch_xla::aten
