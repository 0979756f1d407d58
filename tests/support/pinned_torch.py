"""The version of torch that the tree is developed with. Generated tables are made with it; with
another one, tests check what must hold in all."""

from __future__ import annotations

import re

import torch
from clone import ROOT

PINNED = re.search(r"^torch==(\d+\.\d+)", (ROOT / "requirements" / "train.txt").read_text(), re.M)[
    1
]

IS_PINNED = torch.__version__.startswith(f"{PINNED}.")

IS_OLDER = torch.torch_version.TorchVersion(torch.__version__) < f"{PINNED}.0a0"

IS_NEWER = not IS_PINNED and not IS_OLDER
