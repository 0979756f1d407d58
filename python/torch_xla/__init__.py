"""PyTorch's `xla` device: programs are recorded lazily, compiled by XLA and run on any PJRT plugin.

`import torch_xla` adds the device; it loads no plugin and makes no client before the first use.
"""

from typing import TYPE_CHECKING

# Before the extension is loaded: there, a mismatch shows as an undefined symbol.
import torch_xla._presence  # isort: skip
import torch_xla._compatibility  # isort: skip
from torch_xla import _XLAC as _XLAC  # isort: skip

# What of the package is used in nearly every program.
import torch_xla.core.xla_model
import torch_xla.debug.metrics  # noqa: F401
from torch_xla import (
    _known_bindings,
    _moved_names,
    _other_names,
    _submodules,
    backends,
    runtime,
)
from torch_xla._settings import settings
from torch_xla._torch import integration as _integration
from torch_xla.torch_xla import (
    compile,
    device,
    device_count,
    devices,
    launch,
    manual_seed,
    real_devices,
    set_custom_compile_options,
    step,
    sync,
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


if TYPE_CHECKING:
    from torch_xla import (
        amp as amp,
        conformance as conformance,
        core as core,
        debug as debug,
        distributed as distributed,
        doctor as doctor,
        experimental as experimental,
        stablehlo as stablehlo,
        utils as utils,
    )


_submodule = _other_names.refusing(__name__, _submodules.importing(__name__))


def __getattr__(name: str) -> object:
    # What few programs need is imported when one asks for it.
    if name in ("save_as_stablehlo", "save_torch_model_as_stablehlo"):
        from torch_xla import stablehlo

        return getattr(stablehlo, name)
    return _submodule(name)
