"""What a plugin must do for torch_xla, as claims that `torch_xla.conformance` tries one by one.

A claim returns what it found worth telling, or raises: `NotImplementedError` where the plugin lacks
what the claim is about, anything else where it does otherwise than claimed. PyTorch on the CPU says
what is right.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from torch_xla import _XLAC, _barriers, _memory

Claim = Callable[[], str | None]

_DTYPES = (
    *(torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64),
    *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool),
)


def _numbers(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(len(sizes)))


def _same(function: Callable[..., Any], *arguments: torch.Tensor, tolerance: float = 1e-4) -> None:
    """The function gives on the device what it gives on the CPU, and nothing of it runs there."""
    want = function(*arguments)
    before = set(_XLAC._counter_names())
    got = function(*(argument.to("xla") for argument in arguments))
    _barriers.sync(wait=True)
    got = [t.cpu() for t in got] if isinstance(got, (tuple, list)) else got.cpu()
    want = list(want) if isinstance(want, (tuple, list)) else want
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)
    fallen = {n for n in _XLAC._counter_names() if n.startswith("aten::")} - before
    fallen.discard("aten::_local_scalar_dense")  # a value that is read
    if fallen:
        raise NotImplementedError(f"runs on the CPU: {', '.join(sorted(fallen))}")


def _starts() -> str:
    count = _XLAC._device_count()
    return f"{_XLAC._platform()}, {count} device{'s' * (count > 1)}, {_XLAC._device_kind(0)}"


def _numbers_of(dtype: torch.dtype) -> Claim:
    def claim() -> None:
        x = (_numbers(3, 5) * 4).to(dtype)
        # XLA rounds a formula of halves once.
        tolerance = (
            8 * torch.finfo(dtype).eps if dtype.itemsize == 2 and x.is_floating_point() else 1e-4
        )
        _same(
            lambda t: (t, t & t if dtype == torch.bool else t * t + t, t[:, 1:].t()),
            x,
            tolerance=tolerance,
        )

    return claim


def _ran_again() -> None:
    x = _numbers(4).to("xla")
    _barriers.sync()
    compiled = _XLAC._counter_value("UncachedCompile") or 0
    for _ in range(3):
        x = x * 1.5 + 1
        _barriers.sync()
    x.tolist()
    again = (_XLAC._counter_value("UncachedCompile") or 0) - compiled
    if again != 1:
        raise AssertionError(f"a step of three is compiled {again} times")


def _reuses_memory() -> str:
    x = torch.zeros(1 << 20, device="xla")
    _barriers.sync(wait=True)
    for _ in range(2):
        x.add_(1)
        _barriers.sync(wait=True)
    if x[:2].tolist() != [2, 2]:
        raise AssertionError(f"two additions in place give {x[:2].tolist()}")
    aliased = _XLAC._metric_data("InputOutputAliasCount")
    return "" if aliased is not None and aliased[1] else "nothing was donated"


def _training() -> None:
    def train(device: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3))
        model.to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        x, y = _numbers(12, 8).to(device), (torch.arange(12) % 3).to(device)
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            _barriers.sync()
            losses.append(loss.detach())
        return [loss.cpu() for loss in losses]

    torch.testing.assert_close(train("xla"), train("cpu"), rtol=1e-3, atol=1e-3)


def _random() -> None:
    torch.manual_seed(3)
    x = torch.randn(20_000, device="xla")
    torch.manual_seed(3)
    y = torch.randn(20_000, device="xla")
    mean, deviation, equal = x.mean().item(), x.std().item(), torch.equal(x.cpu(), y.cpu())
    if abs(mean) > 0.05 or abs(deviation - 1) > 0.05 or not equal:
        raise AssertionError(f"mean {mean}, deviation {deviation}, equal by a seed: {equal}")


def _sized_by_data() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the values are read
        _same(lambda t: (t.nonzero(), t[t > 0]), _numbers(4, 5))


def _errors() -> None:
    x = torch.ones(2, 3, device="xla")
    try:
        x @ x
    except RuntimeError:
        pass
    else:
        raise AssertionError("a product of sizes that do not fit is no error")
    if (x + 1).tolist() != [[2, 2, 2], [2, 2, 2]]:
        raise AssertionError("the device is of no use after an error")


def _between_devices() -> None:
    if _XLAC._device_count() < 2:
        raise NotImplementedError("there is one device")
    moved = (torch.arange(6.0, device="xla:0") + 1).to("xla:1")
    if (moved * 2).tolist() != [2, 4, 6, 8, 10, 12]:
        raise AssertionError(f"what came from another device is {moved.tolist()}")


def _memory_is_told() -> str:
    if not _XLAC._memory_stats(0):
        raise NotImplementedError("no statistics; what torch_xla holds is counted")
    return f"{_memory.info()['bytes_limit'] / 2**30:.1f} GiB"


def _kept_on_disk() -> None:
    hits = _XLAC._counter_value("PersistentCacheHit") or 0
    results = []
    for _ in range(2):
        results.append((torch.arange(7.0, device="xla") * 3 - 2).tolist())
        _XLAC._clear_compilation_cache()
    if not _XLAC._persistent_cache_stats()["entries"]:
        raise NotImplementedError("executables are not serialized, or there is no cache")
    if (_XLAC._counter_value("PersistentCacheHit") or 0) == hits:
        raise AssertionError("a stored program is not loaded")
    if results[0] != results[1]:
        raise AssertionError(f"a stored program gives {results[1]}, a fresh one {results[0]}")


def _device_trace() -> None:
    _XLAC._start_device_trace()
    (torch.ones(3, device="xla") * 3).tolist()
    if not _XLAC._stop_device_trace():
        raise NotImplementedError("no profiler extension")


def _lstm(x: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(0)
    with torch.no_grad():
        result: torch.Tensor = nn.LSTM(4, 6).to(x.device)(x)[0]
    return result


_OPERATORS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "pointwise functions": (lambda x: (x.tanh(), x.exp(), x.erf(), x.sigmoid()), (_numbers(4, 5),)),
    "special functions": (lambda x: (torch.lgamma(x), torch.erfinv(x / 9)), (_numbers(9),)),
    "products": (lambda x, y: x @ y, (_numbers(8, 9), _numbers(9, 7))),
    "convolutions": (
        lambda x, w: functional.conv2d(x, w, padding=1, stride=2),
        (_numbers(2, 3, 9, 9), _numbers(4, 3, 3, 3)),
    ),
    "pooling": (lambda x: functional.max_pool2d(x, 2), (_numbers(2, 3, 8, 8),)),
    "reductions": (lambda x: (x.sum(0), x.amax(1), x.argmin(1), x.var()), (_numbers(6, 7),)),
    "running sums": (lambda x: (x.cumsum(0), x.cummax(1).values), (_numbers(6, 7),)),
    "sorting": (lambda x: (x.sort(1).values, x.topk(3).values), (_numbers(6, 9),)),
    "gathering": (
        lambda x, i: (x[i], x.gather(0, i[:, None])),
        (_numbers(6, 3), torch.tensor([3, 0, 5])),
    ),
    "scattering": (
        lambda x, i: (x.index_add(0, i, x[:3]), x.index_put((i,), x[0])),
        (_numbers(6, 3), torch.tensor([3, 0, 3])),
    ),
    "views and writes": (
        lambda x: torch.cat([x.clone().t().reshape(-1)[2:], x.flip(0).unfold(1, 2, 2).flatten()]),
        (_numbers(4, 6),),
    ),
    "attention": (
        lambda q: functional.scaled_dot_product_attention(q, q, q, is_causal=True),
        (_numbers(2, 2, 8, 4),),
    ),
    "loops": (_lstm, (_numbers(5, 2, 4),)),
    "factors of matrices": (
        lambda x: torch.linalg.cholesky(x @ x.t() + 6 * torch.eye(6, device=x.device)),
        (_numbers(6, 6),),
    ),
    "transforms": (lambda x: torch.fft.rfft(x), (_numbers(3, 16),)),
}


def _operators(name: str) -> Claim:
    function, arguments = _OPERATORS[name]
    return lambda: _same(function, *arguments, tolerance=1e-3)


def claims() -> Iterator[tuple[str, Claim]]:
    """The claims by name. The first is that there is a device at all."""
    yield "a client starts", _starts
    for dtype in _DTYPES:
        yield f"numbers of {str(dtype).removeprefix('torch.')}", _numbers_of(dtype)
    for name in _OPERATORS:
        yield name, _operators(name)
    yield "a step is compiled once", _ran_again
    yield "memory is used again", _reuses_memory
    yield "training", _training
    yield "random numbers", _random
    yield "results sized by data", _sized_by_data
    yield "errors leave the device whole", _errors
    yield "transfers between devices", _between_devices
    yield "memory in use", _memory_is_told
    yield "programs kept on disk", _kept_on_disk
    yield "a trace of the device", _device_trace
