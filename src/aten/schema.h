// An operator's schema as recording needs it: what each argument is, and which of them it writes or
// gives back. operator.cpp reads it from the dispatcher.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace torch_xla::aten {

enum class ArgKind : std::uint8_t {
  kTensor,
  kScalar,
  kInt,
  kFloat,
  kBool,
  kString,
  kDType,
  kGenerator,
  kIgnored,  // layout, device, pin_memory, memory_format, non_blocking: no part of the program
  kUnsupported,
};

struct ArgSchema {
  std::string name;
  ArgKind kind = ArgKind::kTensor;
  bool is_optional = false;  // `T?`
  bool is_list = false;      // `T[]`, `T?[]`
  bool is_written = false;   // `Tensor(a!)`
  bool is_aliased = false;   // `Tensor(a)` or `Tensor(a!)`
  bool is_out = false;       // an argument of an `out=` overload that receives a result
  std::string alias_set;     // "a" of `Tensor(a!)`, empty without annotation
};

struct ReturnSchema {
  bool is_tensor = true;
  bool is_list = false;
  bool is_written = false;
  std::string alias_set;
};

// How an operator's calls are recorded; derived from the schema's alias annotations.
enum class OpKind : std::uint8_t {
  kFunctional,  // fresh outputs
  kInPlace,     // writes to some of its arguments: `add_`, `_foreach_add_`
  kOut,         // writes to `out=` arguments
  kView,        // returns an alias of its first argument
};

struct Schema {
  std::string name;  // without the namespace `aten::`, with the overload: "add.Tensor"
  std::vector<ArgSchema> args;
  std::vector<ReturnSchema> returns;
};

}  // namespace torch_xla::aten
