"""The backend `xla` of torch.distributed.

    import torch_xla.distributed.xla_backend
    torch.distributed.init_process_group("xla", init_method="xla://")

With `xla://` ranks and stores are those of torch_xla.runtime; `pjrt://` is an older spelling.
Exchanges are recorded, as PyTorch's functional collectives, and are done when the program runs.
"""

# torch's stubs give some of these methods several signatures; its dispatcher calls the first.
# mypy: disable-error-code="override, assignment"

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import register_rendezvous_handler

from torch_xla import _XLAC, _other_names
from torch_xla._replicas import batch_norm, device_mesh, functional, meetings, world
from torch_xla._wrapping import to_wrap

_REDUCTIONS = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "avg",
    dist.ReduceOp.PRODUCT: "product",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
    dist.ReduceOp.BAND: "band",
    dist.ReduceOp.BOR: "bor",
    dist.ReduceOp.BXOR: "bxor",
}


class _Recorded(dist.Work):
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


def _write(tensor: Tensor, value: Tensor) -> None:
    """Below autograd, as c10d's kernels do: the tensor may be a leaf that wants a gradient."""
    tensor.data.copy_(value.detach())


class _Receiving(_Recorded):
    """The handle of tensors that are to come, from one member or, without `src`, from whose comes
    first. It is recorded when somebody waits, so that what is sent in the meantime is not behind
    it; of those that may take the same message, the first is recorded first."""

    def __init__(
        self,
        queue: list[_Receiving],
        tensors: Sequence[Tensor],
        src: int | None,
        tag: int,
        group: meetings.Group,
    ) -> None:
        super().__init__(tensors)
        self._tensors, self._src, self._tag, self._group = tensors, src, tag, group
        self._queue = queue
        queue.append(self)

    def wait(self, timeout: Any = None) -> bool:
        if self in self._queue:
            for earlier in self._queue[: self._queue.index(self)]:
                if earlier._src is None or self._src in (None, earlier._src):
                    earlier.wait()
            self._queue.remove(self)
            self._record()
        return super().wait(timeout)

    def _record(self) -> None:
        for tensor in self._tensors:
            if self._src is None:
                self._src = functional.find_sender(tensor, self._tag, self._group)
            received = functional.recv(tensor, self._src, self._tag, self._group)
            _write(tensor, received)
            functional.compute_apart(tensor)

    def _source_rank(self) -> int:
        self.wait()
        return int(self._src)  # type: ignore[arg-type]


def _copy_all(what: str, outputs: Sequence[Tensor], values: Sequence[Tensor]) -> _Recorded:
    if len(outputs) != len(values):
        raise ValueError(f"{what}: expected {len(values)} outputs, got {len(outputs)}")
    for output, value in zip(outputs, values, strict=True):
        expected, found = (
            (tensor.device.type, tensor.dtype, tensor.numel()) for tensor in (value, output)
        )
        if expected != found:
            raise ValueError(
                f"{what}: an output must be on {expected[0]}, of {expected[1]} and "
                f"{expected[2]} elements, got one on {found[0]}, of {found[1]} and {found[2]}"
            )
        _write(output, value.reshape(output.shape))
    return _Recorded(outputs)


