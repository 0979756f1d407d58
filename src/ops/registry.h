// The registry of lowerings: ATen operators as functions over StableHLO values. A family file
// registers typed functions with ATen's own parameters:
//
//   m.impl("clamp", [](Value self, std::optional<Value> min, std::optional<Value> max) { ... });
//
// The function's parameter types say how each argument travels:
//   Tensor                Value, std::optional<Value>, std::vector<Value>,
//                         std::vector<std::optional<Value>>
//   Scalar, int or float  Scalar / std::int64_t / double / bool and optionals and lists of them: a
//                         constant, part of the compiled program's key;
//                         Value: always data, so a new value never compiles anew (the Value is
//                         0-dim of dtype bool, int64, float64 or complex128, marked as a
//                         wrapped number); Promotable: constant until it was seen to change (slice
//                         offsets, pow's exponent), then data Factor: data that is known when it is
//                         one or zero
//   Generator             Value: a fresh 0-dim uint64 random key for this call
//   ScalarType            base::DType, std::optional<base::DType>
//   bool[N], int[], str   std::vector<bool>, Dims, std::string (and optionals)
// layout, device, pin_memory, memory_format and non_blocking are left out, and so are `out=`
// arguments. A first parameter `Context&` gives the builder and the recorded output types. An
// in-place or `out=` overload uses its functional variant's function unless it has its own (which
// then returns the new value of self).
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "base/scalar.h"
#include "graph/entry.h"
#include "hlo/ops.h"
#include "ops/target.h"

namespace torch_xla::ops {

using base::Dims;
using base::DType;
using base::Scalar;
using base::Shape;
using hlo::Value;

// A value's mark: "wrapped number" in PyTorch's words, a Python number made a 0-d tensor, which
// takes part in type promotion by its kind only.
inline constexpr std::uint8_t kWrappedNumber = 1;
inline bool is_wrapped_number(const Value& v) { return v.mark == kWrappedNumber; }
// A value's note: the result of ATen's `div`, which the next one hides from XLA.
inline constexpr std::uint8_t kQuotient = 1;

// An integer or number that is a constant in a graph's first compilation and data later.
class Promotable {
 public:
  explicit Promotable(Scalar constant) : constant_(constant) {}
  explicit Promotable(Value value) : value_(value) {}
  bool is_constant() const { return !value_.has_value(); }
  const Scalar& constant() const { return constant_; }
  DType dtype() const { return is_constant() ? constant_.dtype() : value_->dtype(); }
  // The number as a 0-dim value of the given dtype.
  Value value(hlo::Builder& builder, DType dtype) const;

