"""Finds the PJRT plugin to use: by path, by device name, or by what is installed.

C++ knows only paths; entry points and device names are resolved here. Nothing is kept: after an
error the user may install a plugin or change a setting, and try again.
"""

from __future__ import annotations

import glob
import importlib.util
import logging
import pathlib
from typing import TYPE_CHECKING, Any

from torch_xla._settings import settings

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

CreateOptions = dict[str, Any]

_log = logging.getLogger("torch_xla")

# The first is ours: its entry points name an object with `library_path()`. Those of the others name
# packages that carry a library.
_OUR_GROUP = "torch_xla.plugins"
_GROUPS = (_OUR_GROUP, "xla_plugins", "jax_plugins")

# Which installed plugins serve a device name, as parts of entry-point names.
_DEVICE_PLUGINS = {
    "CPU": ("xla_cpu_pjrt",),
    "CUDA": ("cuda",),
    "GPU": ("cuda", "rocm"),
    "ROCM": ("rocm",),
    "TPU": ("tpu",),
    "NEURON": ("neuron", "libneuronxla"),
}

# What is tried when the user names no device, and the files that show that there is such hardware:
# a plugin may be installed where there is none.
_PREFERENCE = {
    "TPU": ("/dev/accel*", "/dev/vfio/[0-9]*"),
    "NEURON": ("/dev/neuron*",),
    "CUDA": ("/dev/nvidiactl", "/dev/dxg"),
    "ROCM": ("/dev/kfd",),
    "CPU": ("/",),
}


class PluginNotFoundError(RuntimeError):
    """No installed plugin serves the requested device."""


def _entry_points() -> list[EntryPoint]:
    from importlib.metadata import entry_points  # slow to import, and seldom needed

    return [point for group in _GROUPS for point in entry_points(group=group)]


def _library_in(package: str) -> str:
    """The shared library that a plugin package carries."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        for pattern in ("*pjrt*.so", "*plugin*.so", "libtpu.so", "*.so"):
            for library in sorted(pathlib.Path(folder).glob(pattern)):
                return str(library)
    raise PluginNotFoundError(f"the installed plugin package {package} carries no shared library")


def _from_entry_point(point: EntryPoint) -> tuple[str, CreateOptions]:
    if point.group != _OUR_GROUP:
        return _library_in(point.value.split(":")[0]), {}
    plugin = point.load()
    if isinstance(plugin, type):
        plugin = plugin()
    options = getattr(plugin, "client_create_options", dict)
    return str(plugin.library_path()), dict(options())


def _installed(device: str) -> tuple[str, CreateOptions] | None:
    wanted = _DEVICE_PLUGINS.get(device, (device.lower(),))
    for point in _entry_points():
        if any(name in point.name.lower() for name in wanted):
            return _from_entry_point(point)
    return None


def _is_present(device: str) -> bool:
    return any(glob.glob(pattern) for pattern in _PREFERENCE[device])


def resolve() -> tuple[str, str, CreateOptions]:
    """The device type, the plugin's path and the client's options. Loads no plugin.

    Raises:
        PluginNotFoundError: no installed plugin serves `PJRT_DEVICE`, or there is none at all.
    """
    wanted = str(settings.pjrt_device).upper()
    path = str(settings.pjrt_library_path)
    if path:
        if not pathlib.Path(path).is_file():
            raise PluginNotFoundError(f"PJRT_LIBRARY_PATH={path}: there is no such file")
        return wanted or "CUSTOM", path, {}
    for device in [wanted] if wanted else filter(_is_present, _PREFERENCE):
        found = _installed(device)
        if found is not None:
            if not wanted:
                _log.info("PJRT_DEVICE is not set; using %s", device)
            return device, *found
    names = ", ".join(sorted({point.name for point in _entry_points()}))
    raise PluginNotFoundError(
        f"no PJRT plugin for PJRT_DEVICE={wanted or '(unset)'} is installed; installed plugins: "
        f"{names or 'none'}. For the CPU: pip install xla-cpu-pjrt. PJRT_LIBRARY_PATH=/path/to/"
        "plugin.so takes one from anywhere"
    )
