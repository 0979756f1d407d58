"""How exactly the device computes: `torch_xla.backends.set_mat_mul_precision("highest")`."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from torch_xla._settings import settings

_Precision: TypeAlias = Literal["default", "high", "highest"]
_PRECISIONS: Final = ("default", "high", "highest")


def set_mat_mul_precision(precision: _Precision) -> None:
    """Choose how float32 matrix products and convolutions are computed from here on.

    Args:
        precision: "default", as fast as the hardware can (bfloat16 on a TPU, TF32 on a GPU),
            "high" (three passes of bfloat16), or "highest" (float32). CPUs compute in float32
            whatever it is.

    Raises:
        ValueError: it is none of these.
    """
    if precision not in _PRECISIONS:
        raise ValueError(
            f"set_mat_mul_precision: expected one of {', '.join(_PRECISIONS)}, got {precision!r}"
        )
    settings.mat_mul_precision = precision


def get_mat_mul_precision() -> str:
    """What `set_mat_mul_precision` or `XLA_MAT_MUL_PRECISION` chose."""
    return str(settings.mat_mul_precision)