 private:
  Scalar constant_;
  std::optional<Value> value_;
};

// A number as data that most calls leave at its default of one: `alpha`, `beta`, `value`. Lowerings
// leave the multiplication out where it is one for certain, and the term where it is zero.
struct Factor {
  Value value;
  bool is_one = false;
  bool is_zero = false;
};

// The collectives of one group in a program, a line for each. The first call of them carries it.
struct Agreement {
  std::string lines;
  bool is_carried = false;
};

// Collectives may begin in one call and end in another, so that what does not read their results is
// computed meanwhile. A lowering that has only begun sets `finish`, which gives its results, and
// returns the token alone.
struct Exchanges {
  Value token;  // after the last call, when `finish` is called; it leaves another
  std::function<std::vector<Value>()> finish;
};

// A batch with room behind its elements, where zeros are.
struct Batch {
  Value is_element;  // bool, of its sizes
  Value size;        // 0-dim: how many elements a channel has
};

// What a lowering may know beside its arguments.
struct Context : Target {
  hlo::Builder& builder;
  std::span<const Shape> outputs = {};  // the recorded types; empty while types are inferred
  // Of a collective: what its group's members compare before they meet, and its number there.
  Agreement* agreement = nullptr;
  std::int64_t number_in_agreement = 0;
  Exchanges* exchanges = nullptr;  // null: collectives are whole
  const Batch* batch = nullptr;    // of batch normalization; null: all are elements
};

// How one parameter of a lowering takes its argument; checked against the schema.
enum class ParamKind : std::uint8_t {
  kTensorOrData,  // Value: a tensor, or a number as data
  kTensorList,
  kNumber,  // Scalar, int64, double, bool: constant
  kPromotable,
  kNumberList,
  kDType,
  kString,
  kBoolList,
};
struct Param {
  ParamKind kind;
  bool is_optional;
};

// One argument of a call being lowered: the attribute and where its operands and slots are.
struct Frame {
  std::span<const Value> operands;
  // One per slot: the data's value, or empty while the slot is a constant.
  std::span<const std::optional<Value>> slots;
  // The bits of each slot's number, for slots that are constants.
  std::span<const std::uint64_t> slot_bits;
  std::span<const graph::Slot> slot_types;
};

namespace detail {

Value tensor_or_data(const graph::Attribute& attr, const Frame& frame, hlo::Builder& builder);
Factor factor(const graph::Attribute& attr, const Frame& frame, hlo::Builder& builder);
std::vector<std::optional<Value>> tensor_list(const graph::Attribute& attr, const Frame& frame,
                                              hlo::Builder& builder);
Scalar number(const graph::Attribute& attr, const Frame& frame);
Promotable promotable(const graph::Attribute& attr, const Frame& frame);
std::vector<Scalar> number_list(const graph::Attribute& attr, const Frame& frame);

template <typename T>
struct Taker;  // Param kind and conversion for parameter type T

template <>
struct Taker<Value> {
  static constexpr ParamKind kKind = ParamKind::kTensorOrData;
  static Value take(const graph::Attribute& a, const Frame& f, hlo::Builder& b) {
    return tensor_or_data(a, f, b);
  }
};
template <>
struct Taker<Factor> {
  static constexpr ParamKind kKind = ParamKind::kTensorOrData;
  static Factor take(const graph::Attribute& a, const Frame& f, hlo::Builder& b) {
    return factor(a, f, b);
  }
};
template <>
struct Taker<std::vector<std::optional<Value>>> {
  static constexpr ParamKind kKind = ParamKind::kTensorList;
  static auto take(const graph::Attribute& a, const Frame& f, hlo::Builder& b) {
    return tensor_list(a, f, b);
  }
};
template <>
struct Taker<std::vector<Value>> {
  static constexpr ParamKind kKind = ParamKind::kTensorList;
  static std::vector<Value> take(const graph::Attribute& a, const Frame& f, hlo::Builder& b) {
    std::vector<Value> out;
    for (const std::optional<Value>& v : tensor_list(a, f, b)) {
      base::check(v.has_value(), "expected a tensor in the list, got None");
      out.push_back(*v);
    }
    return out;
  }
};
template <>
struct Taker<Scalar> {
  static constexpr ParamKind kKind = ParamKind::kNumber;
  static Scalar take(const graph::Attribute& a, const Frame& f, hlo::Builder&) {
    return number(a, f);
  }
};
template <typename T>
  requires std::is_arithmetic_v<T>
struct Taker<T> {
  static constexpr ParamKind kKind = ParamKind::kNumber;
  static T take(const graph::Attribute& a, const Frame& f, hlo::Builder&) {
    return number(a, f).to<T>();
  }
};
template <>
struct Taker<Promotable> {
  static constexpr ParamKind kKind = ParamKind::kPromotable;
  static Promotable take(const graph::Attribute& a, const Frame& f, hlo::Builder&) {
    return promotable(a, f);
  }
};
template <typename T>
  requires(std::is_same_v<T, Scalar> || std::is_same_v<T, std::int64_t> ||
           std::is_same_v<T, double>)
struct Taker<std::vector<T>> {
  static constexpr ParamKind kKind = ParamKind::kNumberList;
  static std::vector<T> take(const graph::Attribute& a, const Frame& f, hlo::Builder&) {
    if constexpr (std::is_same_v<T, Scalar>) {
      return number_list(a, f);
    } else {
      std::vector<T> out;
      for (const Scalar& s : number_list(a, f)) out.push_back(s.to<T>());
      return out;
    }
  }
};
template <>
struct Taker<std::vector<bool>> {
  static constexpr ParamKind kKind = ParamKind::kBoolList;
  static std::vector<bool> take(const graph::Attribute& a, const Frame&, hlo::Builder&) {
    return std::get<std::vector<bool>>(a);
  }
};
template <>
struct Taker<DType> {
  static constexpr ParamKind kKind = ParamKind::kDType;
  static DType take(const graph::Attribute& a, const Frame&, hlo::Builder&) {
    return std::get<DType>(a);
  }
};
template <>
struct Taker<std::string> {
  static constexpr ParamKind kKind = ParamKind::kString;
  static std::string take(const graph::Attribute& a, const Frame&, hlo::Builder&) {
    return std::get<std::string>(a);
  }
};

template <typename T>
struct Taking {
  static constexpr Param kParam = {Taker<T>::kKind, false};
  static T take(const graph::Attribute& a, const Frame& f, hlo::Builder& b) {
    return Taker<T>::take(a, f, b);
  }
};
template <typename T>
struct Taking<std::optional<T>> {
  static constexpr Param kParam = {Taker<T>::kKind, true};
  static std::optional<T> take(const graph::Attribute& a, const Frame& f, hlo::Builder& b) {
    if (std::holds_alternative<std::monostate>(a)) return std::nullopt;
    return Taker<T>::take(a, f, b);
  }
};

inline std::vector<Value> to_results(Value value) { return {value}; }
inline std::vector<Value> to_results(std::vector<Value> values) { return values; }
template <typename... Ts>
std::vector<Value> to_results(const std::tuple<Ts...>& values) {
  return std::apply([](const auto&... v) { return std::vector<Value>{v...}; }, values);
}

template <typename F>
struct Signature : Signature<decltype(&F::operator())> {};
template <typename R, typename... Ps>
struct Signature<R (*)(Ps...)> {
  using Params = std::tuple<std::decay_t<Ps>...>;
};
template <typename C, typename R, typename... Ps>
struct Signature<R (C::*)(Ps...) const> {
  using Params = std::tuple<std::decay_t<Ps>...>;
};

template <typename P>
inline constexpr bool kIsContext = std::is_same_v<P, Context>;

}  // namespace detail

// The result values, in the schema's order of functional outputs; an empty Value stands for an
// undefined tensor (a gradient that was not asked for).
using EmitFunction = std::function<std::vector<Value>(
    Context&, std::span<const graph::Attribute* const>, const Frame&)>;

// What an in-place call does to a tensor with elements that share memory (expanded ones).
enum class Repeats : std::uint8_t {
  kRefused,
  kAllowed,     // as where all elements become the same
  kDeprecated,  // PyTorch warns
};

struct Lowering {
  std::string name;
  std::vector<Param> params;
  EmitFunction emit;
  bool is_random = false;   // a trailing Value parameter beyond the schema receives a random key
  bool is_foreach = false;  // `params` describe one element of the schema's lists
  Repeats repeats = Repeats::kRefused;
  bool computes_in_out_dtype = false;  // `out=` without `dtype=`: as if that were the out tensor's
  // A call of PyTorch's own kernel: the operator falls back where programs cannot make one.
  bool is_aten_call = false;
  bool takes_half = false;  // of a host call: the kernel computes in half precision too
  // It takes the schema's arguments as they are, and only a Meta kernel knows its results' types.
  bool is_untyped = false;
  // A trailing Value parameter beyond the schema receives the token, which orders all collectives
  // of a device, and a result beyond the schema's is the token afterwards.
  bool is_collective = false;
  // Of a collective: two members take part, so there is nothing for all of them to compare.
  bool is_between_two = false;
  // Of a collective: each member gives and takes sizes of its own.
  bool has_own_sizes = false;
  // As in `graph::Op`; `overwrites` of an operator that writes in place.
  graph::Constant constant = graph::Constant::kNone;
  bool overwrites = false;
  // Of tensors, or lists of them, whose elements meet those in the same places: where a result is
  // as large as an operand, the two best lie alike on a mesh.
  bool is_pointwise = false;
};

// The types of the results of a call, by the function's own conversion of its arguments.
using TypesFunction = std::function<std::vector<Shape>(
    Context&, std::span<const graph::Attribute* const>, const Frame&)>;

struct Options {
  std::string platform = {};  // empty: any platform; else only this one, before the generic rule
  bool is_random = false;
  Repeats repeats = Repeats::kRefused;
  bool takes_half = false;
  bool computes_in_out_dtype = false;
  bool is_collective = false;
  bool is_between_two = false;
  bool has_own_sizes = false;
  graph::Constant constant = graph::Constant::kNone;
  bool overwrites = false;
};

class Registry {
 public:
  // Registers `function` as the lowering of `name` ("add.Tensor"). A duplicate is an internal
  // error.
  template <typename F>
  void impl(const std::string& name, F function, const Options& options = {}) {
    using Params = typename detail::Signature<F>::Params;
    add(name, make_lowering(std::move(function), std::type_identity<Params>{}), options);
  }
  // The same function for several operators of one signature.
  template <typename F>
  void impl(std::initializer_list<const char*> names, F function, const Options& options = {}) {
    for (const char* name : names) impl(std::string(name), function, options);
  }
  // Registers `function`, written for one element, for an operator over lists: it is applied to the
  // i-th element of every list of tensors and of every list of numbers, other arguments are shared.
  //   m.foreach("_foreach_add.Scalar", [](Value self, Value scalar) { return add(self, scalar); });
  template <typename F>
  void foreach (const std::string& name, F function, const Options& options = {}) {
    using Params = typename detail::Signature<F>::Params;
    add(name, over_lists(make_lowering(std::move(function), std::type_identity<Params>{})),
        options);
  }

