"""Direct reads against numpy and against what the server answers, while others write."""

from __future__ import annotations

import os
import pickle
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from hsparse.client.connection import Connection
from hsparse.client.integrations.direct import direct_elements
from hsparse.client.integrations.direct.direct_elements import DirectElements
from hsparse.client.integrations.direct.direct_source import direct_source
from hsparse.client.integrations.direct.object_reader import ObjectPlace, ObjectReader
from hsparse.client.sources.elements import Elements
from hsparse.client.sparse.compressed_rows import CompressedRows
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.errors import BadRequest, Corrupt
from hsparse.format.chunk_spec import chunk_key
from hsparse.format.selections.points import Orthogonal
from tests.client.access_ways import Access, open_access
from tests.format.selection_strategies import list_axis, orthogonals

EXTENT = (23, 17)
FILTERS: dict[str, list[dict[str, Any]]] = {
    "default": [],
    "zstd": [{"id": 2}, {"id": 32015, "level": 1}],
    "deflate": [{"id": 1, "level": 1}],
}


def random_dataset(
    access: Access, extent: tuple[int, ...] = EXTENT, **options: Any
) -> tuple[SparseDataset, np.ndarray]:
    """Return a dataset of elements 1, 2, ... at random places, and its dense values, -1 where undefined."""
    dataset = access.create(extent, fillvalue=-1, **options)
    coords = np.argwhere(np.random.default_rng(len(extent)).random(extent) < 0.3)
    dense = np.full(extent, -1, dataset.dtype)
    dense[tuple(coords.T)] = np.arange(1, len(coords) + 1)
    dataset.write(coords, np.arange(1, len(coords) + 1))
    return dataset, dense


def placed(elements: Elements, extent: tuple[int, ...]) -> np.ndarray:
    """Return elements in an array, -1 elsewhere; each is to be there once."""
    result = np.full(extent, -1, elements.values.dtype)
    result[tuple(elements.columns)] = elements.values
    assert np.count_nonzero(result + 1) == len(elements)
    return result


def selected(dense: np.ndarray, selection: Any) -> np.ndarray:
    """Return an array with the selected values, and -1 elsewhere."""
    result = np.full_like(dense, -1)
    places = tuple(selection.coords().astype(np.intp).T)
    result[places] = dense[places]
    return result


@pytest.fixture(scope="module")
def random_access(request: pytest.FixtureRequest) -> Iterator[tuple[DirectElements, np.ndarray]]:
    """A source of a random dataset, and the dense values."""
    with open_access("directory", request) as opened:
        dataset, dense = random_dataset(opened)
        yield opened.source(dataset), dense


