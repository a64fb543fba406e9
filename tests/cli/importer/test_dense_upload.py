"""What a request of dense values has: whole chunks, side by side, and what is sent again."""

from __future__ import annotations

from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hsparse.cli.bounded_pool import BoundedPool
from hsparse.cli.progress import ProgressDisplay
from hsparse.client.http.retrying_client import RetryingClient
from hsparse.clock import SystemClock
from hsparse.errors import TooLarge
from hsparse.hdf5.format.parse.parsed_object import ObjectKind
from hsparse.hdf5.importer.dense_upload import BAND_BYTES, MAX_REQUEST_BYTES, DenseUpload, box_bands
from hsparse.hdf5.importer.file_data import Dims, InputData
from hsparse.hdf5.importer.file_objects import FileObjects
from hsparse.hdf5.importer.source import LocalSource
from hsparse.model.ids import new_root_id

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("counts", "nbytes", "boxes"),
    [
        ((100,), MIB, 7),
        ((100, 8), MIB, 50),
        ((100, 20), MIB, 100),
        ((3, 40, 2), 2 * MIB, 3 * 10),
        ((4, 3, 2), 7, 1),
        ((2, 2), 2 * MAX_REQUEST_BYTES, 4),
    ],
)
def test_bands_cover_the_grid_once(counts: tuple[int, ...], nbytes: int, boxes: int) -> None:
    found = list(box_bands(counts, nbytes))
    chunks = [scaled for first, last in found for scaled in product(*map(range, first, last))]
    assert sorted(chunks) == list(product(*map(range, counts)))
    assert len(found) == boxes


@pytest.mark.parametrize("counts", [(1000,), (50, 12), (7, 9, 11)])
@pytest.mark.parametrize("nbytes", [1000, 3 * MIB, BAND_BYTES])
def test_a_band_is_no_larger_than_a_request_may_be(counts: tuple[int, ...], nbytes: int) -> None:
    for first, last in box_bands(counts, nbytes):
        assert prod(map(int.__sub__, last, first)) * nbytes <= MAX_REQUEST_BYTES


class Boxes(RetryingClient):
    """A server that takes bodies of `most` bytes, and notes which boxes of a dataset, or chunks, it is sent."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.sent: list[str] = []

    def json(self, method: str, path: str, body: Any = None, **params: Any) -> Any:
        if len(body) > self.most:
            raise TooLarge("The body is too large.")
        self.sent.append(params.get("select") or path.split("/")[-2])


def upload(path: Path, most: int, chunk: Dims, stored: set[Dims]) -> list[str]:
    """Return what is sent of /x in a file to a server whose chunks have the dimensions `chunk`."""
    server = Boxes(most)
    with LocalSource(path) as source, BoundedPool(1) as uploads:
        objects = FileObjects(source, new_root_id(SystemClock()), matrices=())
        (one,) = objects.of(ObjectKind.DATASET)
        dataset = objects.read(one).dataset
        assert dataset is not None
        record = {
            "id": "d-1",
            "type": dataset.type.item,
            "shape": dataset.shape,
            "layout": {"class": "H5D_CHUNKED", "dims": list(chunk)},
            "creationProperties": {},
        }
        shown = ProgressDisplay(None, None, 1.0)
        data = InputData(objects, dataset)
        DenseUpload(server, uploads, "/x", record, data, shown.advance).submit(stored)
        uploads.finish()
    return server.sent


ALL = set(product(range(4), [0]))


@pytest.mark.parametrize(
    ("rows", "stored", "boxes"),
    [
        (
            1024,
            {(0, 0)},
            ["[0:1024,0:1024]", "[1024:2048,0:1024]", "[2048:3072,0:1024]", "[3072:3700,0:1024]"],
        ),
        (1024, ALL, []),
        (1100, ALL, ["[0:550,0:1024]", "[550:1100,0:1024]", "[1100:1650,0:1024]", "[1650:2200,0:1024]"]),
    ],
)
def test_chunks_that_several_requests_may_write_are_sent_again(
    tmp_path: Path, rows: int, stored: set[Dims], boxes: list[str]
) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.zeros((3700, 1024), "u1")
    sent = upload(tmp_path / "x.h5", MIB, (rows, 1024), stored)
    assert sent[: len(boxes)] == boxes
    assert bool(sent) == bool(boxes)


def test_a_large_chunk_of_stored_bytes_is_not_sent_again(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=np.ones((3000, 1024), "u1"), chunks=(1100, 1024))
    assert upload(tmp_path / "x.h5", 2 * MIB, (1100, 1024), set()) == ["0_0", "1_0", "[2200:3000,0:1024]"]
    assert upload(tmp_path / "x.h5", 2 * MIB, (1100, 1024), ALL) == ["[2200:3000,0:1024]"]


def test_a_small_chunk_is_never_sent_by_parts(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.zeros((3700, 1024), "u1")
    with pytest.raises(TooLarge):
        upload(tmp_path / "x.h5", MIB // 2, (1024, 1024), set())