  // An operator that StableHLO cannot express: where the device is the CPU, programs call PyTorch's
  // kernel (see aten_call.h), elsewhere the operator falls back. `types` has ATen's parameters and
  // gives the results' types, as a Shape or a vector of them. What it refuses as kUnimplemented
  // are results whose sizes the data decide: the call is computed and read at once.
  template <typename F>
  void host(const std::string& name, F types, const Options& options = {}) {
    using Params = typename detail::Signature<F>::Params;
    add_aten_call(name, make_types(std::move(types), std::type_identity<Params>{}), options);
  }
  // The same where PyTorch's Meta kernel gives the types.
  void host(const std::string& name) { add_aten_call(name, {}, {}); }

  // Says so of all that are registered up to now, and of further ones.
  void mark_pointwise();
  void mark_pointwise(std::initializer_list<std::string_view> names);

  // Null when there is none. `platform` as in Target.
  const Lowering* find(std::string_view name, std::string_view platform = {}) const;
  std::vector<std::string> names() const;

 private:
  // Calls `function` with the arguments as its parameters take them.
  template <typename F, typename... Ps>
  static auto apply(const F& function, std::type_identity<std::tuple<Ps...>>, Context& context,
                    std::span<const graph::Attribute* const> args, const Frame& frame) {
    std::size_t next = 0;
    // Braced initialisation evaluates its elements from left to right.
    std::tuple<arg_t<Ps>...> values{take<Ps>(context, args, next, frame)...};
    return std::apply([&](auto&... v) { return function(unwrap(v)...); }, values);
  }
  template <typename F, typename... Ps>
  static Lowering make_lowering(F function, std::type_identity<std::tuple<Ps...>> params) {
    Lowering lowering;
    (add_param<Ps>(lowering.params), ...);
    lowering.emit = [function = std::move(function), params](
                        Context& context, std::span<const graph::Attribute* const> args,
                        const Frame& frame) -> std::vector<Value> {
      return detail::to_results(apply(function, params, context, args, frame));
    };
    return lowering;
  }
  struct Types {
    std::vector<Param> params;
    TypesFunction types;
  };
  template <typename F, typename... Ps>
  static Types make_types(F function, std::type_identity<std::tuple<Ps...>> params) {
    Types out;
    (add_param<Ps>(out.params), ...);
    out.types = [function = std::move(function), params](
                    Context& context, std::span<const graph::Attribute* const> args,
                    const Frame& frame) -> std::vector<Shape> {
      return {apply(function, params, context, args, frame)};
    };
    return out;
  }
  template <typename P>
  using arg_t = std::conditional_t<detail::kIsContext<P>, Context*, P>;
  template <typename P>
  static void add_param(std::vector<Param>& params) {
    if constexpr (!detail::kIsContext<P>) params.push_back(detail::Taking<P>::kParam);
  }
  template <typename P>
  static arg_t<P> take(Context& context, std::span<const graph::Attribute* const> args,
                       std::size_t& next, const Frame& frame) {
    if constexpr (detail::kIsContext<P>) {
      return &context;
    } else {
      base::internal_check(next < args.size(),
                           "a lowering takes more arguments than the schema has");
      return detail::Taking<P>::take(*args[next++], frame, context.builder);
    }
  }
  static Lowering over_lists(Lowering element);
  static Context& unwrap(Context* context) { return *context; }
  template <typename T>
  static T& unwrap(T& value) {
    return value;
  }

