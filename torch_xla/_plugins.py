"""Finds the PJRT plugin to use: by path, by device name, or by what is installed.

C++ knows only paths; entry points, `PJRT_DEVICE` and `PJRT_LIBRARY_PATH` are resolved here.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import pathlib

_GROUPS = ("torch_xla.plugins", "xla_plugins", "jax_plugins")

# Which installed plugins serve a device name, as parts of entry-point names.
_DEVICE_PLUGINS = {
    "CPU": ("xla_cpu_pjrt",),
    "CUDA": ("xla_cuda", "cuda"),
    "GPU": ("xla_cuda", "cuda", "rocm"),
    "ROCM": ("rocm",),
    "TPU": ("tpu", "libtpu"),
}
_PREFERENCE = ("TPU", "CUDA", "ROCM", "CPU")


class PluginNotFoundError(RuntimeError):
    """No installed plugin serves the requested device."""


def _entry_points() -> list[importlib.metadata.EntryPoint]:
    found = importlib.metadata.entry_points()
    return [point for group in _GROUPS for point in found.select(group=group)]


def _library_in(package: str) -> str:
    """The shared library that a plugin package carries."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise PluginNotFoundError(f"the plugin package {package} is registered but not installed")
    for folder in spec.submodule_search_locations:
        for pattern in ("*pjrt*.so", "*plugin*.so", "libtpu.so", "*.so"):
            for library in sorted(pathlib.Path(folder).glob(pattern)):
                return str(library)
    raise PluginNotFoundError(f"the plugin package {package} has no shared library")


def _installed(device: str) -> str | None:
    wanted = _DEVICE_PLUGINS.get(device, (device.lower(),))
    for point in _entry_points():
        if any(name in point.name.lower() for name in wanted):
            return _library_in(point.value.split(":")[0])
    return None


def _create_options(device: str) -> dict[str, str | bool | int | float | list[int]]:
    if device == "CPU":
        return {"cpu_device_count": int(os.environ.get("CPU_NUM_DEVICES", "1"))}
    return {}


def resolve() -> tuple[str, str, dict[str, str | bool | int | float | list[int]]]:
    """The device type, the plugin's path and the client's options.

    Raises:
        PluginNotFoundError: no installed plugin serves `PJRT_DEVICE`.
    """
    device = os.environ.get("PJRT_DEVICE", "").upper()
    path = os.environ.get("PJRT_LIBRARY_PATH", "")
    if path:
        return device or "CUSTOM", path, _create_options(device)
    for candidate in (device,) if device else _PREFERENCE:
        library = _installed(candidate)
        if library is not None:
            return candidate, library, _create_options(candidate)
    installed = sorted({point.name for point in _entry_points()})
    raise PluginNotFoundError(
        f"no PJRT plugin for PJRT_DEVICE={device or '(unset)'} is installed; installed plugins: "
        f"{', '.join(installed) or 'none'}. For the CPU: pip install xla-cpu-pjrt"
    )
