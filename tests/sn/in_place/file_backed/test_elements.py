"""Reading datasets whose data stays in files: every selection against numpy, by every layout; requests counted."""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hsparse.clock import SystemClock
from hsparse.dn.service import DataService
from hsparse.model.acl import Principal
from hsparse.model.ids import storage_key
from tests.sn.value_client import SETTINGS, create, read, value_client
from tests.support.rest_client import RestClient
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

FILE = "data/a.h5"
FILL = -7
PLAIN = {
    "class": "H5T_COMPOUND",
    "fields": [{"name": "offset", "type": "H5T_STD_I64LE"}, {"name": "size", "type": "H5T_STD_I32LE"}],
}
MASK = {"name": "filter_mask", "type": "H5T_STD_U32LE"}
URI = {
    "name": "file_uri",
    "type": {"class": "H5T_STRING", "length": 40, "charSet": "H5T_CSET_ASCII", "strPad": "H5T_STR_NULLPAD"},
}


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(MemoryStore())


@pytest.fixture
async def client(store: CountingStore) -> AsyncIterator[RestClient]:
    async with value_client(store) as client:
        yield client


class File:
    """The bytes of a file, and where the chunks of an array are in it: some, in any order, with gaps."""

    def __init__(
        self, model: NDArray[Any], chunk: tuple[int, ...], *, packed: bool = False, seed: int = 0
    ) -> None:
        rng = np.random.default_rng(seed)
        self.data = bytearray(b"head")
        self.entries: dict[tuple[int, ...], tuple[int, int]] = {}
        self.values = np.full_like(model, FILL)
        self.counts = tuple(-(-length // step) for length, step in zip(model.shape, chunk, strict=True))
        padding = [(0, n * c - length) for n, c, length in zip(self.counts, chunk, model.shape, strict=True)]
        padded = np.pad(model, padding, constant_values=99)
        scaled = list(np.ndindex(*self.counts))
        rng.shuffle(scaled)
        for place in scaled[: max(1, 3 * len(scaled) // 4)]:
            place = tuple(int(i) for i in place)
            block = tuple(slice(i * c, (i + 1) * c) for i, c in zip(place, chunk, strict=True))
            raw = padded[block].tobytes()
            raw = zlib.compress(raw) if packed else raw
            self.data += bytes(int(rng.integers(0, 9)))
            self.entries[place] = len(self.data), len(raw)
            self.data += raw
            self.values[block] = model[block]

    def listed(self) -> dict[str, list[int]]:
        return {"_".join(map(str, place)): list(entry) for place, entry in self.entries.items()}

    def table(self, dtype: Any, **columns: Any) -> NDArray[Any]:
        values = np.zeros(self.counts, dtype)
        for place, (offset, size) in self.entries.items():
            values["offset"][place], values["size"][place] = offset, size
            for name, column in columns.items():
                values[name][place] = column(place)
        return values


async def link(client: RestClient, shape: tuple[int, ...], layout: dict[str, Any], **more: Any) -> str:
    """Create a linked dataset of `<i4`; return its path."""
    return await create(client, list(shape), "H5T_STD_I32LE", layout=layout, fillValue=FILL, **more)


async def make_table(client: RestClient, kind: Any, values: NDArray[Any], **more: Any) -> str:
    """Create and fill a chunk table; return its id."""
    path = await create(client, list(values.shape), kind, **more)
    assert (await client("PUT", f"{path}/value", values.tobytes())).status == 200
    return path.rpartition("/")[2]


async def link_any(
    client: RestClient, store: CountingStore, kind: str, rng: np.random.Generator
) -> tuple[str, NDArray[Any]]:
    """Link a random array by a layout of `kind`; return the dataset's path and what is to be read."""
    rank = int(rng.integers(1, 4))
    shape = tuple(int(rng.integers(1, 40)) for _ in range(rank))
    model = rng.integers(0, 1000, shape).astype("<i4")
    if kind == "contiguous":
        await store.put(FILE, b"head" + model.tobytes())
        layout = {"class": "H5D_CONTIGUOUS_REF", "file_uri": FILE, "offset": 4, "size": model.nbytes}
        return await link(client, shape, layout), model
    chunk = tuple(int(rng.integers(1, length + 1)) for length in shape)
    packed = bool(rng.integers(0, 2))
    file = File(model, chunk, packed=packed, seed=int(rng.integers(0, 99)))
    await store.put(FILE, file.data)
    filters = {"filters": ["deflate"]} if packed else {}
    if kind == "chunked":
        layout = {"class": "H5D_CHUNKED_REF", "file_uri": FILE, "dims": list(chunk), "chunks": file.listed()}
        return await link(client, shape, layout, **filters), file.values
    id = await make_table(client, PLAIN, file.table([("offset", "<i8"), ("size", "<i4")]))
    layout = {"class": "H5D_CHUNKED_REF_INDIRECT", "file_uri": FILE, "dims": list(chunk), "chunk_table": id}
    if kind == "hyper":
        several = [min(2 * c, length) for c, length in zip(chunk, shape, strict=True)]
        layout |= {"dims": several, "hyper_dims": list(chunk)}
    return await link(client, shape, layout, **filters), file.values


@pytest.mark.parametrize("kind", ["contiguous", "chunked", "table", "hyper"])
async def test_every_selection(client: RestClient, store: CountingStore, kind: str) -> None:
    rng = np.random.default_rng(5)
    for _ in range(12):
        path, model = await link_any(client, store, kind, rng)
        np.testing.assert_array_equal(await read(client, path, "<i4", model.shape), model)
        for _ in range(6):
            index, select = random_select(rng, model.shape)
            expected = model[index]
            np.testing.assert_array_equal(
                await read(client, path, "<i4", expected.shape, select=select), expected
            )
        points = np.stack([rng.integers(0, length, 20) for length in model.shape], axis=1)
        reply = await client("POST", f"{path}/value", {"points": points.tolist()})
        assert reply["value"] == model[tuple(points.T)].tolist()
        reply = await client(
            "POST", f"{path}/value", points.astype("<u8").tobytes(), accept="application/octet-stream"
        )
        assert np.frombuffer(reply.body, "<i4").tolist() == model[tuple(points.T)].tolist()
        assert (await client("GET", f"{path}/value"))["value"] == model.tolist()


@pytest.mark.parametrize("kind", ["contiguous", "chunked", "table", "hyper"])
async def test_reductions(client: RestClient, store: CountingStore, kind: str) -> None:
    rng = np.random.default_rng(6)
    for _ in range(4):
        path, model = await link_any(client, store, kind, rng)
        index, select = random_select(rng, model.shape)
        some = model[index]
        labels = rng.integers(0, 3, model.shape[0]).tolist()
        body = {"op": ["sum", "min", "count", "var"], "axis": [0], "select": select}
        found = (await client("POST", f"{path}/reduce", body))["value"]
        assert found["sum"] == some.sum(axis=0).tolist()
        assert found["min"] == some.min(axis=0).tolist()
        assert found["count"] == np.full(some.shape[1:], some.shape[0]).tolist()
        np.testing.assert_allclose(found["var"], some.var(axis=0), rtol=1e-9, atol=1e-9)
        reply = await client("POST", f"{path}/reduce", {"op": "sum", "axis": 0, "by": labels})
        groups = sorted(set(labels))
        assert reply["groups"] == groups
        wanted = [model[np.array(labels) == group].sum(axis=0).tolist() for group in groups]
        assert reply["value"]["sum"] == wanted


def random_select(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Any, str]:
    """Return a selection for numpy, dimensions kept, and as `select` has it."""
    index: list[NDArray[Any]] = []
    texts = []
    for length in shape:
        first = int(rng.integers(0, length))
        last, step = int(rng.integers(first + 1, length + 1)), int(rng.integers(1, 4))
        kind = rng.integers(0, 3)
        if kind == 0 and not any("[" in text for text in texts):
            found = np.sort(rng.choice(length, int(rng.integers(1, length + 1)), replace=False))
            texts.append(f"[{','.join(map(str, found))}]")
        elif kind == 1:
            found = np.array([first])
            texts.append(str(first))
        else:
            found = np.arange(first, last, step)
            texts.append(f"{first}:{last}:{step}")
        index.append(found)
    return np.ix_(*index), f"[{','.join(texts)}]"


async def test_fields_of_compounds_and_byte_order(client: RestClient, store: CountingStore) -> None:
    kind = np.dtype([("a", ">i2"), ("b", "<f8", (2,))])
    model = np.zeros(50, kind)
    model["a"], model["b"] = np.arange(50), np.random.default_rng(1).random((50, 2))
    await store.put(FILE, model.tobytes())
    item = {
        "class": "H5T_COMPOUND",
        "fields": [
            {"name": "a", "type": "H5T_STD_I16BE"},
            {"name": "b", "type": {"class": "H5T_ARRAY", "base": "H5T_IEEE_F64LE", "dims": [2]}},
        ],
    }
    layout = {"class": "H5D_CONTIGUOUS_REF", "file_uri": FILE, "offset": 0, "size": model.nbytes}
    path = await create(client, [50], item, layout=layout)
    np.testing.assert_array_equal(await read(client, path, kind, (50,)), model)
    np.testing.assert_array_equal(
        await read(client, path, ">i2", (7,), select="[3:10]", fields="a"), model["a"][3:10]
    )


@pytest.mark.parametrize("kind", ["contiguous", "chunked"])
async def test_text_ends_as_imported_text_does(client: RestClient, store: CountingStore, kind: str) -> None:
    def text(padding: str) -> dict[str, Any]:
        return {
            "class": "H5T_STRING",
            "length": 5,
            "charSet": "H5T_CSET_ASCII",
            "strPad": f"H5T_STR_{padding}",
        }

    fields = [
        {"name": "blanks", "type": text("SPACEPAD")},
        {"name": "two", "type": {"class": "H5T_ARRAY", "dims": [2], "base": text("NULLTERM")}},
        {"name": "zeros", "type": text("NULLPAD")},
    ]
    record = b"a b  " + b"x\0yz!" + b"full!" + b"p\0q\0\0"
    await store.put(FILE, b"head" + 4 * record)
    place = {"class": "H5D_CONTIGUOUS_REF", "offset": 4, "size": 4 * len(record)}
    if kind == "chunked":
        place = {"class": "H5D_CHUNKED_REF", "dims": [4], "chunks": {"0": [4, 4 * len(record)]}}
    layout = place | {"file_uri": FILE}
    path = await create(client, [4], {"class": "H5T_COMPOUND", "fields": fields}, layout=layout)
    found = await read(client, path, "S20", (4,))
    assert found.tobytes() == 4 * (b"a b\0\0" + b"x\0\0\0\0" + b"full!" + b"p\0q\0\0")


# --- requests -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["listed", "table"])
async def test_chunks_asked_for_together_are_one_request_and_then_none(
    store: CountingStore, kind: str
) -> None:
    async with value_client(store, replace(SETTINGS, page_size=1 << 20)) as client:
        model = np.arange(100 * 60, dtype="<i4").reshape(100, 60)
        file = File(model, (10, 20), packed=True)
        await store.put(FILE, file.data)
        layout: dict[str, Any] = {"file_uri": FILE, "dims": [10, 20]}
        if kind == "listed":
            layout |= {"class": "H5D_CHUNKED_REF", "chunks": file.listed()}
        else:
            id = await make_table(client, PLAIN, file.table([("offset", "<i8"), ("size", "<i4")]))
            layout |= {"class": "H5D_CHUNKED_REF_INDIRECT", "chunk_table": id}
        path = await link(client, model.shape, layout, filters=["deflate"])
        store.reset()
        for _ in range(2):
            np.testing.assert_array_equal(await read(client, path, "<i4", (100, 60)), file.values)
        assert store.keys == {("get_range", FILE): 1}
        assert store.bytes_out <= len(file.data)


async def test_of_many_chunks_only_those_the_file_has_are_read(
    client: RestClient, store: CountingStore
) -> None:
    """Chunks as the file has them: 8 MiB of fill value would otherwise be asked for."""
    shape, chunk = (3000, 300), (1, 300)
    await store.put(FILE, np.arange(600, dtype="<i4").tobytes())
    values = np.zeros((3000, 1), [("offset", "<i8"), ("size", "<i4")])
    values[7, 0], values[2999, 0] = (0, 1200), (1200, 1200)
    id = await make_table(client, PLAIN, values)
    for layout in (
        {"class": "H5D_CHUNKED_REF_INDIRECT", "chunk_table": id},
        {"class": "H5D_CHUNKED_REF", "chunks": {"7_0": [0, 1200], "2999_0": [1200, 1200]}},
    ):
        path = await link(client, shape, layout | {"file_uri": FILE, "dims": list(chunk)})
        found = await read(client, path, "<i4", (3000, 1), select="[:,5:6]")
        expected = np.full((3000, 1), FILL)
        expected[7], expected[2999] = 5, 305
        np.testing.assert_array_equal(found, expected)


async def test_a_contiguous_dataset_of_many_slabs(client: RestClient, store: CountingStore) -> None:
    model = np.arange(3000, dtype="<i4").reshape(3000, 1)
    await store.put(FILE, model.tobytes())
    layout = {"class": "H5D_CONTIGUOUS_REF", "file_uri": FILE, "offset": 0, "size": model.nbytes}
    path = await link(client, model.shape, layout)
    np.testing.assert_array_equal(await read(client, path, "<i4", (1000, 1), select="[::3,:]"), model[::3])


async def test_a_dataset_that_was_not_allocated_is_all_fill(client: RestClient, store: CountingStore) -> None:
    await store.put(FILE, b"head")
    layout = {"class": "H5D_CONTIGUOUS_REF", "file_uri": FILE, "offset": 0, "size": 0}
    path = await link(client, (20,), layout)
    assert (await client("GET", f"{path}/value"))["value"] == [FILL] * 20


async def test_a_table_that_grew_shows_more(client: RestClient, store: CountingStore) -> None:
    model = np.arange(40, dtype="<i4")
    await store.put(FILE, model.tobytes())
    values = np.zeros(2, [("offset", "<i8"), ("size", "<i4")])
    values[:] = [(0, 40), (40, 40)]
    id = await make_table(client, PLAIN, values, maxdims=[0])
    layout = {"class": "H5D_CHUNKED_REF_INDIRECT", "file_uri": FILE, "dims": [10], "chunk_table": id}
    path = await link(client, (20,), layout, maxdims=[0])
    assert (await client("GET", f"{path}/value"))["value"] == model[:20].tolist()
    assert (await client("PUT", f"{path}/shape", {"shape": [40]})).status == 201
    assert (await client("GET", f"{path}/value"))["value"] == [*range(20), *[FILL] * 20]
    assert (await client("PUT", f"/datasets/{id}/shape", {"shape": [4]})).status == 201
    entries = np.array([(80, 40), (120, 40)], values.dtype)
    assert (await client("PUT", f"/datasets/{id}/value", entries.tobytes(), select="[2:4]")).status == 200
    assert (await client("GET", f"{path}/value"))["value"] == model.tolist()


async def test_filter_masks(client: RestClient, store: CountingStore) -> None:
    model = np.arange(20, dtype="<i4")
    packed = zlib.compress(model[:10].tobytes())
    await store.put(FILE, packed + model[10:].tobytes())
    values = np.zeros(2, [("offset", "<i8"), ("size", "<i4"), ("filter_mask", "<u4")])
    values[:] = [(0, len(packed), 0), (len(packed), 40, 1)]
    id = await make_table(client, {**PLAIN, "fields": [*PLAIN["fields"], MASK]}, values)
    for layout in (
        {"class": "H5D_CHUNKED_REF", "chunks": {"0": [0, len(packed)], "1": [len(packed), 40, 1]}},
        {"class": "H5D_CHUNKED_REF_INDIRECT", "chunk_table": id},
    ):
        path = await link(client, (20,), layout | {"file_uri": FILE, "dims": [10]}, filters=["deflate"])
        assert (await client("GET", f"{path}/value"))["value"] == model.tolist()


# --- files named by the table ---------------------------------------------------------------------


async def test_pieces_in_several_files(client: RestClient, store: CountingStore) -> None:
    model = np.arange(60, dtype="<i4").reshape(6, 10)
    for number in range(2):
        await store.put(f"data/{number}.h5", model[3 * number : 3 * number + 3].tobytes())
    values = np.zeros((6, 1), [("offset", "<i8"), ("size", "<i4"), ("file_uri", "S40")])
    for row in range(6):
        values[row, 0] = (40 * (row % 3), 40 if row != 4 else 0, f"data/{row // 3}.h5")
    id = await make_table(client, {**PLAIN, "fields": [*PLAIN["fields"], URI]}, values)
    path = await link(
        client, (6, 10), {"class": "H5D_CHUNKED_REF_INDIRECT", "dims": [1, 10], "chunk_table": id}
    )
    expected = model.copy()
    expected[4] = FILL
    assert (await client("GET", f"{path}/value"))["value"] == expected.tolist()
    assert (await client("GET", f"{path}/value", select="[1:6:2,3]"))["value"] == expected[
        1:6:2, 3:4
    ].tolist()


@pytest.mark.parametrize(
    ("uri", "status"),
    [(b"", 409), (b"\xff.h5", 409), (b"../x.h5", 400), (b"s3://other/x.h5", 403), (b"data/none.h5", 404)],
)
async def test_files_that_a_table_cannot_name(client: RestClient, uri: bytes, status: int) -> None:
    values = np.array([(0, 40, uri)], [("offset", "<i8"), ("size", "<i4"), ("file_uri", "S40")])
    id = await make_table(client, {**PLAIN, "fields": [*PLAIN["fields"], URI]}, values)
    path = await link(client, (10,), {"class": "H5D_CHUNKED_REF_INDIRECT", "dims": [10], "chunk_table": id})
    reply = await client("GET", f"{path}/value")
    assert (reply.status, reply["error"]["message"][-1]) == (status, ".")


async def test_who_reads_needs_the_right_to_files_a_table_names(store: CountingStore) -> None:
    await store.put("home/alice/a.h5", bytes(40))
    node = DataService(store, SystemClock())
    users = (Principal("alice"), Principal("bob"))
    client = await RestClient(node, SystemClock(), *users, settings=SETTINGS).open()
    for user in ("alice", "bob"):
        assert (await client("PUT", "/", {}, user=user, domain=f"/home/{user}/x.h5")).status == 201
        closed = await client(
            "PUT", "/acls/default", {"read": user == "bob"}, user=user, domain=f"/home/{user}"
        )
        assert closed.status in (200, 201)
    client.user, client.domain = "bob", "/home/bob/x.h5"
    assert (await client("PUT", "/acls/alice", {"read": True})).status == 201
    values = np.array(
        [(0, 40, b"home/alice/a.h5")], [("offset", "<i8"), ("size", "<i4"), ("file_uri", "S40")]
    )
    id = await make_table(client, {**PLAIN, "fields": [*PLAIN["fields"], URI]}, values)
    path = await link(client, (10,), {"class": "H5D_CHUNKED_REF_INDIRECT", "dims": [10], "chunk_table": id})
    assert (await client("GET", f"{path}/value")).status == 403
    assert (await client("GET", f"{path}/value", user="alice")).status == 200
    await client.close()
    await node.close()


# --- what is wrong with the file or the table -----------------------------------------------------


async def test_what_is_wrong_is_an_error_that_names_the_file(
    client: RestClient, store: CountingStore
) -> None:
    model = np.arange(20, dtype="<i4")
    packed = zlib.compress(model.tobytes())
    await store.put(FILE, b"head" + packed)
    chunks = {"0": [4, len(packed)]}
    layout = {"class": "H5D_CHUNKED_REF", "file_uri": FILE, "dims": [20], "chunks": chunks}
    path = await link(client, (20,), layout, filters=["deflate"])
    short = await link(client, (20,), layout | {"chunks": {"0": [len(packed), 20]}}, filters=["deflate"])
    far = await link(client, (20,), layout | {"chunks": {"0": [2**40, 20]}}, filters=["deflate"])
    wrong = await link(client, (20,), layout | {"chunks": {"0": [5, len(packed) - 1]}}, filters=["deflate"])
    huge = await link(client, (20,), layout | {"chunks": {"0": [5, 2**40]}}, filters=["deflate"])
    for one, status in ((short, 409), (far, 409), (wrong, 409), (huge, 409)):
        reply = await client("GET", f"{one}/value")
        assert reply.status == status, reply
        assert one is huge or FILE in reply["error"]["message"]
    await store.put(FILE, b"tail" + packed)
    assert (await client("GET", f"{path}/value")).status == 409
    await store.delete(FILE)
    reply = await client("GET", f"{path}/value")
    assert (reply.status, FILE in reply["error"]["message"]) == (409, True)
    await store.put(FILE, b"head" + packed)
    assert (await client("GET", f"{path}/value"))["value"] == model.tolist()


@pytest.mark.parametrize("entry", [(-1, 40), (0, -40), (-(2**62), -(2**30))])
async def test_a_table_with_nonsense(
    client: RestClient, store: CountingStore, entry: tuple[int, int]
) -> None:
    await store.put(FILE, bytes(40))
    id = await make_table(client, PLAIN, np.array([entry], [("offset", "<i8"), ("size", "<i4")]))
    layout = {"class": "H5D_CHUNKED_REF_INDIRECT", "file_uri": FILE, "dims": [10], "chunk_table": id}
    path = await link(client, (10,), layout)
    reply = await client("GET", f"{path}/value")
    assert reply.status == 409
    assert id in reply["error"]["message"]


async def test_a_copy_of_the_file_is_read(client: RestClient, store: CountingStore) -> None:
    await store.put(FILE, np.arange(2000, dtype="<i4").tobytes())
    layout = {"class": "H5D_CONTIGUOUS_REF", "file_uri": FILE, "offset": 0, "size": 8000}
    path = await link(client, (2000,), layout)
    await store.put(FILE, (await store.get(FILE)).data)
    np.testing.assert_array_equal(await read(client, path, "<i4", (2000,)), np.arange(2000))


@pytest.mark.parametrize("kind", ["contiguous", "chunked", "table"])
async def test_what_hsds_wrote_is_read(kind: str) -> None:
    """Its records note nothing of the file, and have the grid that was asked for, or blocks of a contiguous one."""
    store = CountingStore(MemoryStore())
    async with value_client(store) as client:
        path, model = await link_any(client, store, kind, np.random.default_rng(3))
    key = storage_key(path.rpartition("/")[2])
    record = json.loads((await store.get(key)).data)
    del record["linkedFile"]
    asked = record["creationProperties"]["layout"]
    record["layout"]["dims"] = asked.get("dims", [max(1, length // 2) for length in model.shape])
    await store.put(key, json.dumps(record).encode())
    node = DataService(store, SystemClock())
    client = await RestClient(node, SystemClock(), Principal("admin", admin=True), settings=SETTINGS).open()
    client.domain = "/home/admin/values.h5"
    np.testing.assert_array_equal(await read(client, path, "<i4", model.shape), model)
    await client.close()
    await node.close()


def test_the_file_of_these_tests_has_holes() -> None:
    file = File(np.zeros((7, 9), "<i4"), (2, 4))
    assert 0 < len(file.entries) < len(list(itertools.product(range(4), range(3))))
