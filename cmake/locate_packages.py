"""Prints where Python finds the packages that the build takes headers and libraries from.

One line `NAME=directory` each, for packages that are installed; nothing is imported.
"""

import importlib.util

PACKAGES = {
    "TORCH": "torch",
    "XLA_CPU_PJRT": "xla_plugins.xla_cpu_pjrt",
    "JAXLIB": "jaxlib",
}


def directory_of(package: str) -> str | None:
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return next(iter(spec.submodule_search_locations))


for name, package in PACKAGES.items():
    directory = directory_of(package)
    if directory is not None:
        print(f"{name}={directory}")
