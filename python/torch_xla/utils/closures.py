"""Functions that run in order: at once, or in a thread of their own."""

from torch_xla._step_closures import (
    AsyncClosureHandler as AsyncClosureHandler,
    ClosureHandler as ClosureHandler,
)
