"""What the command line runs in child processes. Entries go by name: they are not pickled."""

from __future__ import annotations

import dynamic
import modules
import op_samples
import op_variants
import optimizers
import split
import torch
from torch.testing._internal.common_modules import ModuleInfo
from torch.testing._internal.opinfo.core import OpInfo

__all__ = [
    "cases_of_split",
    "check_dynamic",
    "check_module",
    "check_operator",
    "check_optimizer",
    "check_split",
    "check_variants",
]


def check_operator(
    name: str, dtype: torch.dtype, with_backward: bool, samples: int | None, with_list: bool
) -> op_samples.Verdict:
    """What came of an entry's samples."""
    return op_samples.check(_entry(name), dtype, with_backward, samples, with_list)


def check_variants(
    name: str, dtype: torch.dtype, variants: tuple[str, ...], samples: int | None
) -> list[op_variants.Problem]:
    """What differs of an entry's variants; nothing where it has not the dtype."""
    op = _entry(name)
    if dtype not in op.supported_dtypes("cpu"):
        return []
    return op_variants.check(op, dtype, variants, samples)


def check_split(
    name: str, dtype: torch.dtype, samples: int | None, sizes: tuple[int, ...], *only: split.Case
) -> list[split.Problem]:
    """What is wrong with an entry whose tensors are split over a mesh, or with some cases."""
    return split.check(_entry(name), dtype, samples, only, sizes)


def cases_of_split(name: str, dtype: torch.dtype, samples: int | None) -> list[split.Case]:
    """All of them."""
    return split.cases(_entry(name), dtype, samples)


def check_module(name: str, dtype: torch.dtype) -> list[str]:
    """What is wrong with a module."""
    return modules.check(_module(name), dtype)


def check_dynamic(name: str, dtype: torch.dtype, samples: int | None) -> list[str]:
    """What is wrong with a functional or a module that Dynamo compiles for all batches."""
    if name.startswith("nn.functional."):
        return dynamic.check_functional(_entry(name), dtype, samples)
    return dynamic.check_module(_module(name), dtype, samples)


def check_optimizer(name: str) -> list[str]:
    """What is wrong with an optimizer."""
    entries = optimizers.entries()
    return optimizers.check(next(i for i in entries if optimizers.class_of(i).__name__ == name))


def _module(name: str) -> ModuleInfo:
    return next(info for info in modules.entries() if info.name == name)


def _entry(name: str) -> OpInfo:
    return next(op for op in op_samples.entries() if op.full_name == name)
