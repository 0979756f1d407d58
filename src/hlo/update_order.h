// Updates that wait for who reads what they write. XLA's CPU compiler copies a parameter that is
// replaced in its own memory if something reads it that stands in no order to what writes it: of a
// layer in training, its weight, since the gradient of what the layer was given needs the weight,
// and the weight's update does not need that gradient.
#pragma once

#include <span>

#include "hlo/builder.h"

namespace torch_xla::hlo {

struct Update {
  Value parameter;
  Value result;  // which takes the parameter's memory
};

// Gives such updates an order to the products and calls that read their parameters. For the main
// function of a module, once all of its operations are there. Nothing where a barrier would cost
// more than the copy.
void let_updates_wait(Builder& builder, std::span<const Update> updates);

}  // namespace torch_xla::hlo
