"""What opening a file that is far away reads: few requests where it is small or dense, few bytes where it is large."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pytest

from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.importer import opening_reads
from hsparse.hdf5.importer.opening_reads import MIB, OpeningReads
from hsparse.hdf5.importer.source import InputFile
from hsparse.hdf5.importer.source_files import NO_FILES
from hsparse.hdf5.in_place.kept_files import KeptFiles
from hsparse.hdf5.in_place.opening import RememberedSource
from hsparse.hdf5.in_place.served_file import ServedFile
from hsparse.model.ids import root_id, storage_key
from tests.testing.manual_clock import ManualClock

ROOT = root_id(b"12345678")
GROUPS = 100


class FarSource(InputFile):
    """A file whose requests are counted."""

    is_far = True

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        self.name, self.size, self.fingerprint = "far.h5", len(data), ""
        self.asked: list[ByteRange] = []

        def begin(wanted: ByteRange) -> Future[bytes]:
            self.asked.append(wanted)
            found = Future[bytes]()
            found.set_result(data[wanted.address : wanted.address + wanted.size])
            return found

        self._begin = begin
        self._reads = OpeningReads(self.size, begin)
        self.is_opening = False

    def close(self) -> None:
        """Nothing is open."""

    @contextmanager
    def opening(self) -> Iterator[None]:
        self.is_opening = True
        yield
        self.is_opening = False

    def fetch(self, wanted: tuple[ByteRange, ...]) -> Sequence[bytes]:
        for one in wanted:
            self.check(one)
        if self.is_opening:
            return self._reads.read(wanted)
        return [self._begin(one).result() for one in wanted]


@pytest.fixture(scope="module", params=["earliest", "latest"])
def spread(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 200 objects, between the headers of which are values."""
    path = _written(tmp_path_factory.mktemp("far") / "spread.h5", GROUPS, 32 * 1024, request.param)
    assert path.stat().st_size > 24 * MIB
    return path


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _written(tmp_path_factory.mktemp("far") / "small.h5", 3, 1000, "latest")


