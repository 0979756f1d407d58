"""What there is, and whether it works: `python -m torch_xla.doctor` prints versions, the plugin,
the devices, the cache, a compiled sum and a product with their times, and what is known to be in
the way. It ends with a paragraph for a bug report, and with 1 if something does not work."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torch_xla import _XLAC, _barriers, _plugins, runtime
from torch_xla.torch_xla import real_devices

_PACKAGES = (
    *("numpy", "xla-cpu-pjrt", "jax", "jaxlib", "libtpu", "jax-cuda13-pjrt", "jax-rocm7-pjrt"),
    *("transformers", "accelerate", "safetensors", "lightning"),
)
_VARIABLES = ("PJRT_", "XLA_", "PT_XLA_", "TPU_", "NEURON_", "TF_CPP_", "LIBTPU_", "CPU_NUM_")
_SIZE = 1024


def _versions() -> str:
    found = [f"Python {platform.python_version()}", f"torch {torch.__version__}"]
    found.append(f"torch_xla {_XLAC.__version__}")
    for package in _PACKAGES:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"
    return f"{', '.join(found)}; {system}"


def _plugin() -> str:
    device, path, _ = _plugins.resolve()
    return f"{device}, {path}"


def _devices() -> str:
    names = real_devices()
    shown = ", ".join([*names[:4], "..."] if len(names) > 4 else names)
    return f"{len(names)} ({shown}), {_XLAC._device_kind(0)}"


def _cache() -> str:
    stats = runtime.persistent_cache_stats()
    return ", ".join(f"{name} {value}" for name, value in stats.items())


def _timed(what: str, function: Callable[..., torch.Tensor], want: float) -> str:
    """The first time, which compiles or loads, and the best of five more."""
    x = torch.full((_SIZE, _SIZE), 0.5, device="xla")
    _barriers.sync(wait=True)
    seconds = []
    for _ in range(6):
        start = time.perf_counter()
        result = function(x)
        _barriers.sync(wait=True)
        seconds.append(time.perf_counter() - start)
    got = result[0, 0].item()
    if got != want:
        raise RuntimeError(f"{what} gives {got}, expected {want}")
    return f"right; {seconds[0] * 1e3:.0f} ms at first, then {min(seconds[1:]) * 1e3:.2f} ms"


def _conflicts() -> Iterator[str]:
    if not os.access("/dev/shm", os.W_OK):
        yield "/dev/shm is not there or not to be written, so a DataLoader can't have workers"
    if importlib.util.find_spec("tensorflow") is not None:
        yield "tensorflow is installed, which may hold a TPU, and loads an XLA of its own"
    if os.environ.get("PJRT_LIBRARY_PATH") and os.environ.get("PJRT_DEVICE"):
        yield "PJRT_LIBRARY_PATH decides the plugin; PJRT_DEVICE only names its device"
    if os.environ.get("XLA_USE_BF16", "0") != "0":
        yield "XLA_USE_BF16 makes floats bfloat16 on the device"


def _settings() -> str:
    named = sorted(n for n in os.environ if n.startswith(_VARIABLES))
    return " ".join(f"{name}={os.environ[name]}" for name in named) or "none"


_CHECKS: tuple[tuple[str, Callable[[], str]], ...] = (
    ("versions", _versions),
    ("environment", _settings),
    ("plugin", _plugin),
    ("devices", _devices),
    ("sum", lambda: _timed("the sum", lambda x: x + 1, 1.5)),
    ("product", lambda: _timed("the product", lambda x: x @ x, _SIZE / 4)),
    ("disk cache", _cache),
    ("conflicts", lambda: "; ".join(_conflicts()) or "none known"),
)


def examine() -> dict[str, tuple[bool, str]]:
    """Each check's name with whether it passed, and what it found."""
    found: dict[str, tuple[bool, str]] = {}
    for name, check in _CHECKS:
        try:
            found[name] = True, check()
        except Exception as error:  # whatever a plugin does: the other checks go on
            text = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            same = [told for told, (_, other) in found.items() if other == text]
            found[name] = False, f"as {same[0]}" if same else text
    return found


def main(write: Callable[[str], Any] = print) -> int:
    """The command."""
    found = examine()
    for name, (is_good, text) in found.items():
        write(f"{name:12} {'' if is_good else 'FAILED: '}{text}")
    write("\nFor a bug report:\n")
    write(" | ".join(f"{name}: {text}" for name, (_, text) in found.items()))
    return 0 if all(is_good for is_good, _ in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