def _flat(lists: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    return [tensor for each in lists for tensor in each]


def _listed(tensors: Any) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _reduction(opts: Any) -> str:
    op = getattr(opts, "reduceOp", dist.ReduceOp.SUM) if opts is not None else dist.ReduceOp.SUM
    for known, name in _REDUCTIONS.items():
        if op == known:
            return name
    raise NotImplementedError(f"the backend xla does not reduce with {op}")


class ProcessGroupXla(dist.ProcessGroup):
    """The exchanges of a group's members.

    Args:
        options: c10d's: rank, size and name of the group, and the ranks of its members in the job.
    """

    def __init__(self, options: Any) -> None:
        if world.place_among_threads() is not None:
            raise NotImplementedError(
                "the backend xla: torch.distributed knows one replica for each process, and this "
                "one has several, in threads; use torch_xla.core.xla_model"
            )
        rank, size = options.group_rank, options.group_size
        super().__init__(rank, size)  # type: ignore[call-arg]
        members = options.global_ranks_in_group or range(size)
        if size > 1 and size > world.world_size():
            raise RuntimeError(
                f"the backend xla: the group has {size} members, and this process knows of "
                f"{world.world_size()} replicas; RANK and WORLD_SIZE must say so before the start"
            )
        self._group = meetings.group_of(members)
        self._number = rank
        self._id = options.group_id
        self._receiving: dict[int, list[_Receiving]] = {}  # not waited for, in order, by tag
        # Functional collectives, as DTensor's, name the group as c10d does. What was recorded with
        # an earlier group of that name means that one.
        meetings.launch_recorded()
        _XLAC._add_group(self._id, self._group.alias, self._group.members, 0)

    def _get_backend(self, device: torch.device) -> Any:
        # A group of this kind does by itself what others have backends for. PyTorch 2.15 asks that
        # of `batch_isend_irecv`, and finds no `supports_coalescing`.
        return self if device.type == "xla" else super()._get_backend(device)

    def getBackendName(self) -> str:  # noqa: N802 (torch's name)
        return "xla"

    def getGroupName(self) -> str:  # noqa: N802 (torch's name)
        return str(self._id)

    @property
    def group_name(self) -> str:
        return str(self._id)

    @property
    def pg_name(self) -> str:
        return "xla"

    def _root(self, what: str, opts: Any) -> int:
        root = 0 if opts is None else opts if isinstance(opts, int) else int(opts.rootRank)
        if not 0 <= root < self._group.size:
            raise ValueError(f"{what}: there is no member {root}, the group has {self._group.size}")
        return root

    def allreduce(self, tensors: Any, all_reduce_options: Any = None) -> Any:
        given = _listed(tensors)
        functional.all_reduce_(given, _reduction(all_reduce_options), self._group.name)
        return _Recorded(given)

    allreduce_coalesced = allreduce

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        given, root = _listed(tensors), self._root("broadcast", opts)
        for tensor in given:
            functional.broadcast_(tensor, root, self._group.name)
        return _Recorded(given)

    def reduce(self, tensors: list[Tensor], opts: Any = None) -> Any:
        # Programs of all members are alike, so all of them get what the root is to have.
        meetings.launch_apart()
        root = self._root("reduce", opts)
        reduced = [
            functional.all_reduce(tensor, _reduction(opts), self._group.name) for tensor in tensors
        ]
        return self._for_root("reduce", root, tensors, reduced, tensors)

    def _for_root(
        self,
        what: str,
        root: int,
        outputs: Sequence[Tensor],
        values: Sequence[Tensor],
        given: Sequence[Tensor],
    ) -> Any:
        """The root alone writes what all members have computed."""
        meetings.launch_apart()
        if self._number != root:
            return _Recorded(given)
        written = _copy_all(what, outputs, values)
        meetings.launch_apart()
        return written

    def _gathered(self, tensor: Tensor) -> list[Tensor]:
        return list(functional.all_gather(tensor, self._group.size, self._group.name).unbind(0))

    def allgather(
        self,
        output_tensors_list: list[list[Tensor]],
        input_tensors: list[Tensor],
        opts: Any = None,
    ) -> Any:
        del opts
        values = [part for tensor in input_tensors for part in self._gathered(tensor)]
        return _copy_all("all_gather", _flat(output_tensors_list), values)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        del opts
        return _copy_all("all_gather_single", [output], [torch.stack(self._gathered(input))])

    def all_gather_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Any:
        del opts
        gathered = [torch.stack(self._gathered(tensor)) for tensor in inputs]
        return _copy_all("all_gather_single", outputs, gathered)

    def gather(
        self,
        output_tensors_list: list[list[Tensor]],
        input_tensor_list: list[Tensor],
        opts: Any = None,
    ) -> Any:
        root = self._root("gather", opts)
        meetings.launch_apart()
        values = [part for tensor in input_tensor_list for part in self._gathered(tensor)]
        outputs = _flat(output_tensors_list)
        return self._for_root("gather", root, outputs, values, input_tensor_list)

    def scatter(
        self,
        output_tensor_list: list[Tensor],
        input_tensors_list: list[list[Tensor]],
        opts: Any = None,
    ) -> Any:
        size, root = self._group.size, self._root("scatter", opts)
        meetings.launch_apart()
        if self._number == root:
            sent = [torch.stack(parts) for parts in input_tensors_list]
        else:
            sent = [output.new_zeros((size, *output.shape)) for output in output_tensor_list]
        meetings.launch_apart()
        for stacked in sent:
            functional.broadcast_(stacked, root, self._group.name)
        own = [stacked[self._number] for stacked in sent]
        return _copy_all("scatter", output_tensor_list, own)

    def _reduced_part(self, parts: Tensor, opts: Any) -> Tensor:
        """This member's of the parts, [members, ...], reduced."""
        return functional.reduce_scatter(
            parts, _reduction(opts), self._group.size, self._group.name
        )

    def reduce_scatter(
        self,
        output_tensors: list[Tensor],
        input_tensors_list: list[list[Tensor]],
        opts: Any = None,
    ) -> Any:
        return _copy_all(
            "reduce_scatter",
            output_tensors,
            [self._reduced_part(torch.stack(parts), opts) for parts in input_tensors_list],
        )

    reduce_scatter_coalesced = reduce_scatter

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Any:
        size = self._group.size
        parts = [self._reduced_part(tensor.reshape(size, -1), opts) for tensor in inputs]
        return _copy_all("reduce_scatter_single", outputs, parts)

    def alltoall(
        self, output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], opts: Any = None
    ) -> Any:
        del opts
        flat = torch.cat([tensor.reshape(-1) for tensor in input_tensor_list])
        sizes = [output.numel() for output in output_tensor_list]
        received = self._exchanged(flat, sizes, [tensor.numel() for tensor in input_tensor_list])
        return _copy_all("all_to_all", output_tensor_list, received.split(sizes))

    def _exchanged(self, tensor: Tensor, output_sizes: list[int], input_sizes: list[int]) -> Tensor:
        return functional.all_to_all_of_own_sizes(
            tensor, output_sizes, input_sizes, self._group.name
        )

    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: list[int],
        input_split_sizes: list[int],
        opts: Any = None,
    ) -> Any:
        del opts
        size, name = self._group.size, self._group.name
        outputs = output_split_sizes or [output.size(0) // size] * size
        inputs = input_split_sizes or [input.size(0) // size] * size
        if output_split_sizes or input_split_sizes:
            received = self._exchanged(input, outputs, inputs)
        else:
            received = functional.all_to_all(input, outputs, inputs, name)
        return _copy_all("all_to_all_single", [output], [received])

    Options = _other_names.Refused(
        "torch_xla.distributed.xla_backend.ProcessGroupXla.Options",
        "the backend has no options of its own",
        "pass no pg_options",
    )

    # The names that DDP, in C++, and older callers use.
    allgather_coalesced = allgather
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    def barrier(self, opts: Any = None) -> Any:
        del opts
        meetings.gather(f"barrier {self._id}", b"", self._group.members)
        return _Recorded([])

    def send(self, tensors: list[Tensor], dst_rank: int, tag: int = 0) -> Any:
        """Start what leads to the tensors, which are then sent. Nobody waits for the receiver."""
        for tensor in tensors:
            functional.send(tensor, dst_rank, tag, self._group)
            meetings.launch_recorded()
        return _Recorded(tensors)

    def recv(self, out_tensors: list[Tensor], src_rank: int, tag: int = 0) -> Any:
        """What comes is taken when the handle is waited for, in the order of the calls."""
        return self._receives(out_tensors, src_rank, tag)

    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> Any:
        """The same of what comes first from any member; the handle's `_source_rank()` is its place
        in the group. To wait for it is a barrier."""
        return self._receives(tensors, None, tag)

    def _receives(self, tensors: list[Tensor], src: int | None, tag: int) -> Any:
        return _Receiving(self._receiving.setdefault(tag, []), tensors, src, tag, self._group)


def new_xla_process_group(
    ranks: list[int] | None = None,
    timeout: Any = None,
    backend: Any = None,
    pg_options: Any = None,
) -> Any:
    """`torch.distributed.new_group` of the backend xla."""
    return dist.new_group(ranks, timeout, backend or "xla", pg_options)


def _create(options: Any, backend_options: Any) -> ProcessGroupXla:
    del backend_options
    return ProcessGroupXla(options)


def _rendezvous(url: str, timeout: Any = None, **kwargs: Any) -> Iterator[tuple[Any, int, int]]:
    del url, timeout, kwargs
    size = world.world_size()
    shared = meetings.store() if size > 1 else torch._C._distributed_c10d.HashStore()
    yield shared, world.global_ordinal(), size


def _accept_device_id() -> None:
    """`init_process_group(device_id=torch.device("xla:0"))`: PyTorch takes the devices of its own
    accelerators there alone."""
    module: Any = dist.distributed_c10d
    original = to_wrap(module, "init_process_group")

    @functools.wraps(original)
    def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> None:
        device = kwargs.get("device_id")
        if isinstance(device, torch.device) and device.type == "xla":
            own = _XLAC._current_device()
            if device.index not in (None, own):
                raise ValueError(
                    f"init_process_group: device_id must be xla:{own}, the device of this replica, "
                    f"got {device}"
                )
            backend, kwargs["device_id"] = backend or "xla", None
        original(backend, *args, **kwargs)

    module.init_process_group = dist.init_process_group = init_process_group


def _install() -> None:
    if "XLA" not in dist.Backend.__dict__:
        dist.Backend.register_backend("xla", _create, extended_api=True, devices="xla")
        for scheme in ("xla", "pjrt"):
            register_rendezvous_handler(scheme, _rendezvous)
        device_mesh.install()
        batch_norm.install()
        _accept_device_id()


_install()
