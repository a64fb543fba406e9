"""Files of many objects, each parsed when it is asked for: the same records as of a file that is parsed as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hsparse.errors import LeftOut
from hsparse.hdf5.importer import file_objects
from hsparse.hdf5.in_place import served_file
from hsparse.hdf5.in_place.folders import DirectoryFiles
from hsparse.hdf5.in_place.served_file import ServedFile
from hsparse.model.ids import chunk_prefix, derived_id, root_id, storage_key

ROOT = root_id(b"12345678")
TREE = storage_key(ROOT).removesuffix(".group.json")
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