  void add(const std::string& name, Lowering lowering, const Options& options);
  void add_aten_call(const std::string& name, Types types, const Options& options);

  std::map<std::string, Lowering, std::less<>> lowerings_;  // platform rules as "name@platform"
};

// Every lowering there is, registered by the family files; built on first use, constant after.
const Registry& registry();

// The families; each is one file in src/ops.
void register_pointwise_unary(Registry& m);
void register_pointwise_binary(Registry& m);
void register_pointwise_ternary(Registry& m);
void register_special(Registry& m);
void register_special_bessel(Registry& m);
void register_foreach(Registry& m);
void register_creation(Registry& m);
void register_shape(Registry& m);
void register_views(Registry& m);
void register_view_copies(Registry& m);
void register_padding(Registry& m);
void register_resampling(Registry& m);
void register_grid_sampler(Registry& m);
void register_indexing(Registry& m);
void register_scatter(Registry& m);
void register_search(Registry& m);
void register_segment(Registry& m);
void register_reduction(Registry& m);
void register_cumulative(Registry& m);
void register_sort(Registry& m);
void register_linear_algebra(Registry& m);
void register_convolution(Registry& m);
void register_pooling(Registry& m);
void register_normalization(Registry& m);
void register_activation(Registry& m);
void register_softmax(Registry& m);
void register_attention(Registry& m);
void register_loss(Registry& m);
void register_class_loss(Registry& m);
void register_ctc_loss(Registry& m);
void register_distance(Registry& m);
void register_embedding(Registry& m);
void register_random(Registry& m);
void register_recurrence(Registry& m);
void register_optimizer(Registry& m);
void register_fake_quantize(Registry& m);
void register_custom_call(Registry& m);
void register_sharding(Registry& m);
void register_inexpressible(Registry& m);
void register_collectives(Registry& m);

}  // namespace torch_xla::ops
