// Storages of xla tensors: what PyTorch asks of them (whether two tensors share one, how large it
// is), and how it gives memory back that tensors go on standing for.
#pragma once

#include <c10/core/Storage.h>

#include "graph/alias.h"
#include "runtime/device.h"

namespace torch_xla::aten {

// The storage that all tensors of an alias show. It has the right size, and a data pointer that
// raises.
c10::Storage storage_of(const graph::AliasRef& alias, runtime::Device& device);

// As `UntypedStorage.resize_`, for what FSDP does with it: with 0 the memory is given back, though
// tensors show it, and reading it is an error; with the size it had, it is there again, with any
// content. Throws for other sizes.
void resize_storage(const c10::Storage& storage, std::int64_t num_bytes);

}  // namespace torch_xla::aten
