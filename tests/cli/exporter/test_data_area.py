"""Space at the end of a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from hsparse.cli.exporter.data_area import DataArea
from hsparse.errors import StoreFailed


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    found = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    yield found
    os.close(found)


def test_many_threads_have_places_of_their_own(descriptor: int) -> None:
    area = DataArea(descriptor, 100)
    parts = [bytes([number]) * (number % 13) for number in range(200)]
    with ThreadPoolExecutor(8) as pool:
        places = list(pool.map(area.append, parts))
    for place, data in zip(places, parts, strict=True):
        assert place % 8 == 0
        assert os.pread(descriptor, len(data), place) == data
    spans = sorted((place, place + len(data)) for place, data in zip(places, parts, strict=True) if data)
    assert all(one[1] <= other[0] for one, other in pairwise(spans))
    assert spans[0][0] >= 100
    assert area.end >= spans[-1][1]


def test_a_disk_that_takes_little_at_once(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: real(file, bytes(data)[:3], at))
    area = DataArea(descriptor, 0)
    assert os.pread(descriptor, 20, area.append(b"0123456789")) == b"0123456789"


def test_a_disk_that_is_full(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, data: object, at: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StoreFailed, match="No space left"):
        DataArea(descriptor, 0).append(b"1")
