"""Mixed precision: `autocast`, `GradScaler`, and optimizers that skip a step without asking the
host. `torch.autocast("xla")` and `torch.amp.GradScaler("xla")` work too; docs/mixed_precision.md
says what differs."""

from typing import TYPE_CHECKING

from torch_xla import _submodules
from torch_xla.amp import syncfree
from torch_xla.amp.autocast_mode import autocast
from torch_xla.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "syncfree"]

if TYPE_CHECKING:
    from torch_xla.amp import (
        autocast_mode as autocast_mode,
        grad_scaler as grad_scaler,
        syncfree as syncfree,
    )


__getattr__ = _submodules.importing(__name__)
