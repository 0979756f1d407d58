// The job's store of c10d as the place where the processes of one client meet.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <optional>

#include "runtime/client.h"

namespace torch_xla::aten {

// For `PluginSpec::store`. Its calls take no GIL: a thread that holds it may wait for the client.
decltype(runtime::PluginSpec::store) meeting_in(c10::intrusive_ptr<c10d::Store> store);

}  // namespace torch_xla::aten
