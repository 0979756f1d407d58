"""Stand-ins for data that scripts use to try a model out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class SampleGenerator(Generic[T]):
    """An iterable that gives the same `data`, a batch or anything else, `sample_count` times."""

    def __init__(self, data: T, sample_count: int) -> None:
        self._data = data
        self._sample_count = sample_count
        self._count = 0

    def __iter__(self) -> Iterator[T]:
        return SampleGenerator(self._data, self._sample_count)

    def __len__(self) -> int:
        return self._sample_count

    def __next__(self) -> T:
        if self._count >= self._sample_count:
            raise StopIteration
        self._count += 1
        return self._data
