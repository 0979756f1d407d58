// Printing of traces. Leaves and steps are numbered in one row, leaves first.
#include "graph/print.h"

#include <bit>
#include <cstdint>
#include <sstream>

#include "base/dtype.h"
#include "base/error.h"

namespace torch_xla::graph {
namespace {

std::string text_of(double value) {
  std::ostringstream out;
  out.precision(9);
  out << value;
  return out.str();
}

template <typename List, typename F>
std::string joined(const List& list, F&& text) {
  std::string out;
  for (const auto& item : list) {
    if (!out.empty()) out += ", ";
    out += text(item);
  }
  return "[" + out + "]";
}

struct AttributeText {
  std::string operator()(std::monostate) const { return "None"; }
  std::string operator()(const Operand& operand) const { return base::str("%", operand.index); }
  std::string operator()(const OperandList& list) const {
    return joined(list.indices,
                  [](std::int32_t i) { return i < 0 ? std::string("None") : base::str("%", i); });
  }
  std::string operator()(const Number& number) const {
    return number.slot >= 0 ? "*" : to_string(number.constant);
  }
  std::string operator()(const std::vector<Number>& numbers) const {
    return joined(numbers, *this);
  }
  std::string operator()(const base::Dims& dims) const { return base::to_string(dims); }
  std::string operator()(const std::vector<bool>& flags) const {
    return joined(flags, [](bool flag) { return std::string(flag ? "True" : "False"); });
  }
  std::string operator()(const std::string& text) const { return "'" + text + "'"; }
  std::string operator()(const base::DType& dtype) const {
    return std::string(base::dtype_info(dtype).name);
  }
};

// An entry's arguments with the operands that a step really has in place of the entry's numbers.
class StepText {
 public:
  StepText(const Trace& trace, const Trace::Step& step) : trace_(trace), step_(step) {}

  std::string operand(std::uint32_t index) const {
    const Source& source = trace_.sources[step_.first_source + index];
    if (source.is_leaf) return base::str("%", source.index);
    const std::string value = base::str("%", trace_.leaves.size() + source.index);
    const Node& node = *trace_.steps[source.index].node;
    return node.num_outputs() == 1 ? value : base::str(value, ".", source.output);
  }

  std::string arguments() const {
    const Entry& entry = *step_.node->entry();
    std::string out;
    for (std::size_t i = 0; i < entry.args.size(); ++i) {
      if (std::holds_alternative<std::monostate>(entry.args[i])) continue;
      if (!out.empty()) out += ", ";
      if (!entry.op->argument_names.empty()) out += argument_name(*entry.op, i) + "=";
      out += argument(entry.args[i]);
    }
    return out;
  }

  std::string types() const {
    const Entry& entry = *step_.node->entry();
    std::string out;
    for (const TensorType* type : entry.outputs) {
      if (!out.empty()) out += ", ";
      out += type == nullptr ? "none" : base::to_string(type->shape);
    }
    return entry.outputs.size() == 1 ? out : "(" + out + ")";
  }

 private:
  std::string argument(const Attribute& value) const {
    if (const auto* one = std::get_if<Operand>(&value)) return operand(one->index);
    if (const auto* list = std::get_if<OperandList>(&value)) {
      return joined(list->indices, [&](std::int32_t i) {
        return i < 0 ? std::string("None") : operand(static_cast<std::uint32_t>(i));
      });
    }
    if (const auto* number = std::get_if<Number>(&value)) return this->number(*number);
    return to_string(value);
  }

  // One that is compiled in at first is the same for every run of the program, or "*" as others.
  std::string number(const Number& number) const {
    if (number.slot < 0) return to_string(number.constant);
    const auto index = static_cast<std::size_t>(number.slot);
    const Slot& slot = step_.node->entry()->slots[index];
    const std::uint64_t bits = step_.node->slots()[index];
    if (!is_constant_at_first(slot, bits)) return "*";
    if (slot.dtype == base::DType::kFloat64) return text_of(std::bit_cast<double>(bits));
    return std::to_string(static_cast<std::int64_t>(bits));
  }

  const Trace& trace_;
  const Trace::Step& step_;
};

std::string root_text(const Trace& trace, std::uint32_t index, bool is_leaf) {
  std::string out;
  for (std::size_t i = 0; i < trace.roots.size(); ++i) {
    if (trace.roots[i].is_leaf == is_leaf && trace.roots[i].index == index) {
      out += base::str(", ROOT=", i);
    }
  }
  return out;
}

std::string place_text(const Node& node) {
  if (node.location() == 0) return "";
  const SourceLine& line = source_line(node.location());
  std::string out = base::str(", location=", base::to_string(line.frame));
  if (!line.scope.empty()) out += ", scope=" + line.scope;
  return out;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::string to_string(const base::Scalar& scalar) {
  if (scalar.is_bool()) return scalar.to<bool>() ? "True" : "False";
  if (scalar.is_int()) return std::to_string(scalar.to<std::int64_t>());
  if (scalar.is_floating()) return text_of(scalar.to<double>());
  const auto value = scalar.to<std::complex<double>>();
  return base::str("(", text_of(value.real()), ", ", text_of(value.imag()), ")");
}

std::string to_string(const Attribute& argument) { return std::visit(AttributeText{}, argument); }

std::string argument_name(const Op& op, std::size_t index) {
  return index < op.argument_names.size() ? op.argument_names[index]
                                          : base::str("argument ", index);
}

std::string to_text(const Trace& trace) {
  std::string out = "IR {\n";
  for (std::uint32_t i = 0; i < trace.leaves.size(); ++i) {
    out += base::str("  %", i, " = ", base::to_string(trace.leaves[i]->shape()),
                     " xla::device_data()", root_text(trace, i, true), "\n");
  }
  for (std::uint32_t i = 0; i < trace.steps.size(); ++i) {
    const Trace::Step& step = trace.steps[i];
    const StepText text(trace, step);
    out += base::str("  %", trace.leaves.size() + i, " = ", text.types(),
                     " aten::", step.node->entry()->op->name, "(", text.arguments(), ")",
                     place_text(*step.node), root_text(trace, i, false), "\n");
  }
  return out + "}\n";
}

std::string to_dot(const Trace& trace) {
  std::string out = "digraph G {\n";
  for (std::uint32_t i = 0; i < trace.leaves.size(); ++i) {
    out += base::str("  node", i, " [label=\"xla::device_data\\n",
                     base::to_string(trace.leaves[i]->shape()), root_text(trace, i, true),
                     "\", shape=box]\n");
  }
  for (std::uint32_t i = 0; i < trace.steps.size(); ++i) {
    const Trace::Step& step = trace.steps[i];
    const StepText text(trace, step);
    out += base::str("  node", trace.leaves.size() + i,
                     " [label=\"aten::", step.node->entry()->op->name, "\\n", text.types(),
                     escaped(place_text(*step.node)), root_text(trace, i, false), "\"]\n");
    for (std::uint32_t k = 0; k < step.node->entry()->operands.size(); ++k) {
      const Source& source = trace.sources[step.first_source + k];
      out += base::str("  node", source.is_leaf ? source.index : trace.leaves.size() + source.index,
                       " -> node", trace.leaves.size() + i, " [label=\"i=", k, "\"]\n");
    }
  }
  return out + "}\n";
}

}  // namespace torch_xla::graph
