"""The modules that programs import as `torch_xla.core.<name>`."""

from typing import TYPE_CHECKING

from torch_xla import _submodules

if TYPE_CHECKING:
    from torch_xla.core import dynamo_bridge as dynamo_bridge
    from torch_xla.core import functions as functions
    from torch_xla.core import xla_builder as xla_builder
    from torch_xla.core import xla_env_vars as xla_env_vars
    from torch_xla.core import xla_model as xla_model
    from torch_xla.core import xla_op_registry as xla_op_registry


__getattr__ = _submodules.importing(__name__)
