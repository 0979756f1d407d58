"""Counters and metrics: what was compiled, run, transferred, and what fell back to the CPU.

A counter is a number that grows; a metric keeps the last of its samples, with times in nanoseconds
and sizes in bytes. Both exist from their first event on.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch_xla import _XLAC

# A read of one number by the host is counted like a fallback, but is none.
_NOT_FALLBACKS = frozenset({"aten::_local_scalar_dense"})


def metrics_report() -> str:
    """Every metric and counter, as text."""
    return _XLAC._metrics_report()


def metrics_report_json() -> str:
    """The same as one JSON object: {"metrics": {name: {...}}, "counters": {name: value}}."""
    return _XLAC._metrics_report_json()


def short_metrics_report(
    counter_names: Sequence[str] | None = None, metric_names: Sequence[str] | None = None
) -> str:
    """The named counters and metrics, and every operation that fell back to the CPU.

    Without names: compilations, barriers, executions and transfers.
    """
    return _XLAC._short_metrics_report(list(counter_names or []), list(metric_names or []))


def counter_names() -> list[str]:
    """The names of the counters that are not zero."""
    return _XLAC._counter_names()


def counter_value(name: str) -> int | None:
    """The value of a counter, or None if nothing was counted."""
    return _XLAC._counter_value(name)


def metric_names() -> list[str]:
    """The names of the metrics that have samples."""
    return _XLAC._metric_names()


def metric_data(name: str) -> tuple[int, float, list[tuple[float, float]]] | None:
    """How many samples there were, their sum, and the last ones as (time in seconds, value).

    None if there were no samples.
    """
    return _XLAC._metric_data(name)


def clear_counters() -> None:
    """Set all counters to zero."""
    _XLAC._clear_counters()


def clear_metrics() -> None:
    """Forget the samples of all metrics."""
    _XLAC._clear_metrics()


def clear_all() -> None:
    """Forget counters and metrics."""
    clear_counters()
    clear_metrics()


def executed_fallback_ops() -> list[str]:
    """The operations that ran on the CPU because they have no lowering, as "aten::name"."""
    return [
        name
        for name in counter_names()
        if "::" in name and not name.startswith("xla::") and name not in _NOT_FALLBACKS
    ]
