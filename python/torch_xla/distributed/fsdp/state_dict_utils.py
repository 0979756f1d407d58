"""Putting the parts that replicas saved together again."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from typing import Any

import torch

from torch_xla._replicas import shards


def consolidate_sharded_state_dicts(
    state_dict_list: Sequence[dict[str, Any]], shard_metadata: dict[str, Any]
) -> dict[str, Any]:
    """The model's state out of that of each replica, in the order of their ordinals.

    Args:
        state_dict_list: what the replicas' `state_dict()` gave.
        shard_metadata: what `get_shard_metadata()` gave.

    Raises:
        ValueError: there are not as many as replicas.
    """
    world_size = shard_metadata["world_size"]
    if len(state_dict_list) != world_size:
        raise ValueError(
            f"consolidate_sharded_state_dicts: expected the state of {world_size} replicas, got "
            f"{len(state_dict_list)}"
        )
    state = dict(state_dict_list[0])
    if world_size > 1:
        for name, shape in shard_metadata["shard_info"].items():
            if name in state:
                state[name] = shards.whole(
                    torch.cat([part[name] for part in state_dict_list]), shape
                )
    return state


def consolidate_sharded_model_checkpoints(
    ckpt_prefix: str, ckpt_suffix: str = "*.pth", save_path: str = "", save_model: bool = True
) -> tuple[dict[str, Any], str | None]:
    """The model's state out of the files that the replicas wrote.

    Each file holds a dict with the `model`'s state and its `shard_metadata`.

    Args:
        ckpt_prefix: the beginning of the files' paths.
        ckpt_suffix: the rest, with a pattern.
        save_path: where to write the state; next to the files by default.
        save_model: whether to write it.

    Returns:
        The state, and the path it was written to.

    Raises:
        FileNotFoundError: there are no such files.
    """
    paths = sorted(glob.glob(ckpt_prefix + ckpt_suffix))
    if not paths:
        raise FileNotFoundError(f"there is no file {ckpt_prefix}{ckpt_suffix}")
    parts = [torch.load(path, map_location="cpu", weights_only=True) for path in paths]
    parts.sort(key=lambda part: part["shard_metadata"]["rank"])
    state = consolidate_sharded_state_dicts(
        [part["model"] for part in parts], parts[0]["shard_metadata"]
    )
    if not save_model:
        return state, None
    target = save_path or f"{ckpt_prefix}_consolidated.pth"
    torch.save({"model": state}, target)
    return state, target
