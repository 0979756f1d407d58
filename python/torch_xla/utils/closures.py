"""Functions that run in a thread of their own, in order."""

from torch_xla._step_closures import AsyncClosureHandler as AsyncClosureHandler
