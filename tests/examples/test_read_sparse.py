"""The example that reads sparse datasets without a server, run as a program of its own over a directory."""

from __future__ import annotations

import asyncio
import json
import struct
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hsparse.format.codec_library import lookup3
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.encoded_selection import encode_selection
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.selections.points import Points, Selection
from hsparse.storage.posix import PosixStore
from tests.docs_pages import PROJECT
from tests.sn.value_client import create, sparse, value_client
from tests.support.rest_client import RestClient

EXAMPLE = PROJECT / "examples" / "read_sparse.py"
SHAPE, CHUNK = (50, 41), (16, 16)
FILTERS: list[Any] = [
    ["none"],
    [
        {"id": 2, "section": "H5_SECTION_SELECTION"},
        {"id": 1, "level": 3, "section": "H5_SECTION_SELECTION"},
        {"id": 1, "level": 9, "section": "H5_SECTION_FIXED"},
    ],
    ["shuffle", "deflate", "fletcher32"],
]


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[RestClient]:
    async with value_client(PosixStore(tmp_path / "store", fsync=False)) as client:
        yield client


async def run(client: RestClient, path: str, folder: Path) -> dict[tuple[int, ...], Any]:
    """Return what the example reads, by coordinates; the server is asked for nothing but the map."""
    reply = await client("GET", f"{path}/map")
    assert reply.status == 200
    (folder / "map.json").write_text(json.dumps(reply.body))
    arguments = [str(EXAMPLE), str(folder / "map.json"), str(folder / "store"), str(folder / "out.npz")]
    process = await asyncio.create_subprocess_exec(sys.executable, "-I", *arguments)
    assert await process.wait() == 0
    with np.load(folder / "out.npz") as found:
        coords, values = found["coords"].tolist(), found["values"].tolist()
    assert len(set(map(tuple, coords))) == len(values)
    return dict(zip(map(tuple, coords), values, strict=True))


async def defined(client: RestClient, path: str) -> dict[tuple[int, ...], Any]:
    """Return what the server says is defined."""
    reply = await client("GET", f"{path}/value", sparse=1)
    selection = reply["selection"]
    coords = selection.get("coordinates", [])
    assert selection["class"] in ("H5S_SEL_POINTS", "H5S_SEL_NONE")
    return dict(zip(map(tuple, coords), reply["value"], strict=True))


def test_it_is_short_and_needs_nothing_but_numpy() -> None:
    lines = EXAMPLE.read_text().splitlines()
    assert len(lines) <= 60
    imported = {line.split()[1].split(".")[0] for line in lines if line.startswith(("import ", "from "))}
    assert imported - {"numpy"} <= sys.stdlib_module_names


@pytest.mark.parametrize("filters", FILTERS, ids=["none", "sections", "all"])
async def test_it_reads_what_was_written(client: RestClient, tmp_path: Path, filters: Any) -> None:
    path = await create(client, list(SHAPE), "H5T_IEEE_F64LE", layout=sparse(*CHUNK), filters=filters)
    rng = np.random.default_rng(3)
    points = np.unique(rng.integers(0, SHAPE, (300, 2)), axis=0)
    points = points[(points[:, 0] < 32) & (points[:, 1] < 32)]
    await client(
        "PUT", f"{path}/value", {"points": points.tolist(), "value": rng.random(len(points)).tolist()}
    )
    for select in ("[32:48,0:16]", "[48:50,3:40:3]", "[0,40]", "[20:30,32:41]", "[33:40:2,20:30:4]"):
        await client("PUT", f"{path}/value", {"select": select, "value": 2.5})
    await client("DELETE", f"{path}/value", select="[0:16,32:41]")
    found = await run(client, path, tmp_path)
    assert len(found) > 400
    assert found == await defined(client, path)


SELECTIONS: list[tuple[Selection, int | None]] = [
    (Orthogonal.all(CHUNK), None),
    (Orthogonal.box(CHUNK, (2, 3), (7, 16)), 1),
    (Orthogonal.box(CHUNK, (2, 3), (7, 16)), 3),
    (Points(CHUNK, np.array([[9, 1], [0, 15], [3, 3]], np.uint64)), 1),
    (Points(CHUNK, np.array([[9, 1], [0, 15], [3, 3]], np.uint64)), 2),
    (Boxes(CHUNK, np.array([[0, 1], [1, 9]], np.uint64), np.array([[3, 4], [2, 12]], np.uint64)), 1),
    (Boxes(CHUNK, np.array([[0, 1], [1, 9]], np.uint64), np.array([[3, 4], [2, 12]], np.uint64)), 3),
]


def regular() -> Selection:
    from_two = np.arange(2, 14, 3, dtype=np.uint64)
    return Orthogonal(CHUNK, (from_two, np.arange(1, 15, 2, dtype=np.uint64)))


@pytest.mark.parametrize(("selection", "version"), [*SELECTIONS, (regular(), 2), (regular(), 3)])
async def test_it_reads_every_form_of_a_selection(
    client: RestClient, tmp_path: Path, selection: Selection, version: int | None
) -> None:
    """As HDF5 may have written them: stored directly."""
    path = await create(client, list(SHAPE), "H5T_STD_I16BE", layout=sparse(*CHUNK), filters=["none"])
    where = encode_selection(selection, version)
    where += struct.pack("<I", lookup3(where))
    values = np.arange(1, selection.size + 1).astype(">i2")
    sizes = f"{len(where)},{values.nbytes}"
    options = {"section_size": sizes, "section_unfiltered_size": sizes}
    reply = await client("PUT", f"{path}/chunks/1_1/value", where + values.tobytes(), **options)
    assert reply.status == 200, reply.body
    found = await run(client, path, tmp_path)
    assert len(found) == selection.size
    assert found == await defined(client, path)
