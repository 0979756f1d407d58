// What PyTorch's kernels for the CPU ask of a call and do with its results, where neither schemas
// nor compiled Meta kernels say it. The table of it, one row per operator, is operator_rules.cpp;
// overlap.h, out_arguments.h, strides.h, argument_checks.h, factor_checks.h and dtype_refusals.h go
// by it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace torch_xla::aten {

// What a tensor that a call reads may share with one that it writes.
enum class Sharing : std::uint8_t {
  kAny,              // what it likes: it is read before
  kWhole,            // all of its elements, or none
  kWholeOrExpanded,  // the same, but of a tensor that is broadcast what it likes
  kNone,             // no element
  kNoneOrNumber,     // no element, but of a number all
};

// When `out=` tensors are looked at: as they are given, or when they have the results' sizes.
// In-place calls know no such difference.
enum class Moment : std::uint8_t { kGiven = 1, kResized = 2, kBoth = 3 };

struct ReadRule {
  Sharing sharing = Sharing::kAny;
  Moment moment = Moment::kResized;
  // The kernel takes what is shown conjugated as it is stored; most are handed a copy.
  bool is_as_stored = false;
  constexpr bool is_for(Moment now) const {
    return sharing != Sharing::kAny &&
           (static_cast<unsigned>(moment) & static_cast<unsigned>(now)) != 0;
  }
};

// One for each tensor that a call reads, in order, of which the last stands for the rest too. Empty
// where nothing is said.
class ReadRules {
 public:
  constexpr ReadRules() = default;
  constexpr ReadRules(std::initializer_list<ReadRule> rules) : size_(rules.size()) {
    std::copy(rules.begin(), rules.end(), rules_.begin());
  }
  constexpr bool empty() const { return size_ == 0; }
  constexpr ReadRule operator[](std::size_t position) const {
    return rules_[std::min(position, size_ - 1)];
  }
  // Whether there is something to look at then.
  constexpr bool are_for(Moment now) const {
    return std::any_of(rules_.begin(), rules_.begin() + size_,
                       [now](const ReadRule& rule) { return rule.is_for(now); });
  }

 private:
  std::array<ReadRule, 3> rules_;
  std::size_t size_ = 0;
};

// Of the tensors given as `out=`.
struct OutRule {
  // In the operator's own words, what is wrong with another dtype than the result's; empty: any
  // dtype that the result's can be cast to. {Want} and {Got} stand for names of dtypes such as
  // Float, {want} and {got} for such as float.
  std::string_view dtype_error = {};
  std::string_view second_dtype_error = {};  // the same of the second out tensor
  bool resizes_silently = false;
  // The real results of complex numbers are cast as most are, also to the numbers' own dtype.
  bool casts_complex = false;
  // Of several out tensors the first alone is looked at for what it shares.
  bool only_first_is_apart = false;
  // Throws if the result cannot be cast; null: as most operators do.
  void (*check_cast)(at::ScalarType from, at::ScalarType to) = nullptr;
  // Throws for what PyTorch refuses before it computes; null: nothing.
  void (*check_call)(at::ScalarType self, at::ScalarType out) = nullptr;
  friend bool operator==(const OutRule&, const OutRule&) = default;
};

// How the results of an operator without a compiled Meta kernel are laid out, whatever the
// operands' strides are.
enum class Layout : std::uint8_t {
  kLikeOperands,      // row-major for row-major operands
  kMetaKernel,        // as torch's Meta kernel in Python says
  kTransform,         // the dimensions in the order in which a Fourier transform takes them
  kTransformOfReals,  // the same, of reals
  kTransformToReals,  // as two transforms leave them: to reals along the last dimension, after the
                      // rest
  kChannels,          // channels-last where one of the first two operands is, else row-major
  kFirstChannels,     // channels-last where the first operand is, else row-major
  kPointwise,         // as TensorIterator lays out what it makes of the operands
  kLikeSelf,          // as `empty_like` of `self`
  kRows,              // row-major for any operands
  kColumns,           // the first a matrix column by column, as LAPACK leaves it
  kSecondColumns,     // the second
  kSolution,          // a least-squares solution lies in what held the right-hand sides
};

using CallArguments = at::ArrayRef<c10::IValue>;
// Throws as PyTorch's kernel for the CPU does.
using ArgumentCheck = void (*)(CallArguments arguments);

// Of an operator that looks at the matrices that it is given: a singular one is an error.
struct FactorRule {
  const char* api = nullptr;  // its name in PyTorch's words; null: it does not look
  // LAPACK's report for each matrix, from the arguments and the results: 0 where all is well.
  at::Tensor (*info)(CallArguments arguments, CallArguments results) = nullptr;
};

// A row says what is special about an operator.
struct OperatorRules {
  // "index_add" for all overloads and their in-place and `out=` variants; "fill.Scalar" for one
  // overload, "clamp.default" for the one without a name. What an overload's row says goes before
  // what the operator's says.
  std::string_view name = {};
  // What tensors may share with those that the call writes. Without rules, in-place calls take
  // Sharing::kWhole, and `out=` calls look at nothing but where the operator is elementwise.
  ReadRules reads = {};
  ReadRules reads_of_integers = {};  // instead, of `out=` calls where integers are only copied
  OutRule out = {};
  Layout layout = Layout::kLikeOperands;
  // Of the numbers in a call, which lowerings and Meta kernels do not see; null: nothing.
  ArgumentCheck check = nullptr;
  ArgumentCheck check_in_place = nullptr;  // instead, of the in-place variant
  // Of the values of tensors, where PyTorch's kernel for the CPU computes with them; null: nothing.
  ArgumentCheck check_values = nullptr;
  FactorRule factors = {};
  // Arguments that are written although the schema does not say so.
  std::array<std::string_view, 2> effects = {};
  // A composite that is lowered as one operator, where others are taken apart before they arrive.
  bool is_kept_whole = false;
  // Its Meta kernel refuses empty tensors that its kernel for the CPU takes.
  bool meta_refuses_empty = false;
  // Dtypes that are taken here, as on other accelerators, though not on the CPU.
  bool takes_half = false;
  bool takes_integers = false;
};

// Those of the operator of this name, with or without an overload's; in-place variants have that of
// the functional one. To be looked up once per operator.
OperatorRules rules_of(std::string_view name);

// The `check_values` of the operator of this name, with or without "aten::": one search, for every
// call that the host computes.
ArgumentCheck check_of_values(std::string_view name);

// The rows' names: torch should know all of them.
std::vector<std::string_view> names_of_rules();

}  // namespace torch_xla::aten
