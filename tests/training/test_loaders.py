"""Loaders upload in the background, in order, and end whatever happens."""

from __future__ import annotations

import collections
import gc
import threading

import pytest
import torch
from counts import counted

import torch_xla.core.xla_model as xm
import torch_xla.distributed.data_parallel as dp
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
from torch_xla.debug import metrics
from torch_xla.utils.keyd_queue import KeydQueue, Queue

Pair = collections.namedtuple("Pair", "data target")


def batches(count, size=2):
    return [(torch.full((size,), float(i)), {"target": torch.tensor([i])}) for i in range(count)]


def loading_threads():
    return [t for t in threading.enumerate() if t.name in ("xla-load", "xla-upload")]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    gc.collect()
    for thread in loading_threads():
        thread.join(timeout=20)
        assert not thread.is_alive(), thread.name


def test_batches_come_in_order_on_the_device(device):
    loader = pl.MpDeviceLoader(batches(20), device)
    assert len(loader) == 20
    assert (loader._device, loader._parallel_loader_kwargs) == (device, {})
    for _ in range(2):
        seen = []
        for data, rest in loader:
            assert data.device == device and rest["target"].device == device
            seen.append((data[0].item(), rest["target"].item()))
        assert seen == [(i, i) for i in range(20)]


@pytest.mark.parametrize("threads", [1, 3])
def test_several_uploading_threads_keep_the_order(device, threads):
    loader = pl.MpDeviceLoader(
        batches(30),
        device,
        host_to_device_transfer_threads=threads,
        loader_prefetch_size=2,
        device_prefetch_size=1,
    )
    assert [data[0].item() for data, _ in loader] == list(range(30))


def test_each_batch_is_a_barrier(device):
    total = torch.zeros(2, device=device)
    with counted() as counts:
        for data, _ in pl.MpDeviceLoader(batches(6), device):
            total = total + data
    assert counts.executed == 6 and counts.compiled == 1
    assert metrics.counter_value("MarkStep") == 1 + 6 + 1
    assert total.tolist() == [15, 15]


def test_barrier_after_several_batches(device):
    total = torch.zeros(2, device=device)
    with counted() as counts:
        for data, _ in pl.MpDeviceLoader(batches(6), device, batches_per_execution=3):
            total = total + data
    assert counts.executed == 2 and counts.compiled == 1
    assert total.tolist() == [15, 15]
    with pytest.raises(ValueError, match="must be positive"):
        pl.ParallelLoader([], [device], batches_per_execution=0)


def test_uploads_go_on_while_the_loop_works(device):
    uploaded = threading.Event()

    def source():
        for i in range(3):
            yield torch.full((1,), float(i))
        uploaded.set()

    loop = iter(pl.MpDeviceLoader(source(), device))
    assert next(loop).item() == 0
    # The rest was taken from the source although nobody asked for it yet.
    assert uploaded.wait(timeout=20)
    assert [batch.item() for batch in loop] == [1, 2]


def test_error_of_the_loader_reaches_the_loop(device):
    def failing():
        yield torch.ones(1)
        raise LookupError("no second batch")

    seen = []
    with pytest.raises(LookupError, match="no second batch"):
        for batch in pl.MpDeviceLoader(failing(), device):
            seen.append(batch.item())
    assert seen == [1]


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_error_of_the_upload_reaches_the_loop(device):
    bad = torch.ones(2, dtype=torch.complex32)
    with pytest.raises((RuntimeError, NotImplementedError), match="not supported on the xla"):
        list(pl.MpDeviceLoader([bad], device))


@pytest.mark.parametrize("threads", [1, 3])
def test_none_is_a_batch_like_any_other(device, threads):
    given = [None, torch.ones(1), None, (None, 3), None]
    got = list(pl.MpDeviceLoader(given, device, host_to_device_transfer_threads=threads))
    assert got[1].tolist() == [1] and got[1].device == device
    assert [*got[:1], *got[2:]] == [None, None, (None, 3), None]
    ended = object()
    loader = pl.ParallelLoader([None], [device])
    assert loader.next_item(device, ended) is None
    assert loader.next_item(device, ended) is ended and loader.next_item(device) is None


