"""Run by test_refused_calls.py with CPU_NUM_DEVICES=2: what can't be exchanged is an error at the
call, and what is exchanged afterwards is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
import ways
from torch import Tensor, nn

import torch_xla
import torch_xla.core.functions as xf
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_backend
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr

Case = tuple[Callable[[], object], type[Exception], str]
CPU = torch.ones(4)


def refused(cases: Iterator[Case]) -> None:
    for call, error, words in cases:
        try:
            call()
        except error as found:
            assert words in str(found), f"{found!r} does not say {words!r}"
        else:
            raise AssertionError(f"{words!r} was not said")
    total = xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device="xla"))
    assert total.tolist() == [xr.world_size()] * 2


def cases_of_wrong_devices() -> Iterator[Case]:
    x = torch.ones(4, device="xla")
    model = nn.Linear(2, 1)
    model(torch.ones(1, 2)).sum().backward()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    where = "must be on xla:0, the device of this replica, got a tensor on cpu"
    calls: dict[str, Callable[[], object]] = {
        "all_reduce: inputs ": lambda: xm.all_reduce("sum", CPU),
        "all_reduce: inputs[1] ": lambda: xm.all_reduce("sum", [x, CPU]),
        "all_reduce: inputs[0] ": lambda: xm.all_reduce_bucketized_gradients([CPU]),
        "all_gather: value ": lambda: xm.all_gather(CPU),
        "all_gather: value[0] ": lambda: xm.all_gather_bucketized([CPU]),
        "all_gather: output ": lambda: xm.all_gather(x, output=torch.zeros(8)),
        "reduce_scatter: input ": lambda: xm.reduce_scatter("sum", CPU, 1.0, 0, 2),
        "reduce_scatter: input[0] ": lambda: xm.reduce_scatter_bucketized("sum", [CPU], 1.0, 0, 2),
        "all_to_all: value ": lambda: xm.all_to_all(CPU, 0, 0, 2),
        "collective_permute: value ": lambda: xm.collective_permute(CPU, [[0, 1]]),
        "collective_broadcast: tensors[1] ": lambda: xm.collective_broadcast([x, CPU]),
        "send: value ": lambda: xm.send(CPU, 1),
        "recv: output ": lambda: xm.recv(CPU, 1),
    }
    for what, call in calls.items():
        yield call, ValueError, what + where
    yield lambda: xm.broadcast_master_param(model), ValueError, where
    yield lambda: xm.reduce_gradients(optimizer), ValueError, where
    yield lambda: xm.optimizer_step(optimizer), ValueError, where
    yield lambda: xf.all_reduce("sum", CPU), ValueError, where
    yield lambda: xf.all_gather(CPU), ValueError, where
    three: Any = 3.0
    yield lambda: xm.all_reduce("sum", three), TypeError, "must be a tensor on xla:0, got float"


def cases_of_xm() -> Iterator[Case]:
    x = torch.ones(4, device="xla")
    for groups in ([[0]], [[0, 1], [1]], [[0], [2]], [[0, 1, 2]]):
        for call in (
            lambda g: xm.all_reduce("sum", x, groups=g),
            lambda g: xm.all_gather(x, groups=g),
            lambda g: xm.reduce_scatter("sum", x, 1.0, 0, 1, groups=g),
            lambda g: xm.all_to_all(x, 0, 0, 1, groups=g),
            lambda g: xm.collective_broadcast([x], groups=g),
        ):
            words = f"the groups must hold each replica once; there are 2, 0 to 1, got {groups}"
            yield lambda c=call, g=groups: c(g), ValueError, words
    yield lambda: xm.all_gather(x, output=x.new_zeros(4)), ValueError, "float32 of size [8], got"
    wrong = torch.zeros(8, dtype=torch.int32, device="xla")
    yield lambda: xm.all_gather(x, output=wrong), ValueError, "got torch.int32 of size [8]"
    yield lambda: xm.all_gather([x, x], output=[wrong]), ValueError, "must have 2 tensors, got 1"
    yield lambda: xm.all_reduce("mean", x), ValueError, "the reduction must be one of sum"
    yield lambda: xm.all_reduce("and", x), RuntimeError, "non-integral dtype float32"
    yield lambda: xm.reduce_scatter("sum", x[:3], 1.0, 0, 2), ValueError, "of size 3, does not"
    yield lambda: xm.all_to_all(x, 0, 0, 4), ValueError, "as many parts as replicas, 2, got 4"
    yield lambda: xm.collective_permute(x, [[0, 2]]), ValueError, "there are 2, 0 to 1, got"
    yield lambda: xm.collective_broadcast([x], 2), ValueError, "there is no replica 2"
    unknown = "must be replicas; there are 2, 0 to 1, got [0, 5]"
    yield lambda: xm.rendezvous("few", b"", [0, 5]), ValueError, unknown
    yield lambda: xm.do_on_ordinals(print, (), (0, 5)), ValueError, unknown
    other = 1 - xr.global_ordinal()
    yield lambda: xm.rendezvous("other", b"", [other]), ValueError, f"is none of [{other}]"
    yield lambda: torch_xla.launch(print), RuntimeError, "launch: this is a replica already"
    yield lambda: xmp.spawn(print), RuntimeError, "spawn: this is a replica already"


def cases_before_groups() -> Iterator[Case]:
    x = torch.ones(4, device="xla")
    yield lambda: dist.all_reduce(x), ValueError, "Default process group has not been initialized"
    words = "device_id must be xla:0, the device of this replica, got xla:1"
    wrong = torch.device("xla:1")
    yield lambda: dist.init_process_group("xla", device_id=wrong), ValueError, words
    functional = torch.ops._c10d_functional
    words = "the process group 'nobody' can't exchange tensors of the device xla"
    yield lambda: functional.all_reduce(x, "sum", "nobody"), ValueError, words


def cases_of_groups() -> Iterator[Case]:
    x, size = torch.ones(4, device="xla"), xr.world_size()
    other = 1 - xr.global_ordinal()

    def zeros(count: int, **kwargs: Any) -> Tensor:
        return torch.zeros(count, **{"device": "xla", **kwargs})

    yield lambda: dist.all_reduce(x.to("meta")), ValueError, "got tensors on meta"
    works: Any = dist.distributed_c10d._get_default_group()
    mixed = "all on the CPU, got tensors on cpu and xla"
    yield lambda: works.allreduce([x, CPU]), ValueError, mixed
    on_cpu = "an output must be on xla, of torch.float32 and 4 elements, got one on cpu"
    yield lambda: dist.all_gather([torch.zeros(4)] * size, x), ValueError, on_cpu
    into = dist.all_gather_single
    yield lambda: into(zeros(8, dtype=torch.int32), x), ValueError, "on xla, of torch.int32"
    yield (
        lambda: into(zeros(6), x),
        ValueError,
        "8 elements, got one on xla, of torch.float32",
    )
    dtypes = "different dtypes"
    yield lambda: dist.all_gather([zeros(4, dtype=torch.int32)] * size, x), ValueError, dtypes
    for call in (dist.reduce, dist.broadcast):
        yield lambda c=call: c(x, 5), ValueError, "there is no member 5, the group has 2"
    yield lambda: dist.gather(x, None, 5), ValueError, "there is no member 5, the group has 2"
    yield lambda: dist.send(x, 5), RuntimeError, "there is no member 5, the group has 2"
    yield lambda: dist.recv(x, 5), RuntimeError, "there is no member 5, the group has 2"
    yield lambda: dist.send(CPU, 5), ValueError, "there is no member 5, the group has 2"
    yield lambda: dist.send(CPU, other, tag=-1), ValueError, "tag must be from 0 to 268435455"
    yield lambda: dist.new_group([0, 9]), ValueError, "world_size"
    splits = "input_split_sizes add up to 3, and the first dimension is 4"
    yield lambda: dist.all_to_all_single(zeros(4), x, [2, 2], [2, 1]), RuntimeError, splits
    yield lambda: dist.all_reduce(x, dist.ReduceOp.BAND), RuntimeError, "non-integral dtype float32"


def of_xm() -> None:
    refused(cases_of_wrong_devices())
    refused(cases_of_xm())
    # Dtypes of a list may differ: each is exchanged as it is.
    listed = [torch.ones(2, device="xla"), torch.ones(2, dtype=torch.int32, device="xla")]
    xm.all_reduce("sum", listed)
    assert [each.tolist() for each in listed] == [[2.0, 2.0], [2, 2]]


def of_groups() -> None:
    refused(cases_before_groups())
    dist.init_process_group("xla", init_method="xla://")
    refused(cases_of_groups())
    dist.destroy_process_group()


if __name__ == "__main__":
    ways.launch({"xm": of_xm, "groups": of_groups})
