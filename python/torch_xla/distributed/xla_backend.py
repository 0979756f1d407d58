"""The backend `xla` of torch.distributed, of one replica.

    import torch_xla.distributed.xla_backend
    torch.distributed.init_process_group("xla", init_method="xla://")

Ranks and stores come from torch_xla.runtime. `pjrt://` is an older spelling of `xla://`.
"""

# torch's stubs give some of these methods several signatures; its dispatcher calls the first.
# mypy: disable-error-code="override, assignment"

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import register_rendezvous_handler

from torch_xla._replicas import world


class _Done(dist.Work):
    """The handle of an exchange that was recorded."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        super().__init__()
        self._future: torch.futures.Future[list[Tensor]] = torch.futures.Future()
        self._future.set_result(list(tensors))

    def wait(self, timeout: Any = None) -> bool:
        del timeout
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def get_future(self) -> Any:
        return self._future

    def result(self) -> list[Tensor]:
        return self._future.value()


def _copy_all(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> _Done:
    for output, value in zip(outputs, inputs, strict=True):
        output.copy_(value.reshape(output.shape))
    return _Done(outputs)


def _check_alone(what: str, rank: int) -> None:
    if rank != 0:
        raise ValueError(f"{what}: there is no rank {rank}, the group has one replica")


class ProcessGroupXla(dist.ProcessGroup):
    """The exchanges of one replica with itself."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        if size != 1:
            raise NotImplementedError(
                f"the backend xla serves one replica so far, and the group has {size}"
            )
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._store = store

    def getBackendName(self) -> str:  # noqa: N802 (torch's name)
        return "xla"

    @property
    def pg_name(self) -> str:
        return "xla"

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        del opts
        return _Done([tensors] if isinstance(tensors, Tensor) else tensors)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> Any:
        del opts
        return _Done(tensors)

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        root = 0 if opts is None else opts if isinstance(opts, int) else opts.rootRank
        _check_alone("broadcast", root)
        return _Done([tensors] if isinstance(tensors, Tensor) else tensors)

    def reduce(self, tensors: list[Tensor], opts: Any = None) -> Any:
        _check_alone("reduce", getattr(opts, "rootRank", 0))
        return _Done(tensors)

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Any:
        del opts
        return _copy_all([output for (output,) in outputs], inputs)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        del opts
        return _copy_all([output], [input])

    def all_gather_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Any:
        del opts
        return _copy_all(outputs, inputs)

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Any:
        _check_alone("gather", getattr(opts, "rootRank", 0))
        return self.allgather(outputs, inputs)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None) -> Any:
        _check_alone("scatter", getattr(opts, "rootRank", 0))
        return _copy_all(outputs, [value for (value,) in inputs])

    def reduce_scatter(
        self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None
    ) -> Any:
        del opts
        return _copy_all(outputs, [value for (value,) in inputs])

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        del opts
        return _copy_all([output], [input])

    def reduce_scatter_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Any:
        del opts
        return _copy_all(outputs, inputs)

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        del opts
        return _copy_all(outputs, inputs)

    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: list[int],
        input_split_sizes: list[int],
        opts: Any = None,
    ) -> Any:
        del output_split_sizes, input_split_sizes, opts
        return _copy_all([output], [input])

    # The names that DDP, in C++, and older callers use.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    def barrier(self, opts: Any = None) -> Any:
        del opts
        return _Done([])

    def send(self, tensors: list[Tensor], dst: int, tag: int) -> Any:
        del tensors, tag
        raise ValueError(f"send: there is no other rank to send to, got {dst}")

    def recv(self, tensors: list[Tensor], src: int, tag: int) -> Any:
        del tensors, tag
        raise ValueError(f"recv: there is no other rank to receive from, got {src}")


def _create(store: Any, rank: int, size: int, timeout: Any) -> ProcessGroupXla:
    del timeout
    return ProcessGroupXla(store, rank, size)


def _rendezvous(url: str, timeout: Any = None, **kwargs: Any) -> Iterator[tuple[Any, int, int]]:
    del url, timeout, kwargs
    yield torch._C._distributed_c10d.HashStore(), world.global_ordinal(), world.world_size()


def _install() -> None:
    if "XLA" not in dist.Backend.__dict__:
        dist.Backend.register_backend("xla", _create, devices="xla")
        for scheme in ("xla", "pjrt"):
            register_rendezvous_handler(scheme, _rendezvous)


_install()