def _written(path: Path, groups: int, count: int, version: str) -> Path:
    with h5py.File(path, "w", libver=version) as file:
        for number in range(groups):
            group = file.create_group(f"g{number}")
            group.attrs["text"] = f"number {number}"
            group.create_dataset("x", data=np.full(count, number), chunks=(count // 2,))
    return path


def _opened(path: Path) -> tuple[ServedFile, FarSource]:
    source = FarSource(path)
    return ServedFile("/far.h5", ROOT, 0.0, lambda: (source, NO_FILES)), source


def test_few_requests(spread: Path) -> None:
    file, source = _opened(spread)
    assert len([one for one in file.keys(_tree()) if one.endswith(".json")]) == 2 * GROUPS + 1
    assert len(source.asked) <= 4, source.asked
    assert sum(one.size for one in source.asked) < 1.4 * source.size


def test_few_bytes_of_a_large_file(spread: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening_reads, "MAX_WHOLE_BYTES", 8 * MIB)
    monkeypatch.setattr(opening_reads, "MAX_GAP_BYTES", 0)
    monkeypatch.setattr(opening_reads, "PAGE_BYTES", 8 * 1024)
    monkeypatch.setattr(opening_reads, "MOST_AHEAD", MIB // 4)
    file, source = _opened(spread)
    assert sum(not key.endswith(".json") for key in file.keys(_tree())) == 2 * GROUPS
    assert sum(one.size for one in source.asked) < source.size / 4
    assert len(source.asked) < 4 * GROUPS


def test_what_was_remembered_is_not_read_again(spread: Path) -> None:
    file, source = _opened(spread)
    asked = len(source.asked)
    keys = file.keys(_tree())
    assert len(source.asked) == asked, "the chunk indexes were read, too"
    chunk = next(key for key in keys if not key.endswith(".json"))
    assert file.get(chunk) is not None
    assert len(source.asked) == asked + 1
    assert len(file.get(storage_key(ROOT)) or b"") > GROUPS


def test_what_is_remembered_is_bounded(spread: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hsparse.hdf5.in_place.opening.CACHED_BYTES", 10_000)
    source = RememberedSource(FarSource(spread))
    source.remember(1000)
    assert 0 < sum(map(len, source.ranges.values())) <= 10_000


def _tree() -> str:
    return storage_key(ROOT).rpartition("/")[0] + "/"


IDENTITY = ("/place", "far.h5", "etag", ROOT)


def _kept(directory: Path, now: float = 1000.0, **options: int) -> KeptFiles:
    return KeptFiles(directory, ManualClock(now), **options)


def _served(path: Path, kept: KeptFiles, *identity: str) -> tuple[ServedFile, FarSource]:
    source = FarSource(path)
    entry = kept.of(0.0, *(identity or IDENTITY))
    return ServedFile("/far.h5", ROOT, 0.0, lambda: (source, NO_FILES), entry), source


def test_what_is_known_is_kept_for_other_servers(small: Path, tmp_path: Path) -> None:
    first, _ = _served(small, _kept(tmp_path / "a" / "cache"))
    again, source = _served(small, _kept(tmp_path / "a" / "cache"))
    keys = first.keys(_tree())
    assert again.keys(_tree()) == keys
    assert source.asked == [], "neither the objects nor the chunk indexes are read again"
    for key in [key for key in keys if key.endswith(".json")] + [*keys][-3:]:
        assert again.get(key) == first.get(key)


def test_it_is_of_one_file_in_one_state(small: Path, tmp_path: Path) -> None:
    _served(small, _kept(tmp_path))
    for place, value in ((0, "/other"), (1, "other.h5"), (2, "other"), (3, ROOT[:-1])):
        other = [*IDENTITY]
        other[place] = value
        assert _kept(tmp_path).get(("0.0", *other)) is None
    assert _kept(tmp_path).get(("0.0", *IDENTITY)) is not None
    assert _kept(tmp_path).get(("0.5", *IDENTITY)) is None, "the time is in the records"
    assert _kept(tmp_path, 1.5).of(0.0, *IDENTITY) is None, (
        "it may change in the tick of the clock it changed in"
    )


def test_damaged_entries_and_those_of_others_are_as_nothing(small: Path, tmp_path: Path) -> None:
    file, _ = _served(small, _kept(tmp_path))
    [entry] = tmp_path.iterdir()
    data = entry.read_bytes()
    other, _ = _served(small, _kept(tmp_path), "/other", *IDENTITY[1:])
    [foreign] = [one for one in tmp_path.iterdir() if one != entry]
    changed = bytearray(data)
    changed[len(data) // 2] ^= 1
    for damage in (b"", data[:20], data[:-1], bytes(changed), foreign.read_bytes(), b"x" * len(data)):
        entry.write_bytes(damage)
        again, source = _served(small, _kept(tmp_path))
        assert source.asked, "it is parsed"
        assert again.keys(_tree()) == file.keys(_tree()) == other.keys(_tree())
    assert entry.read_bytes()[32:] == data[32:], "it is kept again"


def test_what_another_version_has_kept_is_not_taken(small: Path, tmp_path: Path) -> None:
    kept = _kept(tmp_path)
    kept.put(("0.0", *IDENTITY), {"records": {}})
    file, source = _served(small, kept)
    assert source.asked
    assert file.keys(_tree())


def test_a_directory_is_bounded(tmp_path: Path) -> None:
    kept = _kept(tmp_path, most=10_000)
    for number in range(30):
        kept.put((str(number),), bytes(1000))
        os.utime(kept._place((str(number),))[0], (number, number))
        assert kept.get(("0",)) is not None, "it is used all the time"
    sizes = [one.stat().st_size for one in tmp_path.iterdir()]
    assert 5000 < sum(sizes) <= 10_000
    assert kept.get(("29",)) == bytes(1000)
    assert kept.get(("1",)) is None
    kept.put(("large",), bytes(20_000))
    assert kept.get(("large",)) is None


@pytest.mark.parametrize("place", ["/dev/null", "/proc/none", "file"])
def test_without_a_usable_directory_nothing_is_kept(small: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    kept = _kept(tmp_path / place)
    for _ in range(2):
        file, source = _served(small, kept)
        assert source.asked
        assert file.keys(_tree())
