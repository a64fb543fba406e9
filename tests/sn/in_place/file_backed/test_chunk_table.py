"""Chunk tables: entries by coordinates against the array they are in, whole tables in blocks, and bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Conflict, TooLarge
from hsparse.format.selections.points import Selection, gather
from hsparse.hdf5.in_place.file_backed import chunk_table
from hsparse.hdf5.in_place.file_backed.chunk_table import ChunkTable
from hsparse.model.dataspace import parse_shape
from hsparse.model.datatype import parse_type
from hsparse.model.layout import parse_layout
from hsparse.sn.records.dataset import StoredDataset

ID = "d-00000000-00000001-0000-000000-000001"
LAYOUT = {"class": "H5D_CHUNKED_REF_INDIRECT", "file_uri": "a.h5", "chunk_table": ID}
NUMBERS = [("offset", "H5T_STD_I64LE"), ("size", "H5T_STD_I32LE")]
URI = {"class": "H5T_STRING", "length": 8, "charSet": "H5T_CSET_ASCII", "strPad": "H5T_STR_NULLPAD"}


def compound(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"class": "H5T_COMPOUND", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def dataset(shape: tuple[int, ...], kind: Any) -> StoredDataset:
    dataspace, datatype = parse_shape({"shape": list(shape)}), parse_type(kind)
    layout = parse_layout(None, dataspace, datatype, filtered=False, min_bytes=1, max_bytes=1 << 20)
    return StoredDataset.of({"id": ID, "type": datatype.item, "shape": dataspace, **layout.fields({})})


class Table:
    """A table in an array, that notes what is read of it."""

    def __init__(self, values: NDArray[Any], kind: Any, layout: dict[str, Any] | None = None) -> None:
        self.values = values
        self.sizes: list[int] = []
        described = dataset(values.shape, kind)
        self.values = values.astype(described.dtype)
        self.table = ChunkTable(described, layout or LAYOUT, values.ndim, self.read)

    async def read(self, _: StoredDataset, selection: Selection) -> NDArray[Any]:
        self.sizes.append(selection.size)
        return gather(self.values, selection).reshape(selection.shape)


def random_table(shape: tuple[int, ...], seed: int = 0) -> Table:
    rng = np.random.default_rng(seed)
    values = np.zeros(shape, [("offset", "<i8"), ("size", "<i4")])
    values["offset"], values["size"] = rng.integers(0, 99, shape), rng.integers(0, 3, shape)
    return Table(values, compound(*NUMBERS))


@pytest.mark.parametrize("shape", [(40,), (7, 9), (3, 4, 5)])
async def test_entries(shape: tuple[int, ...]) -> None:
    table = random_table(shape)
    rng = np.random.default_rng(1)
    for count in (0, 1, 5, 300):
        coords = np.stack([rng.integers(0, length + 2, count) for length in shape], axis=1)
        found, uris = await table.table.entries(coords)
        assert uris is None
        for row, coord in zip(found.tolist(), coords.tolist(), strict=True):
            there = all(i < length for i, length in zip(coord, shape, strict=True))
            expected = table.values[tuple(coord)].item() if there else (0, 0)
            assert row == [*expected, 0]


async def test_a_box_is_read_as_one_and_far_entries_alone() -> None:
    table = random_table((100, 100))
    await table.table.entries(np.argwhere(np.ones((10, 10))))
    await table.table.entries(np.array([[0, 0], [99, 99]]))
    assert table.sizes == [100, 2]


@pytest.mark.parametrize("shape", [(40,), (7, 9), (0, 3), (3, 4, 5)])
async def test_whole_tables_in_blocks(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_table, "BLOCK_ENTRIES", 20)
    table = random_table(shape)
    there = table.values["size"] > 0
    assert (await table.table.coords()).tolist() == np.argwhere(there).tolist()
    assert max(table.sizes, default=0) <= 20
    assert await table.table.totals() == (there.sum(), table.values["size"].sum())


async def test_a_table_too_large_to_be_read_whole() -> None:
    described = dataset((1 << 40,), compound(*NUMBERS))

    async def read(_: StoredDataset, selection: Selection) -> NDArray[Any]:
        raise AssertionError(f"{selection.size} entries are read")

    table = ChunkTable(described, LAYOUT, 1, read)
    for refused in (table.coords(), table.totals()):
        with pytest.raises(TooLarge, match=ID):
            await refused


async def test_files_and_masks() -> None:
    kind = compound(*NUMBERS, ("file_uri", URI), ("filter_mask", "H5T_STD_U32LE"))
    values = np.array([(1, 2, b"a.h5", 3), (0, 0, b"\xff", 0)], parse_type(kind).dtype)
    without = {key: value for key, value in LAYOUT.items() if key != "file_uri"}
    found, uris = await Table(values, kind, without).table.entries(np.array([[0], [1], [2]]))
    assert (found.tolist(), uris) == ([[1, 2, 3], [0, 0, 0], [0, 0, 0]], ["a.h5", "", ""])
    assert (await Table(values, kind).table.entries(np.array([[0]])))[1] is None, "the layout's file counts"
    values[1] = (0, 5, b"\xff", 0)
    with pytest.raises(Conflict, match="UTF-8"):
        await Table(values, kind, without).table.entries(np.array([[1]]))


async def test_negative_numbers() -> None:
    table = random_table((5,))
    table.values["offset"][2] = -1
    with pytest.raises(Conflict, match=ID):
        await table.table.entries(np.array([[2]]))


@pytest.mark.parametrize(
    ("kind", "layout", "rank"),
    [
        ("H5T_STD_I64LE", LAYOUT, 1),
        (compound(("offset", "H5T_STD_I64LE")), LAYOUT, 1),
        (compound(("offset", "H5T_IEEE_F64LE"), ("size", "H5T_STD_I32LE")), LAYOUT, 1),
        (compound(*NUMBERS), LAYOUT, 2),
        (compound(*NUMBERS), {"class": LAYOUT["class"], "chunk_table": ID}, 1),
        (compound(*NUMBERS, ("file_uri", {**URI, "length": 5000})), LAYOUT, 1),
        (compound(*NUMBERS, ("file_uri", {**URI, "length": "H5T_VARIABLE"})), LAYOUT, 1),
    ],
)
def test_what_is_no_table(kind: Any, layout: dict[str, Any], rank: int) -> None:
    with pytest.raises(BadRequest, match=ID):
        chunk_table.check_table(dataset((5,), kind), layout, rank)
