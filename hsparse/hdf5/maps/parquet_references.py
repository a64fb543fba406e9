"""Kerchunk references as a directory of Parquet files, which fsspec reads on demand.

`.zmetadata` has the metadata of groups and arrays. `<array>/refs.<n>.parq` has the references of `RECORD_ROWS` chunks
in row-major order of the grid: `path`, `offset`, `size` and `raw`; the path of an unwritten chunk is null. Files
without chunks are not written. The module needs the extra `hsparse[parquet]`. Its input, kerchunk's JSON, is read
member by member, because a domain may have millions of references.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hsparse.errors import Unsupported
from hsparse.hdf5.json_reader import JsonReader

RECORD_ROWS = 10_000
SCHEMA = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("raw", pa.binary()),
    ]
)
REFS = "refs"
"""The member of the JSON that has the references."""
Reference = tuple[int, str, int, int]
"""The number of a chunk in its grid, its URL, offset and size."""


class ReferenceMembers:
    """Iterates over the members of `refs` in JSON that arrives in `blocks`; collects other members in `others`.

    Iterating raises `HsparseError` if the JSON is truncated or has another structure.
    """

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._json = JsonReader(iter(blocks))
        self.others: dict[str, Any] = {}

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for name in self._json.members():
            if name == REFS:
                for member in self._json.members():
                    yield member, self._json.value()
            else:
                self.others[name] = self._json.value()


def write_references(root: Path, blocks: Iterable[bytes]) -> dict[str, str]:
    """Write references from kerchunk's JSON (see `write_parquet`); return {path: reason} of skipped datasets."""
    members = ReferenceMembers(blocks)
    write_parquet(root, members)
    skipped: dict[str, str] = members.others.get("skipped", {})
    return skipped


def write_parquet(root: Path, members: Iterable[tuple[str, Any]]) -> None:
    """Write references to a new directory. The members of an array must be adjacent, and must fit into memory."""
    root.mkdir()
    metadata: dict[str, Any] = {}
    for folder, found in groupby(members, lambda member: member[0].rpartition("/")[0]):
        if "/.z" in f"/{folder}":
            raise Unsupported(
                f"Parquet references cannot have {folder!r}: names that begin with .z are reserved for metadata."
            )
        chunks: dict[str, Any] = {}
        for name, value in found:
            if name.rpartition("/")[2].startswith(".z"):
                metadata[name] = json.loads(value)
            else:
                chunks[name.rpartition("/")[2]] = value
        if chunks:
            array = metadata[f"{folder}/.zarray" if folder else ".zarray"]
            pairs = zip(array["shape"], array["chunks"], strict=True)
            counts = [-(-size // chunk) for size, chunk in pairs]
            _write_array(root / folder, [(_number(one, counts), *place) for one, place in chunks.items()])
    (root / ".zmetadata").write_text(json.dumps({"metadata": metadata, "record_size": RECORD_ROWS}))


def _number(name: str, counts: list[int]) -> int:
    """Return the row-major number of the chunk `name`, like "0.2", in a grid of `counts` chunks."""
    number = 0
    for part, count in zip(name.split("."), counts or [1], strict=True):
        number = number * count + int(part)
    return number


def _write_array(folder: Path, references: list[Reference]) -> None:
    references.sort()
    for record, some in groupby(references, lambda one: one[0] // RECORD_ROWS):
        paths: list[str | None] = [None] * RECORD_ROWS
        offsets, sizes = [0] * RECORD_ROWS, [0] * RECORD_ROWS
        for number, path, offset, size in some:
            place = number % RECORD_ROWS
            paths[place], offsets[place], sizes[place] = path, offset, size
        table = pa.table([paths, offsets, sizes, pa.nulls(RECORD_ROWS, pa.binary())], schema=SCHEMA)
        folder.mkdir(parents=True, exist_ok=True)
        # Without statistics, fastparquet reads integers as nullable, that is as floats.
        pq.write_table(
            table, folder / f"refs.{record}.parq", compression="zstd", write_statistics=["offset", "size"]
        )
