"""A fixed part of the functionals and modules that Dynamo compiles and that come with three batch
sizes; `python tools/conformance --dynamic` has all of them."""

from __future__ import annotations

import dynamic
import modules
import pytest
import torch
from torch.testing._internal.common_modules import ModuleInfo
from torch.testing._internal.opinfo.core import OpInfo


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("op", dynamic.functionals()[4::20], ids=lambda op: op.full_name)
def test_functionals_agree_with_cpu(op: OpInfo):
    assert not dynamic.check_functional(op, torch.float32, 1)


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("info", modules.entries()[4::20], ids=lambda info: info.name)
def test_modules_agree_with_cpu(info: ModuleInfo):
    assert not dynamic.check_module(info, torch.float32, 1)
