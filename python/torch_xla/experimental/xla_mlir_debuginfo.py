"""Names of one's own on the operations of an exported program, for tools that read them back.

They stand in the program's locations, which are exported with
`StableHLOExportOptions(export_node_metadata=True)`.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_xla import _XLAC, _other_names

_library = torch.library.Library("xla", "FRAGMENT")
_library.define("write_mlir_debuginfo(Tensor x, str data) -> Tensor")


@torch.library.impl(_library, "write_mlir_debuginfo", "CompositeExplicitAutograd")
def _write(x: torch.Tensor, data: str) -> torch.Tensor:
    if _XLAC._is_xla_tensor(x):
        _XLAC._set_xla_custom_op_name_prefix(x, data, 0)
    return x.clone()


def _differentiate(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
    return grad, None


torch.library.register_fake(
    "xla::write_mlir_debuginfo", lambda x, data: torch.empty_like(x), lib=_library
)
torch.library.register_autograd("xla::write_mlir_debuginfo", _differentiate, lib=_library)


def write_mlir_debuginfo(x: torch.Tensor, data: str) -> torch.Tensor:
    """The tensor; what computes it has a location in the program that begins with `data`."""
    result: torch.Tensor = torch.ops.xla.write_mlir_debuginfo(x, data)
    return result


__getattr__ = _other_names.refusing(__name__)
