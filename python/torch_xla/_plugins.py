"""Finds the PJRT plugin to use: by path, by device name, or by what is installed.

C++ knows only paths; entry points and device names are resolved here. Nothing is kept: after an
error the user may install a plugin or change a setting, and try again.
"""

from __future__ import annotations

import functools
import glob
import importlib.util
import logging
import os
import pathlib
from typing import TYPE_CHECKING, Any

from torch_xla import _XLAC
from torch_xla._settings import settings

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

CreateOptions = dict[str, Any]
Place = tuple[int, int] | None

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

# Packages to install for a device.
_PACKAGES = {
    "CPU": "xla-cpu-pjrt",
    "CUDA": "jax-cuda13-pjrt, or jax-cuda12-pjrt for older drivers",
    "GPU": "jax-cuda13-pjrt, or jax-rocm7-pjrt for AMD's",
    "ROCM": "jax-rocm7-pjrt",
    "TPU": "libtpu",
    "NEURON": "the PJRT plugin of AWS Neuron",
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


# By device name in capitals, as `experimental.plugins.register_plugin` got them.
_registered: dict[str, Any] = {}


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


def register(name: str, plugin: Any) -> None:
    """Let `plugin` serve the device `name`.

    Raises:
        RuntimeError: a device of that kind is in use already.
    """
    if _XLAC._xla_runtime_is_initialized() and _XLAC._device_type() == name.upper():
        raise RuntimeError(f"register_plugin({name!r}): that device is in use already")
    _registered[name.upper()] = plugin


def registered(name: str) -> Any:
    """What `register` got for the device, or None."""
    return _registered.get(name.upper())


def load_installed() -> dict[str, Any]:
    """The plugins of our entry points, by the device that each serves."""
    points = (point for point in _entry_points() if point.group == _OUR_GROUP)
    return {point.name.upper(): _load(point) for point in points}


def _load(point: EntryPoint) -> Any:
    plugin = point.load()
    return plugin() if isinstance(plugin, type) else plugin


def needs_coordinator(device: str) -> bool:
    """Whether processes of one job find each other by our store: a plugin in Python says so."""
    plugin = registered(device)
    return plugin is None or bool(getattr(plugin, "requires_xla_coordinator", bool)())


def _configure(plugin: Any, place: Place) -> None:
    """Before the client is made: the plugin may set environment variables that it reads."""
    if place is None or not hasattr(plugin, "configure_multiprocess"):
        getattr(plugin, "configure_single_process", lambda: None)()
        return
    number, count = place
    able = plugin.configure_multiprocess(number, count)
    if able != count:
        raise RuntimeError(
            f"{type(plugin).__name__} can run {able} processes on this host, and there are {count}"
        )


def _spec_of(plugin: Any, place: Place) -> tuple[str, CreateOptions]:
    _configure(plugin, place)
    options = getattr(plugin, "client_create_options", dict)
    return str(plugin.library_path()), dict(options())


def _from_entry_point(point: EntryPoint, place: Place) -> tuple[str, CreateOptions]:
    if point.group != _OUR_GROUP:
        return _library_in(point.value.split(":")[0]), {}
    return _spec_of(_registered.setdefault(point.name.upper(), _load(point)), place)


def _library_for(device: str) -> str:
    """The path that a variable such as TPU_LIBRARY_PATH gives for the device."""
    paths = {
        "TPU": settings.tpu_library_path,
        "XPU": settings.xpu_library_path,
        "NEURON": settings.neuron_library_path,
    }
    path = str(paths.get(device, ""))
    if path and not pathlib.Path(path).is_file():
        raise PluginNotFoundError(f"{device}_LIBRARY_PATH={path}: there is no such file")
    return path


def _uses(point: EntryPoint) -> bool:
    is_dynamic = settings.dynamic_plugins and settings.register_installed_plugins
    return point.group != _OUR_GROUP or bool(is_dynamic)


@functools.cache  # one device is asked for often
def _say(text: str) -> None:
    _log.warning(text)


def _serving(device: str) -> EntryPoint | None:
    """The installed plugin of a device. Of several, those of our group come first, and then the
    one whose name is last, as xla_cuda13 beside xla_cuda12: not the one that a path lists first."""
    wanted = _DEVICE_PLUGINS.get(device, (device.lower(),))
    points = [p for p in filter(_uses, _entry_points()) if any(w in p.name.lower() for w in wanted)]
    points = [point for point in points if point.group == points[0].group]
    if not points:
        return None
    chosen = max(points, key=lambda point: point.name)
    others = sorted({f"{point.name} ({point.value})" for point in points if point != chosen})
    if others:
        _say(
            f"torch_xla: {chosen.name} ({chosen.value}) is the plugin for {device}; installed for "
            f"it as well: {', '.join(others)}. Uninstall one, or name the library by "
            "PJRT_LIBRARY_PATH"
        )
    return chosen


def _installed(device: str, place: Place) -> tuple[str, CreateOptions] | None:
    if settings.dynamic_plugins and device in _registered:
        return _spec_of(_registered[device], place)
    path = _library_for(device)
    if path:
        return path, {}
    point = _serving(device)
    return _from_entry_point(point, place) if point is not None else None


def _is_present(device: str) -> bool:
    return any(glob.glob(pattern) for pattern in _PREFERENCE[device])


def _advised(device: str) -> str:
    """What to install for a device; for all that are known where it is none of them."""
    if device in _PACKAGES:
        return f"{device}: install {_PACKAGES[device]}"
    return "; for ".join(f"{known}: install {package}" for known, package in _PACKAGES.items())


def _kind_by_name(path: str) -> str:
    """The device that a library serves if it is one of a plugin that is known by name, else "":
    what the plugin itself says once it is loaded."""
    name = pathlib.Path(path).name.lower()
    serving = (d for d, parts in _DEVICE_PLUGINS.items() if any(part in name for part in parts))
    return next(serving, "")


def resolve(place: Place = None) -> tuple[str, str, CreateOptions]:
    """The device type, the plugin's path and the client's options. Loads no plugin. Of several
    processes on this host, `place` is the number of this one, and how many they are.

    The type is "" where `PJRT_LIBRARY_PATH` alone names a library that is not known by its name:
    the plugin's platform says it then.

    Raises:
        PluginNotFoundError: no installed plugin serves `PJRT_DEVICE`, or there is none at all.
    """
    # XLA's log begins with notes; who sets the variable gets what it says.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    wanted = str(settings.pjrt_device).upper()
    path = str(settings.pjrt_library_path)
    if path:
        if not pathlib.Path(path).is_file():
            raise PluginNotFoundError(f"PJRT_LIBRARY_PATH={path}: there is no such file")
        return wanted or _kind_by_name(path), path, {}
    if not wanted and not settings.select_default_device:
        raise PluginNotFoundError(
            "PJRT_DEVICE is not set, and PJRT_SELECT_DEFAULT_DEVICE=0 says not to choose one"
        )
    for device in [wanted] if wanted else filter(_is_present, _PREFERENCE):
        found = _installed(device, place)
        if found is not None:
            if not wanted:
                _log.info("PJRT_DEVICE is not set; using %s", device)
            return device, *found
    names = ", ".join(sorted({*_registered, *(point.name for point in _entry_points())}))
    raise PluginNotFoundError(
        f"no PJRT plugin for PJRT_DEVICE={wanted or '(unset)'} is installed; installed plugins: "
        f"{names or 'none'}. For {_advised(wanted)}. PJRT_LIBRARY_PATH=/path/to/plugin.so takes "
        "one from anywhere"
    )
