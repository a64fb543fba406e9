"""What `verbose` tells of chunks that are in files."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.sn.value_client import create, value_client
from tests.testing.memory_store import MemoryStore

TABLE = {
    "class": "H5T_COMPOUND",
    "fields": [{"name": "offset", "type": "H5T_STD_I64LE"}, {"name": "size", "type": "H5T_STD_I32LE"}],
}


async def test_linked_chunks_and_bytes() -> None:
    store = MemoryStore()
    await store.put("a.h5", bytes(100))
    async with value_client(store) as client:
        table = await create(client, [4], TABLE)
        entries = np.array([(0, 40), (0, 0), (9, 7), (0, 0)], [("offset", "<i8"), ("size", "<i4")])
        assert (await client("PUT", f"{table}/value", entries.tobytes())).status == 200
        id = table.rpartition("/")[2]
        layouts: dict[str, tuple[dict[str, Any], int, int]] = {
            "contiguous": ({"class": "H5D_CONTIGUOUS_REF", "offset": 0, "size": 160}, 160, 1),
            "nothing": ({"class": "H5D_CONTIGUOUS_REF", "offset": 0, "size": 0}, 0, 0),
            "chunked": (
                {"class": "H5D_CHUNKED_REF", "dims": [10], "chunks": {"0": [0, 40], "1": [0, 0]}},
                40,
                1,
            ),
            "table": ({"class": "H5D_CHUNKED_REF_INDIRECT", "dims": [10], "chunk_table": id}, 47, 2),
            "no table": (
                {
                    "class": "H5D_CHUNKED_REF_INDIRECT",
                    "dims": [10],
                    "chunk_table": id[:-1] + ("e" if id.endswith("f") else "f"),
                },
                0,
                0,
            ),
        }
        expected = {}
        for layout, size, count in layouts.values():
            path = await create(client, [40], "H5T_STD_I32LE", layout=layout | {"file_uri": "a.h5"})
            expected[path.rpartition("/")[2]] = (size, count)
        shown = await client("GET", "/", verbose=1)
        for found, (size, count) in expected.items():
            one = shown["scan_info"]["datasets"][found]
            assert (one["linked_bytes"], one["num_linked_chunks"], one["num_chunks"]) == (size, count, 0)
        assert (shown["linked_bytes"], shown["num_linked_chunks"]) == (247, 4)