@pytest.mark.timeout(60)
def test_early_exit_ends_the_threads(device):
    taken = []

    def endless():
        while True:
            taken.append(None)
            yield torch.ones(1)

    sizes = {"loader_prefetch_size": 1, "device_prefetch_size": 1}
    for batch in pl.MpDeviceLoader(endless(), device, **sizes):
        threads = loading_threads()
        assert batch.item() == 1 and {t.name for t in threads} == {"xla-load", "xla-upload"}
        break
    for thread in threads:
        thread.join(timeout=20)
    assert not any(thread.is_alive() for thread in threads)
    # The loop's batch, one in each queue and one in each thread's hands.
    assert len(taken) <= 5


def test_dataset_loaders_and_their_types(device):
    data = [Pair(torch.full((3,), float(i)), i) for i in range(10)]
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    on_device = pl.MpDeviceLoader(loader, device)
    assert on_device.dataset is data and on_device.batch_size == 4
    assert not hasattr(on_device, "nothing")
    got = list(on_device)
    assert [type(batch) for batch in got] == [Pair] * 3
    assert [len(batch.data) for batch in got] == [4, 4, 2]
    assert got[2].target.tolist() == [8, 9] and got[2].target.device == device


def test_parallel_loader_and_its_older_form(device):
    for loader in (
        pl.ParallelLoader(batches(4), [device]),
        pl.ParallelLoader(batches(4), [device], 0, False, 8, 4),
        pl.ParallelLoader(loader=batches(4), devices=[str(device)], fixed_batch_size=True),
    ):
        per_device = loader.per_device_loader(device)
        assert len(per_device) == loader.per_device_samples() == 4
        assert [data[0].item() for data, _ in per_device] == [0, 1, 2, 3]
        assert loader.next_item(device) is None
        loader.close()
    with pytest.raises(ValueError, match="at least one device"):
        pl.ParallelLoader(batches(4), [])


def test_fixed_batch_size_ends_at_the_first_other_size(device):
    ragged = [*batches(3), *batches(1, size=1), *batches(1)]
    for loader in (
        pl.ParallelLoader(ragged, [device], 0, True),
        pl.ParallelLoader(ragged, [device], fixed_batch_size=True),
    ):
        assert len(list(loader.per_device_loader(device))) == 3


def test_context_closes_the_loader(device):
    with pl.ParallelLoader(batches(100), [device], device_prefetch_size=1) as loader:
        assert loader.next_item(device)[0].tolist() == [0, 0]
    assert loader.next_item(device) is None


def test_data_parallel_runs_the_loop_per_device(device):
    model = dp.DataParallel(lambda: torch.nn.Linear(2, 1), device_ids=[str(device)])
    assert model.devices == [device] and len(model.models) == 1

    def loop(module, loader, where, context):
        assert next(module.parameters()).device == where == device
        calls = context.getattr_or("calls", list)
        calls.append([number for number, (data, _) in loader if data.device == device])
        return calls

    assert model(loop, batches(3)) == [[[0, 1, 2]]]
    assert model(loop, batches(2)) == [[[0, 1, 2], [0, 1]]]
    assert model._contexts[0].getattr_or("other", 5) == 5


def test_data_parallel_without_devices_runs_on_the_cpu():
    model = dp.DataParallel(torch.nn.Linear(2, 1))
    assert model.devices == []

    def loop(module, loader, where, context):
        return [where.type, *(module(data).device.type for _, (data, _) in loader)]

    assert model(loop, batches(2)) == [["cpu", "cpu", "cpu"]]


