"""`torch_xla.amp.autocast`: PyTorch's autocast, chosen by a device in the place of its type."""

from __future__ import annotations

import torch


class autocast(torch.autocast):  # noqa: N801 (as in torch)
    """A context, or a decorator, in which operators run in the precision that suits them.

    Args:
        device: where the tensors are: `torch_xla.device()`, "xla:0", "xla" or any other device.
        enabled: False makes a context without autocast inside one with it.
        dtype: the lower precision: `torch.bfloat16`, the default, or `torch.float16`.
        cache_enabled: convert a parameter once per context, not at every use.
    """

    def __init__(
        self,
        device: torch.device | str,
        enabled: bool = True,
        dtype: torch.dtype | None = None,
        cache_enabled: bool | None = True,
    ) -> None:
        device_type = torch.device(device).type
        super().__init__(device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)