@settings(max_examples=40)
@given(selection=orthogonals(EXTENT))
def test_random_selections(random_access: tuple[DirectElements, np.ndarray], selection: Orthogonal) -> None:
    source, dense = random_access
    found = source.dense_values(selection)
    np.testing.assert_array_equal(found, dense[selection.index()].reshape(selection.shape))
    once = Orthogonal(EXTENT, tuple(np.unique(list_axis(axis)).astype(np.uint64) for axis in selection.axes))
    np.testing.assert_array_equal(placed(source.defined_elements(once), EXTENT), selected(dense, once))


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("extent", [(40,), (9, 8, 7), (4, 5, 6, 3)], ids=str)
def test_ranks_and_filters(directory_access: Access, extent: tuple[int, ...], name: str) -> None:
    chunks = tuple(max(1, length // 2) for length in extent)
    options: dict[str, Any] = {"chunks": chunks, "filters": FILTERS[name], "stripes": len(extent)}
    dataset, dense = random_dataset(directory_access, extent, **options)
    source = directory_access.source(dataset)
    np.testing.assert_array_equal(placed(source.defined_elements(Orthogonal.all(extent)), extent), dense)
    assert source.statistics.fallbacks == 0


def test_a_read_after_a_write_sees_it(direct_access: Access) -> None:
    dataset, dense = random_dataset(direct_access)
    source = direct_access.source(dataset)
    whole = Orthogonal.all(EXTENT)
    for step in range(6):
        place = [step * 3, step * 2]
        if step % 3 == 2:
            dataset.erase_points([place])
            dense[tuple(place)] = -1
        else:
            dataset.write([place], [1000 + step])
            dense[tuple(place)] = 1000 + step
        np.testing.assert_array_equal(placed(source.defined_elements(whole), EXTENT), dense)
    assert (source.statistics.fallbacks, source.statistics.unchanged_maps) == (0, 0)
    assert source.statistics.maps == 6
    source.defined_elements(whole)
    assert source.statistics.unchanged_maps == 1


def test_a_new_extent_is_seen(direct_access: Access) -> None:
    dataset = direct_access.create((4, 4), fillvalue=-1)
    source = direct_access.source(dataset)
    assert not len(source.defined_elements(Orthogonal.all((4, 4))))
    dataset.append([[0, 1]], [5], count=3)
    assert placed(source.defined_elements(Orthogonal.all((7, 4))), (7, 4))[4, 1] == 5
    assert not len(source.defined_elements(Orthogonal.all((4, 4))))  # the extent of before
    dataset.resize((2, 4), erase=True)
    with pytest.raises(BadRequest):
        source.defined_elements(Orthogonal.box((7, 4), (1, 1), (7, 3)))


def test_elements_beyond_the_extent_are_not_there(directory_access: Access) -> None:
    """A reader with a smaller extent, or an append under way: the chunk has more than the extent."""
    dataset, dense = random_dataset(directory_access)
    source = directory_access.source(dataset)
    smaller = (21, 15)
    found = placed(source.defined_elements(Orthogonal.all(smaller)), smaller)
    np.testing.assert_array_equal(found, dense[:21, :15])


class Interrupting(ObjectReader):
    """A reader that does something before it reads the first object."""

    def __init__(self, reader: Any, action: Any) -> None:
        self.reader, self.action, self.at_once = reader, action, 1

    def read(self, place: ObjectPlace) -> bytes:
        action, self.action = self.action, None
        if action is not None:
            action()
        return self.reader.read(place)

    def close(self) -> None:
        self.reader.close()


def interrupt(source: DirectElements, action: Any) -> None:
    source._reader = Interrupting(source._reader, action)  # type: ignore[assignment]


@pytest.mark.parametrize("change", ["write", "erase", "resize"])
def test_a_chunk_that_changes_between_map_and_read(direct_access: Access, change: str) -> None:
    dataset, dense = random_dataset(direct_access)
    source = direct_access.source(dataset)
    whole = Orthogonal.all(EXTENT)
    source.defined_elements(whole)
    if change == "write":
        interrupt(source, lambda: dataset.write([[0, 0], [22, 16]], [7, 8]))
        dense[0, 0], dense[22, 16] = 7, 8
    elif change == "erase":
        interrupt(source, lambda: dataset.erase("[0:12,:]"))
        dense[:12] = -1
    else:
        interrupt(source, lambda: dataset.resize((6, 17), erase=True))
        dense[6:] = -1
    np.testing.assert_array_equal(placed(source.defined_elements(whole), EXTENT), dense)
    assert source.statistics.fallbacks == (change == "resize")  # the server knows what an old extent means


def chunk_path(access: Access, dataset: SparseDataset, *scaled: int) -> Path:
    assert access.root is not None
    return access.root / chunk_key(dataset.id, scaled)


def test_a_file_that_is_being_written_is_left_to_the_server(directory_access: Access) -> None:
    dataset, dense = random_dataset(directory_access)
    source = directory_access.source(dataset)
    whole = Orthogonal.all(EXTENT)
    source.defined_elements(whole)
    path = chunk_path(directory_access, dataset, 0, 0)
    path.chmod(path.stat().st_mode | stat.S_ISVTX)
    np.testing.assert_array_equal(placed(source.defined_elements(whole), EXTENT), dense)
    assert source.statistics.fallbacks == 1
    assert "is being written" in source.statistics.reason
    np.testing.assert_array_equal(source.dense_values(whole), dense)


@pytest.mark.parametrize("place", [10, -10], ids=["selection", "footer"])
def test_corrupt_objects_are_never_used(directory_access: Access, place: int) -> None:
    """The etag is that of the map, and the bytes are not: the checksum finds out, and the server names the object."""
    dataset, _ = random_dataset(directory_access)
    path = chunk_path(directory_access, dataset, 1, 1)
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(before.st_mtime_ns, before.st_mtime_ns))
    source = directory_access.source(dataset)
    source._server = Refusing()  # type: ignore[assignment]
    with pytest.raises(Corrupt, match="the server was asked"):
        source.defined_elements(Orthogonal.all(EXTENT))
    assert source.statistics.fallbacks == 1


class Refusing:
    """A server that finds the object corrupt."""

    def defined_elements(self, selection: Any) -> Elements:
        raise Corrupt("the server was asked")

    def dense_values(self, selection: Any) -> np.ndarray:
        raise Corrupt("the server was asked")


def test_the_directory_of_another_store(directory_access: Access, tmp_path: Path) -> None:
    dataset, dense = random_dataset(directory_access)
    (tmp_path / "other" / ".hsparse").mkdir(parents=True)
    source = directory_access.source(dataset, tmp_path / "other")
    np.testing.assert_array_equal(placed(source.defined_elements(Orthogonal.all(EXTENT)), EXTENT), dense)
    assert (source.statistics.objects, source.statistics.fallbacks) == (0, 1)
    # A copy has the keys and the bytes, in an older state perhaps.
    assert directory_access.root is not None
    shutil.copytree(directory_access.root, tmp_path / "copy")
    dataset.write([[0, 0]], [99])
    dense[0, 0] = 99
    source = directory_access.source(dataset, tmp_path / "copy")
    np.testing.assert_array_equal(placed(source.defined_elements(Orthogonal.all(EXTENT)), EXTENT), dense)
    assert source.statistics.objects == 0


def test_a_missing_codec_and_an_unreadable_file(
    directory_access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, dense = random_dataset(directory_access)
    source = directory_access.source(dataset)
    whole = Orthogonal.all(EXTENT)
    monkeypatch.setattr(direct_elements, "MAX_SINGLE", 3)
    path = chunk_path(directory_access, dataset, 0, 0).parent
    real, here = os.open, threading.current_thread()

    def refuse(name: Any, *rest: Any, **options: Any) -> int:
        thread = threading.current_thread()  # the server's has another name
        if str(name).startswith(str(path)) and (thread is here or "direct-read" in thread.name):
            raise PermissionError(13, "Permission denied")
        return real(name, *rest, **options)

    monkeypatch.setattr(os, "open", refuse)
    np.testing.assert_array_equal(placed(source.defined_elements(whole), EXTENT), dense)
    assert source.statistics.objects == 0
    assert source.statistics.fallbacks == 1  # one request for all
    assert "Permission denied" in source.statistics.reason


def test_maps_of_large_datasets_are_asked_for_by_selection(
    direct_access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hsparse.client.integrations.direct.kept_map.MAX_WHOLE_MAP_CHUNKS", 4)
    monkeypatch.setattr("hsparse.client.integrations.direct.kept_map.WHOLE_SIGNED", 4)
    dataset, dense = random_dataset(direct_access)
    source = direct_access.source(dataset)
    selection = Orthogonal.box(EXTENT, (6, 1), (9, 3))
    for _ in range(5):
        found = source.defined_elements(selection)
        np.testing.assert_array_equal(placed(found, EXTENT), selected(dense, selection))
    assert source.statistics.objects == 5
    # After three parts the whole map is asked for, and then revalidated; maps with URLs are not.
    assert source.statistics.maps == 5
    assert source.statistics.unchanged_maps == (0 if source._kept._signed else 1)


def test_a_pickle_reads(direct_access: Access) -> None:
    dataset, dense = random_dataset(direct_access)
    source = direct_access.source(dataset)
    source.defined_elements(Orthogonal.all(EXTENT))
    copy = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(placed(copy.defined_elements(Orthogonal.all(EXTENT)), EXTENT), dense)
    assert copy.statistics.fallbacks == 0


def test_dense_datasets(direct_access: Access) -> None:
    connection = direct_access.connection
    body = {"type": "H5T_STD_I16BE", "shape": [30, 20], "creationProperties": {"fillValue": -3}}
    made = connection.json("POST", "/datasets", body)
    connection.json(
        "PUT", f"/datasets/{made['id']}/value", {"start": [3, 4], "stop": [5, 6], "value": [[1, 2], [3, 4]]}
    )
    record = connection.json("GET", f"/datasets/{made['id']}")
    source = open_dense(direct_access, connection, record)
    found = source.dense_values(Orthogonal.box((30, 20), (2, 3), (6, 7)))
    expected = np.full((4, 4), -3)
    expected[1:3, 1:3] = [[1, 2], [3, 4]]
    np.testing.assert_array_equal(found, expected)
    assert (source.statistics.objects, source.statistics.fallbacks) == (1, 0)


def open_dense(access: Access, connection: Connection, record: Any) -> DirectElements:
    source = direct_source(connection, record, access.direct, Refusing())
    assert source is not None
    return source


def random_matrix(access: Access) -> tuple[SparseDataset, np.ndarray]:
    """Return a dataset in chunks of which one row of them is empty, and its values."""
    dataset = access.create(EXTENT)
    dense = np.where(np.random.default_rng(3).random(EXTENT) < 0.3, np.arange(1, 392).reshape(EXTENT), 0)
    dense[5:10] = 0
    coords = np.argwhere(dense)
    dataset.write(coords, dense[tuple(coords.T)])
    return dataset, dense


@pytest.fixture(scope="module")
def matrix(request: pytest.FixtureRequest) -> Iterator[tuple[DirectElements, SparseDataset, np.ndarray]]:
    with open_access("directory", request) as opened:
        dataset, dense = random_matrix(opened)
        source: Any = opened.source(dataset)
        dataset.source = source
        yield source, dataset, dense


@settings(max_examples=60)
@given(selection=orthogonals(EXTENT))
def test_random_selections_as_rows(
    matrix: tuple[DirectElements, SparseDataset, np.ndarray], selection: Orthogonal
) -> None:
    source, _, dense = matrix
    axes = tuple(np.unique(list_axis(axis)).astype(np.uint64) for axis in selection.axes)
    found = source.compressed_rows(Orthogonal(EXTENT, axes))
    if not selection.size:
        assert found is None
        return
    assert isinstance(found, CompressedRows)
    csr = found.to_scipy()
    csr.check_format()
    np.testing.assert_array_equal(csr.toarray(), dense[np.ix_(*(axis.astype(np.intp) for axis in axes))])
    assert csr.nnz == np.count_nonzero(csr.toarray())


def test_a_chunk_that_changes_meanwhile_is_read_by_elements(directory_access: Access) -> None:
    dataset, dense = random_matrix(directory_access)
    source: Any = directory_access.source(dataset)
    assert directory_access.root is not None
    path = directory_access.root / chunk_key(dataset.id, (3, 1))
    whole = Orthogonal.all(EXTENT)
    assert source.compressed_rows(whole) is not None
    path.unlink()
    assert source.compressed_rows(whole) is None
    dataset.source = source
    found = dataset[...]
    np.testing.assert_array_equal(found.toarray(), dense)
    assert source.statistics.fallbacks == 1


WRITTEN = (6, 8)
WRITES = 60


def test_acknowledged_writes_are_seen(direct_access: Access) -> None:
    """A writer counts up in two rows of chunks by one request each; small objects are written in place."""
    writes = WRITES if direct_access.way in ("directory", "embedded") else WRITES // 6
    dataset = direct_access.create(WRITTEN, np.int64, chunks=(3, 4))
    dataset.write_region("[:,:]", 0)
    source = direct_access.source(dataset)
    acknowledged, ended = [0, 0], threading.Event()

    def write() -> None:
        for number in range(1, writes + 1):
            for half, select in enumerate(("[0:3,:]", "[3:6,:]")):
                dataset.write_region(select, number)
                acknowledged[half] = number
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    reads = 0
    while not ended.is_set() or not reads:
        before = list(acknowledged)
        found = source.dense_values(Orthogonal.all(WRITTEN))
        for half, part in enumerate((found[:3], found[3:])):
            assert part.min() >= before[half]
            for chunk in (part[:, :4], part[:, 4:]):
                assert (chunk == chunk[0, 0]).all()
        reads += 1
    writer.join()
    assert (source.dense_values(Orthogonal.all(WRITTEN)) == writes).all()
