"""Mixed precision: `autocast`, `GradScaler`, and optimizers that skip a step without asking the
host. `torch.autocast("xla")` and `torch.amp.GradScaler("xla")` work too; docs/mixed_precision.md
says what differs."""

from torch_xla.amp import syncfree
from torch_xla.amp.autocast_mode import autocast
from torch_xla.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "syncfree"]