def test_data_parallel_raises_what_the_loop_raised(device):
    model = dp.DataParallel(torch.nn.Linear(2, 1), device_ids=[device])

    def loop(module, loader, where, context):
        for _ in loader:
            raise LookupError("in the loop")

    with pytest.raises(LookupError, match="in the loop"):
        model(loop, batches(100))


def test_queues_end():
    queue = Queue(maxsize=2)
    assert queue.max_size() == 2 and queue.put(1) and queue.put(2)
    queue.close_write()
    assert not queue.put(3)
    assert [queue.get(), queue.get(), queue.get()] == [1, 2, None]
    by_key = KeydQueue()
    waiting = []
    thread = threading.Thread(target=lambda: waiting.append(by_key.get("b")))
    thread.start()
    by_key.put("a", 1)
    by_key.put("b", 2)
    thread.join(timeout=20)
    assert waiting == [2] and by_key.get("a") == 1
    by_key.close()
    assert by_key.get("c") is None and not by_key.put("d", 1)
    assert by_key.max_size() == 1024


def test_rate_of_a_loop(device):
    tracker = xm.RateTracker()
    for data, _ in pl.MpDeviceLoader(batches(3), device):
        tracker.add(len(data))
    assert tracker.global_rate() > 0


MESH = xs.Mesh([0], (1,), ("data",))
SHARDING = xs.ShardingSpec(MESH, ("data",))


def test_batches_lie_on_the_mesh_as_the_loader_was_told(device):
    batch = {"x": torch.ones(2), "y": [torch.ones(1, 1), torch.ones(3)], "z": "text"}
    (first,) = pl.MpDeviceLoader([batch["y"]], device, input_sharding=SHARDING)
    # Tensors of another number of dimensions are left as they are.
    assert [xs.sharding_text(t) for t in first] == ["", "{devices=[1]0}"]
    by_key = {"x": SHARDING, "y": None, "z": None}
    (second,) = pl.MpDeviceLoader([batch], device, input_sharding=by_key)
    assert xs.sharding_of(second["x"]) == SHARDING and xs.sharding_of(second["y"][1]) is None
    with pytest.raises(ValueError, match=r"keys \['x'\], got \['x', 'y', 'z'\]"):
        list(pl.MpDeviceLoader([batch], device, input_sharding={"x": SHARDING}))
    with pytest.raises(TypeError, match="ParallelLoader: input_sharding must be a ShardingSpec"):
        pl.ParallelLoader([batch], [device], input_sharding=("data",))
    (sent,) = xm.send_cpu_data_to_device([torch.ones(4)], device, SHARDING)
    assert xs.sharding_of(sent) == SHARDING


@pytest.mark.parametrize(
    "name",
    [
        "batches_per_execution",
        "loader_prefetch_size",
        "device_prefetch_size",
        "host_to_device_transfer_threads",
    ],
)
@pytest.mark.parametrize("number", [0, -1, "2", 1.5])
def test_sizes_and_counts_must_be_positive(device, name, number):
    with pytest.raises(ValueError, match=f"{name} must be positive"):
        pl.ParallelLoader([torch.ones(1)], [device], **{name: number})


def test_loader_knows_its_devices(device):
    loader = pl.ParallelLoader([torch.ones(1)] * 2, "xla:0")
    for ask in (loader.next_item, loader.per_device_loader):
        with pytest.raises(ValueError, match=r"xla:3 is none of its devices \['xla:0'\]"):
            ask("xla:3")
    assert len(list(loader.per_device_loader(device))) == 2


def test_iterators_of_one_loader_do_not_disturb_each_other(device):
    loader = pl.MpDeviceLoader([torch.tensor(i) for i in range(3)], device)
    a, b = iter(loader), iter(loader)
    assert [next(a).item(), next(b).item(), next(a).item(), next(b).item()] == [0, 0, 1, 1]
    a.close()
    assert next(b).item() == 2
    assert sum(1 for _ in loader for _ in loader) == 9
