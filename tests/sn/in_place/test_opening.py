"""Opening files: what is read of those that are far away or have many objects, the same records, and sizes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hsparse.cli.main import main
from hsparse.errors import LeftOut
from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.importer import file_objects, opening_reads
from hsparse.hdf5.importer.opening_reads import MIB, OpeningReads
from hsparse.hdf5.importer.source import InputFile
from hsparse.hdf5.importer.source_files import NO_FILES
from hsparse.hdf5.in_place import served_file, store
from hsparse.hdf5.in_place.folders import DirectoryFiles
from hsparse.hdf5.in_place.kept_files import KeptFiles
from hsparse.hdf5.in_place.opening import RememberedSource
from hsparse.hdf5.in_place.served_file import ServedFile
from hsparse.model.ids import chunk_prefix, derived_id, root_id, storage_key
from tests.sn.in_place.conftest import ask, served
from tests.testing.manual_clock import ManualClock

ROOT = root_id(b"12345678")
TREE = storage_key(ROOT).removesuffix(".group.json")
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
    assert len([one for one in file.keys(TREE) if one.endswith(".json")]) == 2 * GROUPS + 1
    assert len(source.asked) <= 4, source.asked
    assert sum(one.size for one in source.asked) < 1.4 * source.size


def test_few_bytes_of_a_large_file(spread: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening_reads, "MAX_WHOLE_BYTES", 8 * MIB)
    monkeypatch.setattr(opening_reads, "MAX_GAP_BYTES", 0)
    monkeypatch.setattr(opening_reads, "PAGE_BYTES", 8 * 1024)
    monkeypatch.setattr(opening_reads, "MOST_AHEAD", MIB // 4)
    file, source = _opened(spread)
    assert sum(not key.endswith(".json") for key in file.keys(TREE)) == 2 * GROUPS
    assert sum(one.size for one in source.asked) < source.size / 4
    assert len(source.asked) < 4 * GROUPS


def test_what_was_remembered_is_not_read_again(spread: Path) -> None:
    file, source = _opened(spread)
    asked = len(source.asked)
    keys = file.keys(TREE)
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
    keys = first.keys(TREE)
    assert again.keys(TREE) == keys
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
        assert again.keys(TREE) == file.keys(TREE) == other.keys(TREE)
    assert entry.read_bytes()[32:] == data[32:], "it is kept again"


def test_what_another_version_has_kept_is_not_taken(small: Path, tmp_path: Path) -> None:
    kept = _kept(tmp_path)
    kept.put(("0.0", *IDENTITY), {"records": {}})
    file, source = _served(small, kept)
    assert source.asked
    assert file.keys(TREE)


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
        assert file.keys(TREE)


COUNT = 20


def write_kinds(path: Path, version: str) -> None:
    """Write objects of every kind, a few of each form, and some that no server has."""
    with h5py.File(path, "w", libver=version) as file:
        file["type"] = np.dtype("f4")
        for number in range(4):
            group = file.create_group(f"g{number}")
            group.attrs["number"] = number
            group.create_dataset("contiguous", data=np.full(4, number, "i4"))
            group.create_dataset("chunked", data=np.full(8, number), chunks=(2,), compression="gzip")
            group.create_dataset("resizable", data=np.full(8, number), chunks=(2,), maxshape=(None,))
            group.create_dataset("typed", (2,), file["type"])
            group["same"] = group["chunked"]
            group["up"] = h5py.SoftLink("/g0")
            group["away"] = h5py.ExternalLink("other.h5", "/x")
            group["contiguous"].attrs["text"] = f"number {number}"
            group["contiguous"].attrs["reference"] = file["g0"].ref
            group.create_group("empty")
        matrix = file.create_group("g1/matrix")
        matrix.attrs.update({"encoding-type": "csr_matrix", "shape": [2, 3]})
        for name, values in (("data", [1.0, 2.0]), ("indices", [0, 2]), ("indptr", [0, 1, 2])):
            matrix[name] = np.array(values)
        events = file.create_group("g2/events")
        events.attrs["NX_class"] = "NXevent_data"
        for name in ("event_id", "event_index", "event_time_zero"):
            events[name] = np.arange(3)
        values = file.create_dataset("g3/values", data=np.arange(4), chunks=(2,))
        values.attrs["DEFINED_SET"] = file.create_dataset("g3/set", data=np.ones(4, bool), chunks=(2,)).ref
        file.create_dataset("g3/raw", (4,), "i8", external=[("part.raw", 0, 32)])
        layout = h5py.VirtualLayout((8,), "i8")
        layout[:] = h5py.VirtualSource(".", "/g0/chunked", (8,))
        file.create_virtual_dataset("g3/virtual", layout)
        file.create_dataset("g3/unreadable", (2,), h5py.h5t.NATIVE_LDOUBLE)
        scalar = h5py.h5s.create(h5py.h5s.SCALAR)
        h5py.h5a.create(file.create_dataset("g3/named", data=1).id, b"\xff", h5py.h5t.NATIVE_INT32, scalar)
        damaged = [
            h5py.h5o.get_info(file.create_dataset(f"damaged{one}", data=[one]).id).addr for one in range(2)
        ]
    with path.open("r+b") as raw:
        for address in damaged:
            raw.seek(address)
            raw.write(bytes(8))


def opened(path: Path) -> ServedFile:
    folder = DirectoryFiles(path.parent)
    state = folder.state(path.name)
    assert state is not None
    return ServedFile(f"/runs/{path.name}", ROOT, 0.0, lambda: folder.open(path.name, state))


def record_of(file: ServedFile, id: str) -> Any:
    data = file.get(storage_key(id))
    return None if data is None else json.loads(bytes(data))


def walked(file: ServedFile) -> Iterator[tuple[str, Any]]:
    """Yield the objects that links lead to, as a client finds them."""
    ahead, seen = [ROOT], set()
    while ahead:
        id = ahead.pop()
        if id not in seen:
            seen.add(id)
            yield id, (record := record_of(file, id))
            ahead += [one["id"] for one in record.get("links", {}).values() if "id" in one]


@pytest.mark.parametrize("version", ["earliest", "latest"])
def test_records_are_those_of_a_file_parsed_as_a_whole(
    tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_kinds(tmp_path / "kinds.h5", version)
    whole = opened(tmp_path / "kinds.h5")
    monkeypatch.setattr(served_file, "MOST_WHOLE", 0)
    parts = opened(tmp_path / "kinds.h5")
    assert dict(walked(parts)) == dict(walked(whole))
    assert parts.keys(TREE) == whole.keys(TREE)
    for key in whole.keys(TREE):
        again = opened(tmp_path / "kinds.h5")  # as another process, which no link has told the id
        assert json.loads(bytes(again.get(key) or b"")) if key.endswith(".json") else again.get(key), key
    group = record_of(parts, ROOT)["links"]["g3"]["id"]
    assert parts.is_elsewhere(storage_key(group)), "what is left out may come"
    assert whole.is_elsewhere(storage_key(group))


def test_objects_that_are_asked_for_are_parsed_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_file, "MOST_WHOLE", COUNT - 1)
    parsed: list[int] = []
    parse = file_objects.parse_object
    monkeypatch.setattr(
        file_objects, "parse_object", lambda file, address: parsed.append(address) or parse(file, address)
    )
    with h5py.File(tmp_path / "many.h5", "w") as file:
        for number in range(COUNT):
            file.create_dataset(f"a/s{number:02}", data=np.full(4, number, "f4"))
            file[f"a/s{number:02}"].attrs["number"] = number
    served = opened(tmp_path / "many.h5")
    links = record_of(served, record_of(served, ROOT)["links"]["a"]["id"])["links"]
    assert [*links] == [f"s{number:02}" for number in range(COUNT)]
    id = links["s07"]["id"]
    assert record_of(served, id)["shape"]["dims"] == [4]
    assert [*served.keys(chunk_prefix(id))] == [storage_key(id), chunk_prefix(id) + "0"]
    assert len(parsed) < 8, "the groups, the first dataset of the form, and the one that is read"
    assert len(served.keys(TREE)) == 2 * COUNT + 2


def test_ids_of_no_object_are_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_file, "MOST_WHOLE", 0)
    write_kinds(tmp_path / "kinds.h5", "latest")
    served = opened(tmp_path / "kinds.h5")
    for number in range(64):
        for collection in ("groups", "datasets", "datatypes"):
            id = derived_id(collection, ROOT, number.to_bytes(8, "big"))
            assert served.get(storage_key(id)) is None
            assert served.get(chunk_prefix(id) + "0") is None
    dataset = next(id for id, record in walked(served) if id.startswith("d-"))
    assert served.get(storage_key(f"g{dataset[1:]}")) is None, "of another kind"


@pytest.mark.parametrize("version", ["earliest", "latest"])
def test_damage_behind_a_header_is_told_by_the_object(
    tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_file, "MOST_WHOLE", 0)
    path = tmp_path / "chunks.h5"
    with h5py.File(path, "w", libver=version) as file:
        for number in range(3):
            file.create_dataset(f"s{number}", data=np.arange(40), chunks=(2,), maxshape=(None,))
    data = path.read_bytes()
    signature = b"EAHD" if version == "latest" else b"TREE"
    at = data.rindex(signature)
    path.write_bytes(data[:at] + b"none" + data[at + 4 :])
    served = opened(path)
    links = record_of(served, ROOT)["links"]
    said = []
    for name, link in links.items():
        try:
            assert record_of(served, link["id"])["shape"]
        except LeftOut as error:
            said.append((name, error.message))
    [(name, text)] = said
    assert f"/runs/chunks.h5: /{name}: " in text


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("sizes") / "runs"
    (place / "sub").mkdir(parents=True)
    for version in ("earliest", "latest"):
        write_kinds(place / f"{version}.h5", version)
    with h5py.File(place / "sub" / "zeros.h5", "w") as file:
        file.create_dataset("x", data=np.zeros(100_000), chunks=(1000,), compression="gzip", fletcher32=True)
        file.create_dataset("odd", data=np.zeros(100_000, ">f8"), chunks=(7,), compression="gzip")
    return place


@pytest.fixture(scope="module")
def url(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("root")
    with served(root, place, files_cache=root / "cache") as url:
        yield url


def sizes(url: str, folder: str, **params: Any) -> dict[str, int]:
    text = "".join(f"&{name}={value}" for name, value in params.items())
    entries = ask(url, f"/domains?domain={folder}&verbose=1{text}")["domains"]
    return {one["name"]: one["total_size"] for one in entries if one["class"] == "domain"}


def on_disk(place: Path, folder: str) -> dict[str, int]:
    files = (place / folder).iterdir()
    return {f"/{one.relative_to(place.parent)}": one.stat().st_size for one in files if one.is_file()}


@pytest.mark.parametrize("folder", ["", "sub"])
def test_a_file_counts_as_its_size_on_disk(url: str, place: Path, folder: str) -> None:
    assert sizes(url, f"/runs/{folder}") == on_disk(place, folder)
    for name, size in on_disk(place, folder).items():
        found = ask(url, f"/?domain={name}&verbose=1")
        assert found["total_size"] == size
        assert found["allocated_bytes"] > 0


def test_sizes_alone_are_told_without_a_look_into_files(
    url: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(store, "ServedFile", None)
    (place / "new.h5").write_bytes((place / "latest.h5").read_bytes())
    right = on_disk(place, "")
    assert sizes(url, "/runs/", size_only=1) == right
    assert ask(url, "/?domain=/runs/new.h5&verbose=1&size_only=1")["total_size"] == sum(
        size for name, size in right.items() if name.endswith("new.h5")
    )
    access = ["--endpoint", url]
    assert main(["ls", "-l", "/runs", *access]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert {line[-1]: int(line[2]) for line in lines if line[0] == "domain"} == right
    assert main(["du", "-s", "/runs", *access]) == 0
    total = sum(right.values()) + sum(on_disk(place, "sub").values())
    assert capsys.readouterr().out.split()[0] == str(total)
