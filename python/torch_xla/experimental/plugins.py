"""Devices of other packages: a `DevicePlugin` says where the PJRT library is and what it wants.

    class MyPlugin(plugins.DevicePlugin):
        def library_path(self):
            return "/opt/mydevice/pjrt.so"

    plugins.register_plugin("MYDEVICE", MyPlugin())

With an entry point in the group `torch_xla.plugins` a package's plugin is found without that call.
docs/dev/plugins.md says more.
"""

from __future__ import annotations

from typing import Any

from torch_xla import _plugins, runtime
from torch_xla._settings import settings


class DevicePlugin:
    """A kind of device. Only `library_path` must be overridden."""

    def library_path(self) -> str:
        """The shared library that exports `GetPjrtApi`."""
        raise NotImplementedError(f"{type(self).__name__} does not say its library_path()")

    def host_index(self) -> int:
        """The number of this host among all of the job."""
        return 0

    def configure_single_process(self) -> None:
        """Prepare this process to drive one device. Called before the client is made."""

    def configure_multiprocess(self, local_rank: int, local_world_size: int) -> int:
        """Prepare this process to be one of `local_world_size` on its host.

        Returns:
            How many processes there are; another number than was asked for is an error.
        """
        del local_rank
        return local_world_size

    def physical_chip_count(self) -> int:
        """How many chips the host has."""
        return 1

    def client_create_options(self) -> dict[str, Any]:
        """What is passed to the library when the client is made."""
        return {}

    def requires_xla_coordinator(self) -> bool:
        """Whether processes of one job need a service to find each other."""
        return False


def use_dynamic_plugins(enable: bool = True) -> None:
    """Use plugins that are registered here, or not; they are used by default."""
    settings.dynamic_plugins = enable


def using_dynamic_plugins() -> bool:
    """Whether plugins that are registered here are used."""
    return bool(settings.dynamic_plugins)


def register_plugin(name: str, device_plugin: DevicePlugin) -> None:
    """Make `PJRT_DEVICE=name` mean this plugin. Later calls with a name replace earlier ones.

    Raises:
        RuntimeError: a device of that kind is in use already.
        TypeError: the name is no text, or the plugin has no `library_path`.
    """
    if not isinstance(name, str):
        raise TypeError(f"register_plugin: expected the name of a device, got {name!r}")
    if isinstance(device_plugin, type) or not callable(
        getattr(device_plugin, "library_path", None)
    ):
        raise TypeError(
            "register_plugin: expected an object with the methods of DevicePlugin, got "
            f"{device_plugin!r}"
        )
    _plugins.register(name, device_plugin)


def register_installed_plugins() -> None:
    """Register the plugins of all entry points in the group `torch_xla.plugins` now. Without this
    call each is loaded when its device is asked for."""
    for name, plugin in _plugins.load_installed().items():
        register_plugin(name, plugin)


def default() -> DevicePlugin:
    """The registered plugin of the device in use, or that would be used.

    Raises:
        RuntimeError: it is no registered one.
    """
    name = runtime.device_type()
    plugin = _plugins.registered(name)
    if not isinstance(plugin, DevicePlugin):
        raise RuntimeError(f"the device {name} is served by no plugin that was registered here")
    return plugin
