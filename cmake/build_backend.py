"""The backend by which `pip install .` builds: scikit-build-core's, for the installed torch.

pip builds in an environment of its own, which does not see what is installed. A torch of its own
choice there would make libraries that the installed one can't load, so one is asked for only where
none is installed.
"""

import tomllib
from pathlib import Path
from typing import Any

from locate_packages import PACKAGES, directory_of
from scikit_build_core import build
from scikit_build_core.build import (
    build_editable as build_editable,
    build_sdist as build_sdist,
    build_wheel as build_wheel,
    get_requires_for_build_sdist as get_requires_for_build_sdist,
    prepare_metadata_for_build_editable as prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel as prepare_metadata_for_build_wheel,
)


def _torch_unless_installed() -> list[str]:
    if directory_of(PACKAGES["TORCH"]) is not None:
        return []
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    return [each for each in project["dependencies"] if each.startswith("torch>")]


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    return [*build.get_requires_for_build_wheel(config_settings), *_torch_unless_installed()]


def get_requires_for_build_editable(config_settings: dict[str, Any] | None = None) -> list[str]:
    return [*build.get_requires_for_build_editable(config_settings), *_torch_unless_installed()]
