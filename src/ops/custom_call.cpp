// Calls of functions that the compiler or the plugin knows by name, and the marks around operations
// that belong together under a name of their own. Operators of namespace `xla`, not of ATen.
#include <charconv>

#include "base/dtype.h"
#include "ops/composite.h"
#include "ops/registry.h"

namespace torch_xla::ops {
namespace {

DType dtype_named(std::string_view name) {
  for (int i = 0; i < base::kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (base::dtype_info(dtype).short_name == name) return dtype;
  }
  base::fail(base::ErrorKind::kValue, "custom_call: there is no dtype '", name, "'");
}

// "f32[2,3]"
Shape parse_type(std::string_view text) {
  const std::size_t open = text.find('[');
  base::check(open != text.npos && text.ends_with(']'),
              "custom_call: a result must look like f32[2,3], got '", text, "'");
  Shape shape{dtype_named(text.substr(0, open)), {}};
  std::string_view dims = text.substr(open + 1, text.size() - open - 2);
  while (!dims.empty()) {
    std::int64_t dim = -1;
    const char* const end = std::from_chars(dims.data(), dims.data() + dims.size(), dim).ptr;
    base::check(dim >= 0, "custom_call: a size must not be negative, got '", text, "'");
    shape.dims.push_back(dim);
    dims.remove_prefix(static_cast<std::size_t>(end - dims.data()));
    if (dims.starts_with(',')) dims.remove_prefix(1);
  }
  return shape;
}

// "f32[2,3];s32[]"
std::vector<Shape> parse_types(std::string_view text) {
  std::vector<Shape> types;
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find(';'));
    types.push_back(parse_type(one));
    text.remove_prefix(std::min(text.size(), one.size() + 1));
  }
  return types;
}

std::vector<Value> custom_call(Context& context, const std::vector<Value>& args,
                               const std::string& call_target_name, const std::string& results,
                               bool has_side_effect, const std::string& backend_config,
                               std::int64_t api_version, std::string_view frontend_attributes) {
  hlo::CustomCall call;
  call.call_target_name = call_target_name;
  call.results = parse_types(results);
  call.has_side_effect = has_side_effect;
  call.api_version = static_cast<int>(api_version);
  base::check(api_version != 4 || backend_config.empty(),
              "custom_call: api_version 4 takes no backend_config as text");
  call.backend_config_text = backend_config;
  call.frontend_attributes = parse_attributes(frontend_attributes);
  return hlo::custom_call(context.builder, args, call);
}

}  // namespace

void register_custom_call(Registry& m) {
  m.impl("xla:_custom_call",
         [](Context& context, std::vector<Value> args, std::string call_target_name,
            std::string results, bool has_side_effect, std::string backend_config,
            std::int64_t api_version, std::string frontend_attributes) {
           return custom_call(context, args, call_target_name, results, has_side_effect,
                              backend_config, api_version, frontend_attributes);
         });
  m.impl("xla:_call_module", [](Context& context, std::vector<Value> args, std::string module_text,
                                std::string results) {
    return hlo::call_module(context.builder, args, module_text, parse_types(results));
  });
  // See composite.h.
  m.impl("xla:_mark_tensor",
         [](Value x, std::string, std::int64_t, std::string, bool, std::string) { return x; });
}

}  // namespace torch_xla::ops
