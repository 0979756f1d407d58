"""Metrics reports as numbers, and what is odd in one of them beside earlier ones."""

from __future__ import annotations

import ast
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

# As XLA's own reports count: 1 MB is 1000 KB.
_MEGABYTES = {"B": 1e-6, "KB": 1e-3, "MB": 1.0, "GB": 1e3, "TB": 1e6, "PB": 1e9}
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_TIME = re.compile(r"(\d+(?:\.\d+)?)(ms|us|ns|d|h|m|s)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?B)")
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")

_BASE = "base_expression"
_DEFAULT = "v <= v_mean + (v_stddev * 2.0)"
_NAMES = ("v", "v_mean", "v_stddev")
_ALLOWED = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.Add,
    ast.Sub, ast.Mult, ast.Div, ast.Compare, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq,
    ast.Name, ast.Load, ast.Constant,
)  # fmt: skip


def _parsed(text: str) -> tuple[float, str] | None:
    """A number of a report, and what its unit adds to the key: times are in seconds, sizes in
    megabytes."""
    if _NUMBER.fullmatch(text):
        return float(text), ""
    size = _SIZE.fullmatch(text)
    if size:
        return float(size[1]) * _MEGABYTES[size[2]], "_mb"
    parts = _TIME.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return sum(float(number) * _SECONDS[unit] for number, unit in parts), "_sec"
    return None


def parse_metrics_report(report: str, dehumanize: bool = True) -> dict[str, Any]:
    """The numbers of a metrics report.

    Args:
        report: what `metrics_report()` gave.
        dehumanize: as numbers; else as the texts that are in the report, under keys without units.

    Returns:
        For metrics "CompileTime__TotalSamples", "CompileTime__Accumulator_sec" and
        "CompileTime__Percentile_99_sec", for counters "xla::add__Value". Times end in `_sec`, sizes
        in `_mb`. Lines that are none of a report are passed over.
    """
    points: dict[str, Any] = {}
    name = ""

    def add(key: str, text: str) -> None:
        found = _parsed(text)
        if found is not None and not dehumanize:
            points[f"{name}__{key}"] = text
        elif found is not None:
            points[f"{name}__{key}{found[1]}"] = found[0]

    for line in report.splitlines():
        heading = re.search(r"(?:^|\s|\\n)(?:Metric|Counter): (\S+)$", line)
        field = re.match(r"  (TotalSamples|Accumulator|Value): (\S+)$", line)
        if heading:
            name = heading[1]
        elif field and name:
            add(field[1], field[2])
        elif line.startswith("  Percentiles: ") and name:
            for percent, value in re.findall(r"(\d+)%=(\S+?)(?:;|$)", line):
                add(f"Percentile_{percent}", value)
    return points


def get_data_points_from_metrics_reports(
    metrics_reports: Sequence[str],
) -> dict[str, list[float | None]]:
    """The numbers of several reports: per key one of each report, None where it has none."""
    parsed = [parse_metrics_report(report) for report in metrics_reports]
    keys = dict.fromkeys(key for points in parsed for key in points)
    return {key: [points.get(key) for points in parsed] for key in keys}


def _holds(expression: str, values: Mapping[str, float]) -> bool:
    try:
        tree = ast.parse(expression, mode="eval")
    except SyntaxError as error:
        raise ValueError(f"compare_metrics: no expression: {expression!r}") from error
    for node in ast.walk(tree):
        is_number = not isinstance(node, ast.Constant) or isinstance(node.value, (int, float))
        is_known = not isinstance(node, ast.Name) or node.id in _NAMES
        if not (isinstance(node, _ALLOWED) and is_number and is_known):
            raise ValueError(
                f"compare_metrics: expected numbers, {', '.join(_NAMES)}, arithmetic and "
                f"comparisons, got {expression!r}"
            )
    return bool(eval(compile(tree, "<expression>", "eval"), {"__builtins__": {}}, dict(values)))


def compare_metrics(
    data_points: Mapping[str, Sequence[float | None]],
    metrics_report: str,
    config: Mapping[str, str] | None = None,
) -> str:
    """What is odd in a report beside the numbers of earlier ones.

    Args:
        data_points: those of the earlier reports, as `get_data_points_from_metrics_reports` gives
            them.
        metrics_report: the report to look at.
        config: what must hold: `base_expression` for every number, by default
            "v <= v_mean + (v_stddev * 2.0)", and for one of them NAME_expression. They are
            comparisons of the number `v` with the mean and the standard deviation of the earlier
            ones, `v_mean` and `v_stddev`.

    Returns:
        A line for each number that fails, and for each operation on the CPU that is new; no text if
        nothing does.

    Raises:
        ValueError: an expression is none.
    """
    expressions = {_BASE: _DEFAULT, **(config or {})}
    lines = []
    for key, value in sorted(parse_metrics_report(metrics_report).items()):
        earlier = [point for point in data_points.get(key, ()) if point is not None]
        if not earlier:
            if key.startswith("aten::"):
                lines.append(f"Found new aten counter: {key}: {value:.16g}\n")
            continue
        mean, deviation = statistics.fmean(earlier), statistics.pstdev(earlier)
        expression = expressions.get(f"{key}_expression", expressions[_BASE])
        if not _holds(expression, {"v": value, "v_mean": mean, "v_stddev": deviation}):
            lines.append(
                f"{key} failed its expression check. Expression: {expression}.  Mean: {mean}.  "
                f"Stddev: {deviation}.  Actual Value: {value}\n"
            )
    return "".join(lines)
