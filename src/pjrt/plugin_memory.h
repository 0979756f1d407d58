// The memory that a plugin for the CPU takes from the C library: its devices' memory.
#pragma once

#include "pjrt/plugin.h"

namespace torch_xla::pjrt {

// From now on the plugin takes large blocks from base::kept_blocks(). The C API has nothing for
// that, hence the addresses are changed by which its library calls the C library's functions. False
// if it takes its memory in another way, or the processor's relocations are not known here.
bool keep_freed_memory(const Plugin& plugin);

}  // namespace torch_xla::pjrt
