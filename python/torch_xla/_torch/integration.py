"""What torch is told when the package is imported. docs/what_import_changes.md lists it all, with
reasons: keep the two in step. Nothing here makes a client."""

from __future__ import annotations

import atexit
import functools
import importlib
import importlib.util
import pathlib
import sys
from collections.abc import Callable, Iterable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

import torch

from torch_xla import _XLAC, _background, _torch_differences
from torch_xla._torch import (
    annotated_meshes,
    checkpointing,
    device_module,
    late_changes,
    module_moves,
    serialization,
    storages,
    streams,
)
from torch_xla._wrapping import to_wrap


def _seed_along() -> None:
    """`torch.manual_seed` and `torch.seed` seed xla devices too. Both call this function of
    torch for devices that it does not know."""
    random = torch.random
    original = to_wrap(random, "_seed_custom_device", random.manual_seed, random.seed)

    @functools.wraps(original)
    def _seed_custom_device(seed: int) -> None:
        original(seed)
        device_module._seed_with_torch(seed)

    torch.random._seed_custom_device = _seed_custom_device


def _announce_devices(function: str, modules: Iterable[str]) -> None:
    """Add xla to the devices that `function` of torch lists, in every module that imported it.

    By name: `torch.optim` hides some of its modules. Each has its own reference to the function.
    """
    loaded = [importlib.import_module(f"torch.{module}") for module in modules]
    for module in loaded[1:]:
        to_wrap(module, function)
    original = to_wrap(loaded[0], function)

    @functools.wraps(original)
    def with_xla(*args: Any, **kwargs: Any) -> list[str]:
        return list(dict.fromkeys([*original(*args, **kwargs), "xla"]))

    for module in loaded:
        setattr(module, function, with_xla)


def _announce_optimizer_kernels() -> None:
    """Optimizers and gradient clipping use the `_foreach_` operators by default: one recorded node
    per list in the place of one per parameter. With `fused=True` it is one per optimizer step, and
    with `capturable=True` the optimizer's count of steps is on the device."""
    lists = ["utils._foreach_utils", "optim.optimizer"]
    _announce_devices("_get_foreach_kernels_supported_devices", [*lists, "optim.swa_utils"])
    _announce_devices("_get_fused_kernels_supported_devices", lists)
    with_capturable = ("adadelta", "adam", "adamax", "asgd", "nadam", "radam", "rmsprop", "rprop")
    _announce_devices(
        "_get_capturable_supported_devices",
        ["optim.optimizer", *(f"optim.{name}" for name in with_capturable)],
    )


def _copy_where_the_cpu_copies() -> None:
    """`Tensor.contiguous()` returns the tensor itself where `is_contiguous()` is true, which it is
    for most xla tensors, so that a write to the result would reach the tensor. Here the strides
    decide."""
    original: Callable[..., torch.Tensor] = to_wrap(torch.Tensor, "contiguous")

    @functools.wraps(original)
    def contiguous(
        self: torch.Tensor, memory_format: torch.memory_format = torch.contiguous_format
    ) -> torch.Tensor:
        if self.is_xla:  # type: ignore[attr-defined]
            return _XLAC._contiguous(self, memory_format)
        return original(self, memory_format=memory_format)

    torch.Tensor.contiguous = contiguous  # type: ignore[method-assign,assignment]


def _teach_control_flow() -> None:
    """`torch.cond` and `torch._higher_order_ops.while_loop` become loops and branches of the
    program."""
    from torch._higher_order_ops.cond import cond_op
    from torch._higher_order_ops.while_loop import while_loop_op

    def cond(*args: Any, **kwargs: Any) -> Any:
        from torch_xla._capture import loops

        return loops.cond_operator(*args, **kwargs)

    def while_loop(*args: Any, **kwargs: Any) -> Any:
        from torch_xla._capture import loops

        return loops.while_loop_operator(*args, **kwargs)

    cond_op.py_impl(torch._C.DispatchKey.XLA)(cond)
    while_loop_op.py_impl(torch._C.DispatchKey.XLA)(while_loop)


def _number_fake_devices() -> None:
    """A fake tensor made on "xla", as by `torch.ones(2, device="xla")` in a compiled function, is
    on the current device. PyTorch gives a number to devices of its own kinds alone, and takes "xla"
    and "xla:0" for two."""
    late_changes.when_imported(
        "torch._subclasses.fake_tensor", _torch_differences.number_fake_devices
    )


class _FinderOfOpenxla(MetaPathFinder):
    """Finds our `openxla.py`, which registers "openxla" with Dynamo, in PyTorch's place."""

    module = "torch._dynamo.backends.torchxla"

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != self.module:
            return None
        origin = pathlib.Path(__file__).with_name("openxla.py")
        return importlib.util.spec_from_file_location(name, origin)


def _serve_openxla() -> None:
    """`torch.compile(backend="openxla")` is ours. Importing Dynamo here would take a second."""
    if _FinderOfOpenxla.module in sys.modules:
        importlib.import_module("torch_xla._torch.openxla")
    else:
        sys.meta_path.insert(0, _FinderOfOpenxla())


def _resolve_plugin() -> Any:
    from torch_xla._replicas import spanning_client

    return spanning_client.resolve()


def install() -> None:
    """Connect the library to Python and torch."""
    _XLAC._set_plugin_resolver(_resolve_plugin)
    _XLAC._install_frame_source()
    # Programs under way are waited for, and the plugin's memory is given back, before the
    # interpreter takes down what they may call.
    atexit.register(_XLAC._shutdown_at_exit)
    _background.install()
    torch._register_device_module("xla", device_module)
    _seed_along()
    _announce_optimizer_kernels()
    _copy_where_the_cpu_copies()
    module_moves.install()
    serialization.install()
    storages.install()
    streams.install()
    checkpointing.install()
    late_changes.when_imported("torch.distributed.device_mesh", annotated_meshes.change)
    late_changes.install()
    _teach_control_flow()
    _number_fake_devices()
    _serve_openxla()
