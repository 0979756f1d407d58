// Storages of xla tensors: what PyTorch asks of them (whether two tensors share one, how large it
// is, where it is), and how it gives memory back that tensors go on standing for.
#pragma once

#include <c10/core/Storage.h>

#include "aten/tensor.h"
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

// By which programs tell memory from memory, and parts of one: no two storages of the process have
// had overlapping ranges, and a storage keeps its own while it lives, whatever is computed. Nothing
// can be mapped there, so that who reads it as memory faults and harms nobody. 0 where there are no
// bytes.
std::uint64_t address_of(const c10::Storage& storage);
std::uint64_t address_of(const TensorImpl& tensor);

}  // namespace torch_xla::aten
