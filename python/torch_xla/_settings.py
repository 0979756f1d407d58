"""The settings as Python attributes: `torch_xla.settings.xla_flags = "--xla_..."`.

The table is in src/base/settings.h, and docs/settings.md is made from it.
"""

from __future__ import annotations

import os

from torch_xla import _XLAC


class Settings:
    """One attribute per row of docs/settings.md. What is assigned holds from then on; until then
    the environment variable does, which is read when the setting is first used."""

    def __getattr__(self, name: str) -> bool | int | str:
        if name.startswith("_"):
            raise AttributeError(name)
        return _XLAC._get_setting(name)

    def __setattr__(self, name: str, value: object) -> None:
        if not isinstance(value, (bool, int, str, os.PathLike)):
            kind = type(_XLAC._get_setting(name)).__name__
            raise TypeError(f"torch_xla.settings.{name} must be a {kind}, got {value!r}")
        text = str(int(value)) if isinstance(value, int) else os.fspath(value)
        _XLAC._set_setting(name, text)

    def __dir__(self) -> list[str]:
        return _XLAC._setting_names()

    def __repr__(self) -> str:
        rows = (f"  {name} = {getattr(self, name)!r}\n" for name in dir(self))
        return f"torch_xla.settings:\n{''.join(rows)}"

    def _reload(self) -> None:
        """Forget every value, so that the environment is read again."""
        _XLAC._reload_settings()


settings = Settings()
