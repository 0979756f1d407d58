"""What torch is told about the device when the package is imported, each with its reason."""

from __future__ import annotations

import atexit

from torch_xla import _plugins, _XLAC


def install() -> None:
    """Connect the library to Python and torch. Makes no client."""
    _XLAC._set_plugin_resolver(_plugins.resolve)
    # Programs under way are waited for, and the plugin's memory is given back, before the
    # interpreter takes down what they may call.
    atexit.register(_XLAC._shutdown)
