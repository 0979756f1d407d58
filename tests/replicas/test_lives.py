"""Processes that torchrun started together find each other in a store that is full of what those
before them left."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch.distributed import HashStore
from with_settings import setting

from torch_xla._replicas import lives


def joined(store: HashStore, ranks: list[int], size: int) -> set[str]:
    """The lives that those who come in this order find."""
    with ThreadPoolExecutor(size) as pool:
        futures = []
        for rank in ranks:
            futures.append(pool.submit(lives.join, store, rank, size))
            threading.Event().wait(0.02)
        return {future.result() for future in futures}


def test_each_start_of_a_job_is_another_life_whoever_comes_first():
    store = HashStore()
    found = [joined(store, order, 3) for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2], [0, 2, 1])]
    assert [len(life) for life in found] == [1] * 4
    assert len(set.union(*found)) == 4


def test_who_takes_a_place_in_a_start_that_goes_on_is_in_its_life():
    store = HashStore()
    store.set("member 1", "one that has ended since")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(lives.join, store, 0, 2)
        store.wait(["life of one that has ended since"])
        assert not first.done()
        second = pool.submit(lives.join, store, 1, 2)
        assert first.result() == second.result()


def test_who_does_not_come_is_named():
    with setting(collective_timeout=1):
        with pytest.raises(TimeoutError, match="start of the job: after 1 s replica 2 is not here"):
            joined(HashStore(), [0, 1], 3)
        with pytest.raises(TimeoutError, match="start of the job: after 1 s replica 0 is not here"):
            joined(HashStore(), [1], 2)
