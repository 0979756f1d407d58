"""Run by test_exchanges.py with CPU_NUM_DEVICES=n: every collective on n replicas against NumPy.
Each replica knows the inputs of all others, so it knows its results."""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

import torch_xla
import torch_xla.core.functions as xf
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_backend
import torch_xla.runtime as xr
from torch_xla import _XLAC
from torch_xla._replicas import meetings
from torch_xla.debug import metrics

DTYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint16, torch.uint32, torch.uint64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.complex64, torch.complex128, torch.float8_e4m3fn),
)
# The last has too many elements to travel with what members tell each other.
SHAPES = ((), (1,), (7,), (3, 5), (0,), (2, 0, 3), (4, 3, 2), (4100,))
# Bytes move alike whatever they stand for; EXCHANGES=all moves every shape of every dtype.
OF_EACH_SHAPE = DTYPES if os.environ.get("EXCHANGES") == "all" else (torch.bool, torch.float32)
_REDUCE = {
    "sum": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}
_XM = {xm.REDUCE_SUM: "sum", xm.REDUCE_MUL: "product", xm.REDUCE_MIN: "min", xm.REDUCE_MAX: "max"}
_XM_OF_BITS = {xm.REDUCE_AND: "band", xm.REDUCE_OR: "bor"}


def value_of(rank: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """What replica `rank` gives: small whole numbers, exact in every dtype and order."""
    count = int(np.prod(shape))
    numbers = (torch.arange(count) * 7 + rank * 3 + 1) % 5
    if dtype.is_complex:
        return (
            torch.complex(numbers.double(), (numbers * 2 - rank).double()).reshape(shape).to(dtype)
        )
    if dtype.is_floating_point or dtype.is_signed:
        numbers = numbers - 2
    return numbers.reshape(shape).to(dtype)


def as_array(tensor: Tensor) -> np.ndarray:
    if tensor.dtype in (torch.bfloat16, torch.float8_e4m3fn):
        tensor = tensor.float()
    return tensor.cpu().numpy()


def reduced(op: str, parts: Sequence[Tensor]) -> np.ndarray:
    arrays = [as_array(part) for part in parts]
    total = arrays[0]
    for array in arrays[1:]:
        total = _REDUCE[op](total, array)
    return total


def moved() -> Iterator[tuple[torch.dtype, Sequence[int]]]:
    for dtype in DTYPES:
        yield from itertools.product([dtype], SHAPES if dtype in OF_EACH_SHAPE else SHAPES[3:5])


class _Results(threading.local):
    """What was exchanged and what it must be: looked at together, so that a program has many
    exchanges. Replicas may be threads."""

    def __init__(self) -> None:
        self.all: list[tuple[str, Tensor, np.ndarray, torch.dtype]] = []


_results = _Results()


def check(what: str, actual: Tensor, expected: np.ndarray, dtype: torch.dtype) -> None:
    _results.all.append((what, actual, expected, dtype))


def look() -> None:
    torch_xla.sync()
    for what, actual, expected, dtype in _results.all:
        assert actual.dtype == dtype, f"{what}: {actual.dtype}"
        got, want = as_array(actual), np.asarray(expected)
        assert got.shape == want.shape, f"{what}: {got.shape} for {want.shape}"
        assert np.array_equal(got, want), f"{what}: {got.tolist()} for {want.tolist()}"
    _results.all.clear()


def groupings(size: int) -> Iterator[list[list[int]] | None]:
    yield None
    yield [[i] for i in range(size)]
    if size == 4:
        yield [[0, 2], [3, 1]]
        yield [[0], [1, 2, 3]]
    if size == 3:
        yield [[0, 2], [1]]


def members_of(groups: list[list[int]] | None, rank: int, size: int) -> list[int]:
    return next(g for g in groups or [list(range(size))] if rank in g)


def reductions_of(dtype: torch.dtype) -> list[str]:
    names = ["sum"]
    if not dtype.is_complex:
        names += ["product", "min", "max"]
    if not dtype.is_complex and not dtype.is_floating_point:
        names += ["band", "bor", "bxor"]
    return names


def check_reductions(rank: int, size: int) -> None:
    group = meetings.whole_group()
    for dtype, shape in itertools.product(DTYPES, SHAPES):
        if shape == SHAPES[0]:
            look()
        own = value_of(rank, shape, dtype).to("xla")
        parts = [value_of(r, shape, dtype) for r in range(size)]
        for op in reductions_of(dtype):
            got = torch.ops._c10d_functional.all_reduce(own, op, group.name)
            check(f"all_reduce {op} {dtype} {shape}", got, reduced(op, parts), dtype)
            break_off = dtype in (torch.bool, torch.float8_e4m3fn)  # numpy adds otherwise
            if shape == (4, 3, 2) and not break_off:
                check_scatters(rank, size, dtype, op)
        if dtype.is_floating_point and dtype.itemsize > 1:
            got = torch.ops._c10d_functional.all_reduce(own * size, "avg", group.name)
            check(f"all_reduce avg {dtype} {shape}", got, reduced("sum", parts), dtype)


def check_scatters(rank: int, size: int, dtype: torch.dtype, op: str) -> None:
    name = meetings.whole_group().name
    for shape in ((2 * size, 3), (size,), (3 * size, 0))[: 3 if op == "sum" else 1]:
        own = value_of(rank, shape, dtype).to("xla")
        want = reduced(op, [value_of(r, shape, dtype) for r in range(size)])
        got = torch.ops._c10d_functional.reduce_scatter_tensor(own, op, size, name)
        check(f"reduce_scatter {op} {dtype} {shape}", got, np.split(want, size)[rank], dtype)


def check_moves(rank: int, size: int) -> None:
    for dtype, shape in moved():
        if not shape:
            look()
            continue
        own = value_of(rank, shape, dtype).to("xla")
        parts = [value_of(r, shape, dtype) for r in range(size)]
        arrays = [as_array(part) for part in parts]
        what = f"{dtype} {shape}"
        for dim in range(-1, len(shape)):
            want = np.concatenate(arrays, dim)
            check(f"all_gather {dim} {what}", xm.all_gather(own, dim), want, dtype)
        sent = [own.clone()]
        xm.collective_broadcast(sent, size - 1)
        check(f"broadcast {what}", sent[0], arrays[size - 1], dtype)
        got = xm.collective_permute(own, [[i, (i + 1) % size] for i in range(size)])
        check(f"collective_permute {what}", got, arrays[(rank - 1) % size], dtype)
        got = xm.collective_permute(own, [[0, 1]])
        check(f"to one {what}", got, arrays[0] if rank == 1 else arrays[0] * 0, dtype)
        wide = own.unsqueeze(0).expand(size, *shape) if 0 not in shape else own.new_zeros(size, 0)
        got = xm.all_to_all(wide, 0, wide.dim() - 1, size)
        want = np.concatenate([as_array(p)[None] for p in parts], wide.dim() - 1)
        if 0 not in shape:
            check(f"all_to_all {what}", got, want, dtype)


def check_groups(rank: int, size: int) -> None:
    for groups in groupings(size):
        members = members_of(groups, rank, size)
        parts = [value_of(r, (4, 6), torch.float32) for r in members]
        own = value_of(rank, (4, 6), torch.float32).to("xla")
        for xm_op, op in _XM.items():
            got = xm.all_reduce(xm_op, own, scale=0.5, groups=groups)
            check(f"{groups} {op}", got, reduced(op, parts) * np.float32(0.5), torch.float32)
        listed = [own.clone(), own.double(), own[0].clone()]
        assert xm.all_reduce(xm.REDUCE_SUM, listed, groups=groups) is listed
        total = reduced("sum", parts)
        for got, want in zip(listed, (total, total.astype(np.float64), total[0]), strict=True):
            check(f"{groups} list", got, want, got.dtype)
        look()
        gathered = xm.all_gather(own, 1, groups=groups)
        check(f"{groups}", gathered, np.concatenate([p.numpy() for p in parts], 1), torch.float32)
        check_moves_in_group(groups, members, rank)


def check_moves_in_group(groups: Any, members: list[int], rank: int) -> None:
    place, count = members.index(rank), len(members)
    parts = [value_of(r, (4, 2 * count), torch.int32) for r in members]
    own = parts[place].to("xla")
    for xm_op, op in {**_XM, **_XM_OF_BITS}.items():
        want = np.split(reduced(op, parts), count, 1)[place]
        got = xm.reduce_scatter(xm_op, own, 1.0, 1, count, groups=groups)
        check(f"{groups} reduce_scatter {op}", got, want, torch.int32)
    got = xm.all_to_all(own, 1, 0, count, groups=groups)
    want = np.concatenate([np.split(part.numpy(), count, 1)[place] for part in parts])
    check(f"{groups} all_to_all", got, want, torch.int32)
    sent = [own.clone(), own.float()]
    xm.collective_broadcast(sent, members[-1], groups=groups)
    check(f"{groups} broadcast", sent[0], parts[-1].numpy(), torch.int32)
    check(f"{groups} second", sent[1], parts[-1].float().numpy(), torch.float32)


def check_functions(rank: int, size: int) -> None:
    """The rest of what `xm` and `core.functions` have."""
    parts = [value_of(r, (2 * size, 3), torch.float32) for r in range(size)]
    own, total = parts[rank].to("xla"), torch.stack(parts).sum(0)
    bits = [value_of(r, (5,), torch.int64) for r in range(size)]
    for xm_op, op in _XM_OF_BITS.items():
        got = xm.all_reduce(xm_op, bits[rank].to("xla"))
        check(op, got, reduced(op, bits), torch.int64)
    gradients = [own.clone(), own[:1] * 2]
    xm.all_reduce_bucketized_gradients(gradients, scale=0.5, bucket_cap_mb=1)
    check("bucket", gradients[0], total.numpy() / 2, torch.float32)
    check("bucket", gradients[1], total[:1].numpy(), torch.float32)
    out = [own.new_zeros(2 * size * size, 3), own.new_zeros(size, 3)]
    assert xm.all_gather_bucketized([own, own[:1]], output=out) is out
    check("gathered", out[0], torch.cat(parts).numpy(), torch.float32)
    check("gathered", out[1], torch.stack([part[0] for part in parts]).numpy(), torch.float32)
    (rows,) = xm.reduce_scatter_bucketized(xm.REDUCE_SUM, [own], 2.0, 0, size)
    check("scattered", rows, 2 * total[2 * rank : 2 * rank + 2].numpy(), torch.float32)
    leaf = own.clone().requires_grad_()
    (xf.all_gather(leaf, 1) * (rank + 1)).sum().backward()
    check("gradient", leaf.grad, np.full((2 * size, 3), size * (size + 1) / 2), torch.float32)
    leaf.grad = None
    (xf.AllReduceSumLayer.apply(leaf) * (rank + 1)).sum().backward()
    check("gradient", leaf.grad, np.full((2 * size, 3), size * (size + 1) / 2), torch.float32)
    shared = value_of(0, (2 * size, 3), torch.float32)
    columns = [part.T[:, : 2 * size] for part in parts]  # three rows of a weight for each
    got = xf.distributed_mm(columns[rank].contiguous().to("xla"), shared.to("xla"), split=2)
    check("product", got, (torch.cat(columns) @ shared).numpy(), torch.float32)
    reached = xm.mesh_reduce("ranks", {"rank": own[0, 0] * 0 + rank}, list)
    assert [each["rank"].item() for each in reached] == list(range(size))
    done: list[Any] = []
    xm.do_on_ordinals(lambda value: done.append(value), (own,), (size - 1,))
    assert len(done) == (rank == size - 1) and all(value.device.type == "cpu" for value in done)


def check_uneven(rank: int, size: int) -> None:
    """Each replica r sends r + s rows to replica s."""
    name = meetings.whole_group().name

    def rows(source: int, target: int) -> Tensor:
        return torch.full((source + target, 2), 10.0 * source + target)

    own = torch.cat([rows(rank, target) for target in range(size)]).to("xla")
    got = torch.ops._c10d_functional.all_to_all_single(
        own, [r + rank for r in range(size)], [rank + t for t in range(size)], name
    )
    want = torch.cat([rows(source, rank) for source in range(size)])
    check("uneven", got, want.numpy(), torch.float32)


def check_reads_in_the_middle(rank: int, size: int) -> None:
    """One replica reads where others do not: exchanges are made once, in their order."""
    x = torch.ones(3, device="xla") * rank
    first = xm.all_reduce(xm.REDUCE_SUM, x)
    if rank == 0:
        assert first.tolist() == [size * (size - 1) / 2] * 3
    second = xm.all_reduce(xm.REDUCE_MAX, first + x)
    if rank == size - 1:
        str(second)
    third = xm.all_reduce(xm.REDUCE_SUM, second)
    # What others wait for is launched before a replica waits for them.
    if rank == 0:
        third.cpu()
    xm.rendezvous("one has read")
    fourth = xm.all_reduce(xm.REDUCE_SUM, third)
    if rank == 0:
        fourth.cpu()
    everybody: list[Any] = [None] * size
    dist.all_gather_object(everybody, rank)
    assert everybody == list(range(size))
    torch_xla.sync()
    total = size * (size - 1) / 2
    assert third.tolist() == [size * (total + size - 1)] * 3, third.tolist()


def check_messages(rank: int, size: int) -> None:
    """Around the ring, received before and after it is sent, in order for each tag."""
    before, after = (rank - 1) % size, (rank + 1) % size
    for dtype, shape in moved():
        own = value_of(rank, shape, dtype).to("xla")
        got = torch.zeros(shape, dtype=dtype, device="xla")
        receiving = dist.irecv(got, before)
        dist.send(own, after)
        receiving.wait()
        check(f"message {dtype} {shape}", got, as_array(value_of(before, shape, dtype)), dtype)
    first, second, tagged = (torch.zeros(3, device="xla") for _ in range(3))
    works = [dist.irecv(first, before), dist.irecv(second, before)]
    works.append(dist.irecv(tagged, before, tag=5))
    for number, tag in ((7.0, 5), (1.0, 0), (2.0, 0)):
        dist.isend(torch.full((3,), number + before, device="xla"), after, tag=tag)
    for work in reversed(works):
        work.wait()
    for got, number in ((first, 1.0), (second, 2.0), (tagged, 7.0)):
        sent = number + (rank - 2) % size
        check(f"message {number}", got, np.full(3, sent, np.float32), torch.float32)
    leaf = torch.zeros(3, device="xla", requires_grad=True)
    batch = [dist.P2POp(dist.irecv, leaf, before), dist.P2POp(dist.isend, first, after)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    sent = 1.0 + (rank - 3) % size
    check("batch", leaf.detach(), np.full(3, sent, np.float32), torch.float32)
    check_messages_of_any(rank, size)
    # A channel is no tag.
    xm.send(torch.full((3,), 4.0, device="xla"), channel_id=1000 + rank)
    dist.send(torch.full((3,), 5.0, device="xla"), after, tag=1000 + rank)
    of_tag, of_channel = torch.zeros(3, device="xla"), torch.zeros(3, device="xla")
    dist.recv(of_tag, before, tag=1000 + before)
    check("tag", of_tag, np.full(3, 5), torch.float32)
    xm.recv(of_channel, channel_id=1000 + before)
    check("channel", of_channel, np.full(3, 4), torch.float32)
    if rank == 0:  # arrives, though its sender ends first
        dist.send(torch.arange(1 << 20, device="xla"), size - 1, tag=9)
    elif rank == size - 1:
        late = torch.zeros(1 << 20, dtype=torch.int64, device="xla")
        dist.recv(late, 0, tag=9)
        check("late", late, np.arange(1 << 20), torch.int64)


def check_large(rank: int, size: int) -> None:
    """In several rows of the memory that processes of one host share."""
    before = metrics.counter_value("HostMemoryExchange") or 0
    name = meetings.whole_group().name
    for dtype, count in itertools.product((torch.float32, torch.int8), (3001, 70001, 600003)):
        parts = [value_of(r, (count * size,), dtype) for r in range(size)]
        own = parts[rank].to("xla")
        arrays = [as_array(part) for part in parts]
        blocks = [array.reshape(size, count) for array in arrays]
        what = f"{dtype} {count}"
        total = reduced("sum", parts)
        got = torch.ops._c10d_functional.all_reduce(own, "sum", name)
        check(f"all_reduce {what}", got, total, dtype)
        got = torch.ops._c10d_functional.reduce_scatter_tensor(own, "sum", size, name)
        check(f"reduce_scatter {what}", got, total.reshape(size, count)[rank], dtype)
        check(f"all_gather {what}", xm.all_gather(own), np.concatenate(arrays), dtype)
        got = xm.all_to_all(own, 0, 0, size)
        check(f"all_to_all {what}", got, np.concatenate([b[rank] for b in blocks]), dtype)
        sent = [own.clone()]
        xm.collective_broadcast(sent, size - 1)
        check(f"broadcast {what}", sent[0], arrays[-1], dtype)
        look()
    assert (metrics.counter_value("HostMemoryExchange") or 0) > before


def check_pieces(rank: int, size: int) -> None:
    """Of a tensor that is too large to be shown as a whole, and of more than there is room for
    before the first result is read."""
    name = meetings.whole_group().name
    count = (33 << 20) // 4 + 3
    own = (torch.arange(count) % 1000 + rank).float()
    got = torch.ops._c10d_functional.all_reduce(own.to("xla"), "sum", name)
    gathered = xm.all_gather(own.to("xla")[: count // 7])
    total = (np.arange(count) % 1000) * size + sum(range(size))
    check("all_reduce in pieces", got, total, torch.float32)
    parts = [(np.arange(count // 7) % 1000) + r for r in range(size)]
    check("all_gather", gathered, np.concatenate(parts), torch.float32)
    look()
    of_many = [torch.full((3 << 20,), float(rank + i), device="xla") for i in range(8)]
    of_many += [torch.full((2000,), float(rank + i), device="xla") for i in range(70)]
    results = [torch.ops._c10d_functional.all_reduce(x, "max", name) for x in of_many]
    for i, result in enumerate(results):
        number = size - 1 + (i if i < 8 else i - 8)
        check(f"number {i} of many", result, np.full(result.shape, number), torch.float32)
    look()


def calls_of(function: Callable[[], object]) -> list[str]:
    """The calls that programs make while the function runs, in the order in which they began."""
    _XLAC._start_tracing(None)
    results = function()
    torch_xla.sync(wait=True)
    del results
    events = sorted(_XLAC._stop_tracing(), key=lambda event: event[3])
    return [name for name, *_ in events if name.startswith("_c10d_functional")]


def check_overlap(rank: int, size: int) -> None:
    """Exchanges begin before the first of them ends, but for those that read its result."""
    del size
    name = meetings.whole_group().name
    values = [torch.full((2000,), float(rank + i), device="xla") for i in range(3)]

    def independent() -> object:
        reduced = [torch.ops._c10d_functional.all_reduce(x * 2, "sum", name) for x in values]
        return [x + 1 for x in reduced]

    def dependent() -> object:
        first = torch.ops._c10d_functional.all_reduce(values[0] * 3, "sum", name)
        return torch.ops._c10d_functional.all_reduce(first / 2, "max", name)

    op = "_c10d_functional:all_reduce"
    start, finish = f"{op}, start", f"{op}, finish"
    assert calls_of(independent) == [start] * 3 + [finish] * 3
    assert calls_of(dependent) == [start, finish] * 2


def check_of_both_devices(rank: int, size: int) -> None:
    """The calls of torch.distributed, on the device and on the CPU, where they are made at once."""
    shared = f"file://{tempfile.gettempdir()}/torch_xla_test_{os.environ['MASTER_PORT']}"
    place = {"rank": rank, "world_size": size}
    inits: list[dict[str, Any]] = [
        {"init_method": "env://"},
        {"init_method": shared, **place},
        {"backend": None, "device_id": torch.device("xla:0")},
        {"init_method": "xla://"},
    ]
    for device, init in zip(("xla", "cpu", "xla", "cpu"), inits, strict=True):
        dist.destroy_process_group()  # ours outlive the program's groups
        dist.init_process_group(**{"backend": "xla", **init})
        check_calls(rank, size, device)
        look()
    check_objects(rank, size)
    check_groups_of_some(rank, size)


def check_objects(rank: int, size: int) -> None:
    last, everybody = size - 1, [{"rank": r} for r in range(size)]
    gathered: list[Any] = [None] * size
    dist.all_gather_object(gathered, everybody[rank])
    assert gathered == everybody
    collected: list[Any] = [None] * size
    dist.gather_object(everybody[rank], collected if rank == last else None, last)
    assert rank < last or collected == everybody
    sent, received = [everybody[rank]], [None]
    dist.broadcast_object_list(sent, last)
    dist.scatter_object_list(received, everybody if rank == last else None, last)
    assert sent == [everybody[last]] and received == [everybody[rank]]


def check_groups_of_some(rank: int, size: int) -> None:
    """Works that are waited for later, in the group of the first two and in that of the others."""
    some = [dist.new_group(range(2)), dist.new_group(range(1, size))]
    for group, members in zip(some, (range(2), range(1, size)), strict=True):
        if rank not in members:
            continue
        parts = [value_of(r, (3,), torch.float32) for r in members]
        summed, gathered = parts[members.index(rank)].to("xla"), torch.zeros(3 * len(members))
        gathered = gathered.to("xla")
        works = [
            dist.all_gather_single(gathered, summed.clone(), group=group, async_op=True),
            dist.all_reduce(summed, group=group, async_op=True),
        ]
        assert all(work.wait() and work.is_completed() for work in works)
        assert works[1].get_future().wait()[0] is summed
        check(f"sum of {members}", summed, reduced("sum", parts), torch.float32)
        check(f"all of {members}", gathered, torch.cat(parts).numpy(), torch.float32)
        dist.barrier(group=group)


def check_calls(rank: int, size: int, device: str) -> None:
    parts = [value_of(r, (size, 3), torch.float32) for r in range(size)]
    own, last, total = parts[rank].to(device), size - 1, torch.stack(parts).sum(0)

    def expect(what: str, got: Tensor, want: Tensor) -> None:
        assert got.device.type == device, what
        check(f"{what} on {device}", got, want.numpy(), torch.float32)

    def zeros() -> list[Tensor]:
        return [torch.zeros(size, 3, device=device) for _ in range(size)]

    each, to_each = [own + i for i in range(size)], parts[last] + rank
    for what, call, want in (
        ("all_reduce", dist.all_reduce, total),
        ("broadcast", lambda t: dist.broadcast(t, last), parts[last]),
        ("reduce", lambda t: dist.reduce(t, last), total if rank == last else parts[rank]),
        ("scatter", lambda t: dist.scatter(t, each if rank == last else None, last), to_each),
    ):
        given = own.clone()
        call(given)
        expect(what, given, want)
    gathered, collected, received, whole = zeros(), zeros(), zeros(), torch.cat(zeros())
    dist.all_gather(gathered, own)
    dist.gather(own, collected if rank == last else None, last)
    dist.all_to_all(received, each)
    dist.all_gather_single(whole, own)
    expect("all_gather_single", whole, torch.cat(parts))
    for source, part in enumerate(parts):
        expect("all_gather", gathered[source], part)
        expect("gather", collected[source], part if rank == last else part * 0)
        expect("all_to_all", received[source], part + rank)
    rows, listed = torch.zeros(1, 3, device=device), torch.zeros(3, device=device)
    dist.reduce_scatter_single(rows, own)
    dist.reduce_scatter(listed, list(own.unbind(0)))
    swapped = torch.zeros_like(own)
    dist.all_to_all_single(swapped, own)
    expect("reduce_scatter_single", rows, total[rank : rank + 1])
    expect("reduce_scatter", listed, total[rank])
    expect("all_to_all_single", swapped, torch.stack([part[rank] for part in parts]))
    if device == "xla" and _XLAC._replicas_run_one_program():
        torch_xla.sync()  # what all members run is no part of what two of them do
    if rank == 0:  # of which the others know nothing
        for number in (1, 2):
            dist.send(own + number, 1, tag=4)
    elif rank == 1:
        first, second = zeros()[:2]
        dist.recv(first, 0, tag=4)
        assert dist.recv(second, tag=4) == 0
        expect("first message", first, parts[0] + 1)
        expect("second message", second, parts[0] + 2)


def check_messages_of_any(rank: int, size: int) -> None:
    """The first gets one of each, whoever is first; what was asked for before comes before."""
    xm.rendezvous("before messages of any")
    if rank > 0:
        for number in (1, 2):
            dist.send(torch.full((2,), 10.0 * rank + number, device="xla"), 0, tag=3)
        return
    named = torch.zeros(2, device="xla")
    receiving = dist.irecv(named, size - 1, tag=3)
    senders = []
    for _ in range(2 * size - 3):
        got = torch.zeros(2, device="xla")
        sender = dist.recv(got, tag=3)
        number = 1 + senders.count(sender) + (sender == size - 1)
        check(f"message of {sender}", got, np.full(2, 10 * sender + number), torch.float32)
        senders.append(sender)
    receiving.wait()
    check("named", named, np.full(2, 10 * (size - 1) + 1), torch.float32)
    assert sorted(senders) == sorted([*range(1, size), *range(1, size - 1)])


def check_channels(rank: int, size: int) -> None:
    """Two from each to the next, of which the second is received first; each keeps its order."""
    before = (rank - 1) % size
    for channel, number in ((2 * rank, 10), (2 * rank + 1, 20), (2 * rank, 30)):
        sent = xm.send(torch.full((3,), float(number + rank), device="xla"), channel)
        check(f"sent {number}", sent, np.full(3, number + rank), torch.float32)
    for channel, number in ((2 * before + 1, 20), (2 * before, 10), (2 * before, 30)):
        got = xm.recv(torch.zeros(3, device="xla"), channel)
        check(f"channel {channel}", got, np.full(3, number + before), torch.float32)


CHECKS = {
    "devices": check_of_both_devices,
    "messages": check_messages,
    "channels": check_channels,
    "reductions": check_reductions,
    "moves": check_moves,
    "groups": check_groups,
    "large": check_large,
    "pieces": check_pieces,
    "overlap": check_overlap,
    "functions": check_functions,
    "uneven": check_uneven,
    "reads": check_reads_in_the_middle,
}


def run(index: int, names: Sequence[str]) -> None:
    dist.init_process_group("xla", init_method="xla://")
    rank, size = xr.global_ordinal(), xr.world_size()
    assert index == rank == xr.local_ordinal()
    for name in names:
        CHECKS[name](rank, size)
        look()
    xm.rendezvous("end")
    xm.master_print("passed", *names)


if __name__ == "__main__":
    torch_xla.launch(run, args=(sys.argv[1:] or list(CHECKS),), start_method="fork")
