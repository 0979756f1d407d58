"""PyTorch's `xla` device: programs are recorded lazily, compiled by XLA and run on any PJRT plugin.

`import torch_xla` adds the device; it loads no plugin and makes no client before the first use.
"""

from typing import TYPE_CHECKING

# Before the extension is loaded: there, a mismatch shows as an undefined symbol.
import torch_xla._presence  # isort: skip
import torch_xla._compatibility  # isort: skip
from torch_xla import _XLAC as _XLAC  # isort: skip

# Takes this process's place among others before its first program.
import torch_xla._replicas.world  # noqa: F401
from torch_xla import _known_bindings, _moved_names, _other_names, _submodules
from torch_xla._settings import settings
from torch_xla._torch import integration as _integration
from torch_xla.torch_xla import (
    LATER as _LATER,
    device,
    device_count,
    devices,
    manual_seed,
    real_devices,
    step,
    sync,
)

if TYPE_CHECKING:
    from torch_xla import (
        amp as amp,
        backends as backends,
        conformance as conformance,
        core as core,
        debug as debug,
        distributed as distributed,
        doctor as doctor,
        experimental as experimental,
        runtime as runtime,
        stablehlo as stablehlo,
        utils as utils,
    )
    from torch_xla.stablehlo import (
        save_as_stablehlo as save_as_stablehlo,
        save_torch_model_as_stablehlo as save_torch_model_as_stablehlo,
    )
    from torch_xla.torch_xla import (
        compile as compile,
        launch as launch,
        set_custom_compile_options as set_custom_compile_options,
    )

__version__ = _XLAC.__version__

__all__ = [
    "backends",
    "compile",
    "device",
    "device_count",
    "devices",
    "launch",
    "manual_seed",
    "real_devices",
    "runtime",
    "set_custom_compile_options",
    "settings",
    "step",
    "sync",
]

_integration.install()
_moved_names.install()
_known_bindings.install()


# What a program may not need is imported when it asks for it.
__getattr__ = _submodules.taking(
    __name__,
    {
        **_LATER,
        "save_as_stablehlo": "torch_xla.stablehlo",
        "save_torch_model_as_stablehlo": "torch_xla.stablehlo",
    },
    _other_names.refusing(__name__, _submodules.importing(__name__)),
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
