// One pass over a trace. Whatever is not put among the integers must go into the form.
#include "graph/sizes.h"

#include <algorithm>
#include <bit>
#include <complex>
#include <string>
#include <string_view>
#include <utility>

namespace torch_xla::graph {
namespace {

class Reader {
 public:
  explicit Reader(const Trace& trace) : trace_(trace) {}

  bool run() {
    form_.add(trace_.leaves.size());
    for (const DataPtr& leaf : trace_.leaves) add(leaf->shape());
    form_.add(trace_.steps.size());
    for (const Trace::Step& step : trace_.steps) {
      if (step.node->entry()->op->region != nullptr) return false;
      add(*step.node->entry());
    }
    for (const Source& source : trace_.sources) add(source);
    form_.add(trace_.roots.size());
    for (const Source& root : trace_.roots) add(root);
    return true;
  }

  Sizes finish() {
    sizes_.form = form_.finish();
    return std::move(sizes_);
  }

 private:
  void add(const base::Shape& shape) {
    form_.add(static_cast<std::uint64_t>(shape.dtype) << 32 | shape.dims.size());
    for (const std::int64_t dim : shape.dims) {
      form_.add(static_cast<std::uint64_t>(std::min<std::int64_t>(dim, 2)));
      add_integer(dim, true);
    }
  }

  void add_integer(std::int64_t value, bool is_dimension) {
    sizes_.integers.push_back(value);
    sizes_.is_dimension.push_back(is_dimension);
  }

  void add(const Source& source) {
    form_.add(static_cast<std::uint64_t>(source.index) << 32 |
              static_cast<std::uint64_t>(source.output) << 1 | (source.is_leaf ? 1 : 0));
  }

  void add(const Entry& entry) {
    form_.add(std::string_view(entry.op->name));
    form_.add(entry.args.size() << 32 | entry.operands.size());
    for (const Attribute& arg : entry.args) {
      form_.add(arg.index());
      std::visit([this](const auto& value) { add_argument(value); }, arg);
      for_each_integer(arg, [this](std::int64_t value) { add_integer(value, false); });
    }
    for (const Slot& slot : entry.slots) {
      form_.add(static_cast<std::uint64_t>(slot.dtype) << 8 |
                static_cast<std::uint64_t>(slot.mode));
    }
    form_.add(static_cast<std::uint64_t>(entry.default_float) << 32 | entry.outputs.size());
    for (const TensorType* output : entry.outputs) {
      form_.add(output == nullptr ? 0 : 1);
      if (output != nullptr) add(output->shape);
    }
  }

  void add_argument(std::monostate) {}
  void add_argument(const Operand& operand) { form_.add(operand.index); }
  void add_argument(const OperandList& list) {
    form_.add(list.indices.size());
    for (const std::int32_t index : list.indices) form_.add(static_cast<std::uint64_t>(index));
  }
  void add_argument(const Number& number) {
    form_.add(static_cast<std::uint64_t>(number.dtype) << 8 | (number.is_wrapped ? 1 : 0));
    form_.add(static_cast<std::uint64_t>(number.slot));
    if (number.slot >= 0) return;
    form_.add(static_cast<std::uint64_t>(number.constant.dtype()));
    if (number.constant.is_int()) return;
    const auto value = number.constant.is_bool()
                           ? std::complex<double>(number.constant.to<bool>() ? 1 : 0)
                           : number.constant.to<std::complex<double>>();
    form_.add(std::bit_cast<std::uint64_t>(value.real()));
    form_.add(std::bit_cast<std::uint64_t>(value.imag()));
  }
  void add_argument(const std::vector<Number>& numbers) {
    form_.add(numbers.size());
    for (const Number& number : numbers) add_argument(number);
  }
  void add_argument(const base::Dims& dims) { form_.add(dims.size()); }
  void add_argument(const std::vector<bool>& flags) {
    form_.add(flags.size());
    for (const bool flag : flags) form_.add(flag ? 1 : 0);
  }
  void add_argument(const std::string& text) { form_.add(std::string_view(text)); }
  void add_argument(const base::DType& dtype) { form_.add(static_cast<std::uint64_t>(dtype)); }

  const Trace& trace_;
  base::Hasher form_;
  Sizes sizes_;
};

}  // namespace

std::optional<Sizes> sizes_of(const Trace& trace) {
  Reader reader(trace);
  if (!reader.run()) return std::nullopt;
  return reader.finish();
}

}  // namespace torch_xla::graph
