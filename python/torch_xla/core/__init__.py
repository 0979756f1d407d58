"""The modules that programs import as `torch_xla.core.<name>`."""

from typing import TYPE_CHECKING

from torch_xla import _submodules

if TYPE_CHECKING:
    from torch_xla.core import (
        dynamo_bridge as dynamo_bridge,
        functions as functions,
        xla_builder as xla_builder,
        xla_env_vars as xla_env_vars,
        xla_model as xla_model,
        xla_op_registry as xla_op_registry,
    )


__getattr__ = _submodules.importing(__name__)
