// Private to src/pjrt: lets a plugin call a KeyValueStore through PJRT's C callbacks.
#pragma once

#include "pjrt/api.h"
#include "pjrt/client.h"

namespace torch_xla::pjrt {

// Points `args` at `store`, which must live as long as the client that is made with them.
void set_key_value_callbacks(KeyValueStore& store, PJRT_Client_Create_Args& args);

}  // namespace torch_xla::pjrt
