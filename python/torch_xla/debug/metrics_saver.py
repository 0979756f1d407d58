"""The metrics report as a file."""

from __future__ import annotations

import os

from torch_xla._settings import settings
from torch_xla.debug import metrics


def save_metrics(metrics_file: str | None = None) -> None:
    """Append the metrics report to a file, by default the one that `XLA_METRICS_FILE` names;
    without any, nothing is written."""
    path = metrics_file or str(settings.metrics_file)
    if not path:
        return
    with open(os.path.expanduser(path), "a") as file:
        file.write(metrics.metrics_report())
