"""Planners of torch.distributed.checkpoint for tensors on a mesh: each part of a tensor is an item
of the file, so that the host holds one part at a time, and what was written on one mesh is read on
another. Next: parts.py, for where parts are while they are read."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from torch_xla import _barriers, _causes, _nested, _saving
from torch_xla._spmd.sharding import whole
from torch_xla.experimental.distributed_checkpoint.parts import (
    Part,
    PartsInHostMemory,
    Target,
    parts_of,
)


def _compute(state_dict: dict[str, Any], what: str) -> None:
    """What is pending would otherwise be computed by a program for each tensor."""
    if next(iter(_nested.walk(state_dict, _saving.is_ours)), None) is None:
        return
    with _causes.because(what):
        _barriers.sync()


class SPMDSavePlanner(DefaultSavePlanner):
    """Saves xla tensors part by part: each part once, from the first device that holds it. The host
    holds as many parts as the writer has threads."""

    def set_up_planner(self, state_dict: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        _compute(state_dict, "saving of a checkpoint")
        super().set_up_planner(state_dict, *args, **kwargs)
        # By tensor, where its parts begin, and which device has each.
        self._parts: dict[str, dict[tuple[int, ...], Part]] = {}

    def create_local_plan(self) -> SavePlan:
        plan = super().create_local_plan()
        items: list[WriteItem] = []
        for item in plan.items:
            value = self.state_dict[item.index.fqn]
            items += self._items_of(item, whole(value)) if _saving.is_ours(value) else [item]
        self.plan = dataclasses.replace(plan, items=items)
        return self.plan

    def _items_of(self, item: WriteItem, t: torch.Tensor) -> list[WriteItem]:
        parts = parts_of(t)
        self._parts[item.index.fqn] = {part.starts: part for part in parts}
        if len(parts) == 1:
            return [item]
        properties = TensorProperties.create_from_tensor(t)
        return [
            WriteItem(
                index=MetadataIndex(item.index.fqn, torch.Size(part.starts)),
                type=WriteItemType.SHARD,
                tensor_data=TensorWriteData(_chunk_of(part), properties, t.size()),
            )
            for part in parts
        ]

    def lookup_object(self, index: MetadataIndex) -> Any:
        if index.fqn in self._parts:
            return self.state_dict[index.fqn]
        return super().lookup_object(index)

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:
        index = write_item.index
        if index.fqn not in self._parts:
            return super().transform_object(write_item, object)
        part = self._parts[index.fqn][tuple(index.offset or ())]
        return part.read(whole(object).detach())


class SPMDLoadPlanner(DefaultLoadPlanner):
    """Loads into xla tensors part by part: onto the mesh that they lie on, whatever mesh the
    checkpoint is of. The host holds no more parts than are as large as the largest one.

    Raises:
        ValueError: the checkpoint's tensor has another shape, or what it has is no tensor.
        RuntimeError: the checkpoint has no such tensor.
        (torch.distributed.checkpoint wraps both in a CheckpointException.)
    """

    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        _compute(state_dict, "loading of a checkpoint")
        super().set_up_planner(state_dict, metadata, is_coordinator)
        self._targets: dict[str, Target] = {}

    def create_local_plan(self) -> LoadPlan:
        assert self.metadata is not None
        plan = super().create_local_plan()
        items = []
        for item in plan.items:
            name = item.dest_index.fqn
            saved = self.metadata.state_dict_metadata[name]
            value = self.state_dict[name]
            _check_kind(name, saved, value)
            if not _saving.is_ours(value):
                items.append(item)
            elif name not in self._targets:
                assert isinstance(saved, TensorStorageMetadata)
                target = Target(whole(value))
                self._targets[name] = target
                items += self._items_of(name, saved, target)
        self._in_host_memory = PartsInHostMemory(self._targets.values())
        return dataclasses.replace(plan, items=items)

    @staticmethod
    def _items_of(name: str, saved: TensorStorageMetadata, target: Target) -> list[ReadItem]:
        chunks = [_chunk_of(part) for part in target.parts.values()]
        items = create_read_items_for_chunk_list(name, saved, chunks)
        for item in items:
            assert item.dest_index.offset is not None
            target.parts[tuple(item.dest_index.offset)].num_missing += 1
        return items

    def _place(self, item: ReadItem) -> tuple[Target, Part]:
        target = self._targets[item.dest_index.fqn]
        return target, target.parts[tuple(item.dest_index.offset or ())]

    def resolve_tensor(self, read_item: ReadItem) -> torch.Tensor:
        if read_item.dest_index.fqn not in self._targets:
            piece: torch.Tensor = super().resolve_tensor(read_item)
        else:
            data = self._in_host_memory.get(*self._place(read_item))
            piece = self.transform_tensor(read_item, data)
        return piece

    def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
        if read_item.dest_index.fqn not in self._targets:
            super().commit_tensor(read_item, tensor)
            return
        target, part = self._place(read_item)
        part.num_missing -= 1
        if part.num_missing == 0:
            self._in_host_memory.finish(target, part)


def _chunk_of(part: Part) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(torch.Size(part.starts), torch.Size(part.sizes))


def _check_kind(name: str, saved: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor) and isinstance(saved, BytesStorageMetadata):
        raise ValueError(
            f"SPMDLoadPlanner: {name}: expected a tensor of shape {tuple(value.shape)} in the "
            "checkpoint, which has an object that is no tensor"
        )
