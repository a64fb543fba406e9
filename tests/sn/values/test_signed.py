"""Datasets with a lower bound: their dataspace, how requests count places, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pyarrow import ipc

from hsparse.clock import SystemClock
from hsparse.dn.service import DataService
from hsparse.format.selections.points import Points
from hsparse.format.structured.region import decode_region, encode_region
from hsparse.model.acl import Principal
from hsparse.model.ids import chunk_prefix
from hsparse.sn.records.dataset import StoredDataset, list_chunks
from hsparse.sn.request import Request
from hsparse.sn.values import handlers
from tests.sn.dataset_kinds import I64, chunked, sparse
from tests.sn.value_client import ARROW, BINARY, SETTINGS, json_of, put, value_client
from tests.support.rest_client import RestClient, answered, refuses
from tests.testing.faulty_store import FaultyStore
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

UNLIMITED = "H5S_UNLIMITED"
DENSE = {"class": "H5D_CHUNKED", "dims": [4], "enlarge": False}
LAYOUTS: dict[str, dict[str, Any]] = {"dense": DENSE, "sparse": sparse(4)}
CONTIGUOUS = {"creationProperties": {"layout": {"class": "H5D_CONTIGUOUS"}}}


async def create(client: RestClient, layout: str = "sparse", **body: Any) -> str:
    properties = {"layout": LAYOUTS[layout], **body.pop("creationProperties", {})}
    bounds = {"shape": [10], "lower": [-5], "minlower": [UNLIMITED], "maxdims": [0]} | body
    body = {"type": I64, "creationProperties": properties} | bounds
    made = await answered(client("POST", "/datasets", body), 201)
    return f"/datasets/{made['id']}"


async def filled(client: RestClient, layout: str = "sparse", **body: Any) -> str:
    """Create a dataset whose elements are their places."""
    path = await create(client, layout, **body)
    values = np.arange(-5, 5, dtype="<i8").tobytes()
    await put(client, path, values, places="signed")
    return path


async def shape(client: RestClient, path: str) -> dict[str, Any]:
    found: dict[str, Any] = (await client("GET", f"{path}/shape"))["shape"]
    return found


async def test_the_dataspace_has_both_bounds_and_the_record_says_what_it_needs(
    client: RestClient, store: CountingStore
) -> None:
    path = await filled(client)
    bounds = {"dims": [10], "maxdims": [UNLIMITED], "lower": [-5], "minlower": [UNLIMITED]}
    assert await shape(client, path) == {"class": "H5S_SIMPLE"} | bounds
    found = await client("GET", path)
    assert found["shape"] == {"class": "H5S_SIMPLE"} | bounds
    assert found["creationProperties"]["layout"]["class"] == "H5D_STRUCT_CHUNK"
    keys = [entry.key async for page in store.list("") for entry in page.entries]
    assert {key.rpartition("/")[2] for key in keys} >= {"-2", "-1", "0", "1"}
    (key,) = (key for key in keys if key.endswith(".dataset.json"))
    record = (await store.get(key)).data
    assert b'"readFeatures":["statistics","signed"]' in record
    assert record.count(b'"layout":{"class":"H5D_CHUNKED_SIGNED","layout":{"class":"H5D_STRUCT_CHUNK"') == 2


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"lower": -7, "minlower": None}, {"lower": [-7], "minlower": [-7]}),
        ({"lower": None, "minlower": -3}, {"lower": [0], "minlower": [-3]}),
        ({"lower": [6], "minlower": [-3]}, {"lower": [6], "minlower": [-3]}),
    ],
)
async def test_bounds_have_defaults(
    client: RestClient, bounds: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = await shape(client, await create(client, **bounds))
    assert {key: found[key] for key in expected} == expected
    around = {"class": "H5S_SIMPLE", "dims": [10], "maxdims": [0]} | expected
    assert await shape(client, await create(client, shape=around, lower=None, minlower=None)) == found


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_requests_count_in_places_or_from_zero(client: RestClient, layout: str) -> None:
    path = await filled(client, layout)

    async def values(select: Any, **query: Any) -> Any:
        reply = await client("GET", f"{path}/value", select=select, **query)
        return reply["value"] if reply.status == 200 else reply["error"]["kind"]

    assert await values("[-5:0:2]", places="signed") == [-5, -3, -1] == await values("[0:5:2]")
    assert await values("[[-1,4,-5]]", places="signed") == [-1, 4, -5] == await values("[[4,9,0]]")
    assert await values("[3:]", places="signed") == [3, 4]
    assert await values("[:-3]", places="signed") == [-5, -4] == await values("[:2]")
    assert await values("[-6:0]", places="signed") == "out_of_range" == await values("[[5]]", places="signed")
    assert await values("[-1:0]") == "bad_request" == await values("[0:11]")

    async def posted(body: Any, **query: Any) -> Any:
        reply = await client("POST", f"{path}/value", body, **query)
        return reply["value"] if reply.status == 200 else reply["error"]["message"]

    assert await posted({"points": [-5, 4]}, places="signed") == [-5, 4] == await posted({"points": [0, 9]})
    assert await posted({"start": -2, "stop": 4, "step": 3}, places="signed") == [-2, 1]
    assert await posted({"start": 3, "stop": 9, "step": 3}) == [-2, 1]
    assert await posted({"select": [[-5, 0]], "orthogonal": True}, places="signed") == [-5, 0]
    slab = {"class": "H5S_SEL_HYPERSLABS", "start": [-4], "count": [2], "stride": [4]}
    assert await posted({"selection": slab}, places="signed") == [-4, 0]
    boxes = {"class": "H5S_SEL_HYPERSLABS", "coordinates": [[[-5], [-4]], [[1], [1]]]}
    assert await posted({"selection": boxes}, places="signed") == [-5, -4, 1]
    assert await posted({"selection": {"class": "H5S_SEL_ALL"}}, places="signed") == list(range(-5, 5))
    bounds = "the lower bound is -5, the (exclusive) upper bound is 5."
    assert (await posted({"points": [-6]}, places="signed")).endswith(bounds)
    assert (await posted({"selection": slab | {"start": [-9]}}, places="signed")).endswith(bounds)
    assert (await values("[0:1]", places="yes")) == "bad_request"


async def test_the_paired_lists_of_a_selection(client: RestClient) -> None:
    bounds: dict[str, Any] = {"shape": [10, 10], "lower": [-5, 2], "minlower": [-5, 2], "maxdims": [0, 0]}
    path = await create(client, creationProperties={"layout": sparse(4, 4)}, **bounds)
    await put(client, path, {"points": [[-5, 2], [4, 11], [0, 5]], "value": [1, 2, 3]}, places="signed")
    found = await client("GET", f"{path}/value", select="[[-5,4,0],[2,11,5]]", places="signed")
    assert found["value"] == [1, 2, 3]
    found = await client("GET", f"{path}/value", query="_ > 1", places="signed")
    assert found["index"] == [[0, 5], [4, 11]]
    changed = await client("PUT", f"{path}/value", {"value": 7}, query="_ == 3", places="signed")
    assert (changed["indices"], changed["value"]) == ([[0, 5]], [[[0, 5], 7]])
    assert (await client("PUT", f"{path}/value", {"value": 8}, query="_ == 7"))["indices"] == [[5, 3]]
    ask = {"op": "sum", "axis": 1, "undefined": "fill", "places": "signed", "select": "[-5:-3,:]"}
    table = await answered(client("GET", f"{path}/reduce", accept=ARROW["Content-Type"], **ask))
    assert ipc.open_stream(table.body).read_all().to_pydict()["dim_0"] == [-5, -4]


async def test_encoded_selections_count_from_the_lower_bound(client: RestClient) -> None:
    path = await filled(client)
    body = encode_region(Points((10,), np.array([[0], [9]], np.uint64)), np.array([50, 59]))
    await put(client, path, body, sparse=1, places="signed")
    found = await client("GET", f"{path}/value", select="[[-5,-4,4]]", places="signed")
    assert found["value"] == [50, -4, 59]
    answer = await client("GET", f"{path}/value", select="[3:5]", sparse=1, accept=BINARY, places="signed")
    selection, values = decode_region(answer.body, np.dtype("<i8"))
    assert (selection.coords().ravel().tolist(), values.tolist()) == ([8, 9], [3, 59])
    body = encode_region(Points((3,), np.array([[2]], np.uint64)), np.array([70]))
    reply = await put(client, path, body, sparse=1, append=3, append_side="lower", places="signed")
    assert reply["selection"] == "[-8:-5]"
    found = await client("GET", f"{path}/defined", select="[:-5]", places="signed")
    assert found["selection"]["coordinates"] == [[-6]]


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_both_ends_move(client: RestClient, layout: str) -> None:
    path = await filled(client, layout, creationProperties={"fillValue": 99})

    async def moved(body: Any, **query: Any) -> Any:
        reply = await client("PUT", f"{path}/shape", body, **query)
        return reply.body if reply.status == 201 else reply["error"]["kind"]

    assert await moved({"lower": [-2], "expect": [10], "expect_lower": [-5]}, places="signed") == {}
    assert await moved({"extend": 4, "dim": 0, "side": "lower"}, places="signed") == {"selection": "[-6:-2]"}
    whole = await json_of(client, path, places="signed")
    assert whole == [99] * 4 + list(range(-2, 5)), "what was dropped is not uncovered"
    assert await moved({"extend": 2, "side": "lower"}) == {"selection": "[0:2]"}
    assert await moved({"extend": 1}) == {"selection": "[13:14]"}
    assert await moved({"extend": 1}, places="signed") == {"selection": "[6:7]"}
    assert await moved({"lower": [-7], "expect_lower": [-5]}) == "conflict"
    assert await moved({"lower": [8]}) == "bad_request", "beyond the upper bound"
    assert await moved({"lower": [1, 2]}) == "bad_request" == await moved({"extend": 1, "side": "left"})
    assert await moved({"lower": [0], "extend": 1}) == "bad_request"
    assert await moved({"lower": [7]}) == {}
    assert (await shape(client, path))["dims"] == [0]
    assert await moved({"lower": [-20], "shape": [4]}) == {}
    assert await json_of(client, path, places="signed") == [99] * 4


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_what_is_dropped_is_not_uncovered_after_a_failure(layout: str) -> None:
    store = FaultyStore(MemoryStore())
    async with value_client(store) as client:
        path = await filled(client, layout)
        store.fail_before("puts", f"{chunk_prefix(path.rpartition('/')[2])}-1", times=10**6)
        assert (await client("PUT", f"{path}/shape", {"lower": [-2]})).status >= 500
        assert (await shape(client, path))["lower"] == [-2]
        store.clear()
        assert (await client("PUT", f"{path}/shape", {"extend": 4, "side": "lower"})).status == 201
        assert await json_of(client, path, places="signed") == [0] * 4 + list(range(-2, 5))


async def test_the_least_lower_bound_holds(client: RestClient) -> None:
    path = await create(client, minlower=[-7], maxdims=[14])
    await refuses(client("PUT", f"{path}/shape", {"extend": 3, "side": "lower"}), 409, "at least -7, not -8")
    body = {"append": 3, "append_side": "lower", "value": [1, 2, 3]}
    assert (await client("PUT", f"{path}/value", body)).status == 409
    await put(client, path, body | {"append": 2, "value": [1, 2]})
    reply = await client("PUT", f"{path}/value", {"append": 3, "value": [1, 2, 3]})
    assert (reply.status, "at most 14 elements" in reply["error"]["message"]) == (409, True)
    assert (await shape(client, path))["lower"] == [-7]


async def test_the_least_lower_bound_moves(client: RestClient) -> None:
    path = await filled(client, minlower=[-7])
    downwards = {"extend": 3, "side": "lower"}
    for least, status, moved in (
        ({"minlower": [-4]}, 409, 409),  # above the bound
        ({"minlower": [-6]}, 201, 409),
        ({"minlower": [-8, 0]}, 400, 409),
        ({"minlower": ["x"]}, 400, 409),
        ({"minlower": [-8]}, 201, 201),
        ({"minlower": [-8], "lower": [-9]}, 409, 409),
        ({"minlower": [-9], "lower": [-9]}, 201, 409),
        ({"minlower": UNLIMITED}, 201, 201),
    ):
        assert (await client("PUT", f"{path}/shape", least)).status == status, least
        assert (await client("PUT", f"{path}/shape", downwards)).status == moved, least
    assert (await shape(client, path))["minlower"] == [UNLIMITED]
    key = {"Idempotency-Key": '"limit"'}
    for least, status in ((-20, 201), (-20, 201), (-30, 400)):
        reply = await client("PUT", f"{path}/shape", {"minlower": [least]}, headers=key)
        assert (reply.status, (await shape(client, path))["minlower"]) == (status, [-20])
    assert await json_of(client, path, places="signed", select="[-5:5]") == [*range(-5, 5)]


async def test_an_append_below_is_made_once(client: RestClient) -> None:
    path = await filled(client)
    key = {"Idempotency-Key": '"a"'}

    async def append(**body: Any) -> Any:
        reply = await client("PUT", f"{path}/value", body, headers=key, places="signed")
        return reply["selection"] if reply.status == 200 else reply["error"]["message"]

    below = {"append": 2, "append_side": "lower", "value": [20, 21]}
    assert await append(**below) == "[-7:-5]" == await append(**below)
    assert "used to append" in await append(append=2, value=[20, 21])
    body, headers = {"extend": 2, "side": "lower"}, {"Idempotency-Key": '"b"'}
    for _ in range(2):
        reply = await client("PUT", f"{path}/shape", body, headers=headers, places="signed")
        assert reply["selection"] == "[-9:-7]"
    await answered(client("PUT", f"{path}/shape", {"extend": 2}, headers=headers), 400)
    assert (await shape(client, path))["lower"] == [-9]


async def test_chunks_have_signed_coordinates(client: RestClient) -> None:
    path = await filled(client)
    listed = await client("GET", f"{path}/chunks", places="signed", limit=2)
    assert [row["scaled"] for row in listed["chunks"]] == [[-1], [-2]]
    assert [row["offset"] for row in listed["chunks"]] == [[-4], [-8]]
    rest = await client("GET", f"{path}/chunks", places="signed", marker=listed["marker"])
    assert [row["scaled"] for row in rest["chunks"]] == [[0], [1]]
    one = await client("GET", f"{path}/chunks/-2", places="signed")
    assert (one["scaled"], one["defined"], one["key"][-3:]) == ([-2], 1, "/-2")
    covered = await client("GET", f"{path}/chunks/selection", places="signed")
    assert covered["selection"]["coordinates"] == [[[-5], [4]]]
    data = await client("GET", f"{path}/chunks/-1/value", accept=BINARY, places="signed")
    sizes = {name: data.headers[f"X-Hdf-section-{name}"] for name in ("size", "unfiltered-size")}
    query = {"section_size": sizes["size"], "section_unfiltered_size": sizes["unfiltered-size"]}
    assert (await client("PUT", f"{path}/chunks/0/value", data.body, places="signed", **query)).status == 200
    found = await client("GET", f"{path}/value", select="[-1:4]", places="signed")
    assert found["value"] == [-1, -4, -3, -2, -1]
    refused = await client("PUT", f"{path}/chunks/-2/value", data.body, places="signed", **query)
    assert "below the lower bound" in refused["error"]["message"]
    for name in ("-3", "2"):
        error = (await client("GET", f"{path}/chunks/{name}", places="signed"))["error"]
        assert error["kind"] == "out_of_range"
    for route in ("/chunks", "/chunks/0", "/chunks/selection", "/map"):
        assert "places=signed" in (await client("GET", f"{path}{route}"))["error"]["message"]
    found = await client("GET", f"{path}/map", places="signed")
    assert found["shape"]["lower"] == [-5]
    assert {tuple(row["scaled"]) for row in found["chunks"]} == {(-2,), (-1,), (0,), (1,)}


async def test_what_is_remembered_of_chunks_follows_the_lower_bound(client: RestClient) -> None:
    """Also where no chunk was changed, and the extent is as long as before."""
    path = await create(client, lower=[-8], shape=[16])
    await put(client, path, {"points": [0], "value": [1]}, places="signed")
    for lower in (-8, -12, -4):
        assert (await client("PUT", f"{path}/shape", {"lower": [lower], "shape": [16]})).status == 201
        listed = await client("GET", f"{path}/chunks", order="coord", places="signed")
        assert [row["scaled"] for row in listed["chunks"]] == [[0]]


async def test_what_was_appended_and_is_not_seen_yet_is_no_chunk_of_it(
    client: RestClient, store: CountingStore
) -> None:
    path = await filled(client)
    id = path.rpartition("/")[2]
    key = chunk_prefix(id)
    await store.put(f"{key}-9", (await store.get(f"{key}-1")).data)
    listed = await client("GET", f"{path}/chunks", places="signed")
    assert {tuple(row["scaled"]) for row in listed["chunks"]} == {(-2,), (-1,), (0,), (1,)}
    owners = client.service.owners
    found = await list_chunks(owners, StoredDataset.of(await owners.record(id)))
    assert found.tolist() == [[1], [0], [2], [3]]


async def test_footers_are_not_read_again_when_the_lower_bound_moves() -> None:
    store = CountingStore(MemoryStore())
    async with value_client(store) as client:
        path = await create(client, lower=[-200], shape=[400])
        values = np.ones(400, "<i8").tobytes()
        await put(client, path, values)
        assert len((await client("GET", f"{path}/chunks", places="signed"))["chunks"]) == 100
        assert (await client("PUT", f"{path}/shape", {"extend": 40, "side": "lower"})).status == 201
    node = DataService(store, SystemClock())
    cold = await RestClient(node, SystemClock(), Principal("admin", admin=True), settings=SETTINGS).open()
    cold.domain = "/home/admin/values.h5"
    store.reset()
    assert len((await cold("GET", f"{path}/chunks", places="signed"))["chunks"]) == 100
    assert store.calls["get_range"] == 0
    await cold.close()
    await node.close()


async def test_labels_count_from_the_lower_bound(client: RestClient) -> None:
    path, labels = await filled(client), await create(client, lower=[-2], minlower=[-2])
    await put(client, labels, {"value": [0, 1] * 5})
    query = {"op": "sum", "axis": 0, "by": labels.rpartition("/")[2], "undefined": "skip"}
    found = await client("GET", f"{path}/reduce", select="[-5:3]", places="signed", **query)
    assert found["value"]["sum"] == [-5 - 3 - 1 + 1, -4 - 2 + 0 + 2]
    await answered(client("POST", f"{path}/reduce", query | {"by": [1] * 9, "axis": [0]}), 400)


async def test_stored_chunks_are_those_that_were_named_when_the_bound_moves_meanwhile(
    client: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await filled(client)
    one = await client("GET", f"{path}/chunks/1", places="signed")
    owners = client.service.owners
    gather = owners.gather

    async def moved(*asked: Any) -> Any:
        monkeypatch.setattr(owners, "gather", gather)
        assert (await client("PUT", f"{path}/shape", {"lower": [0]})).status == 201
        return await gather(*asked)

    monkeypatch.setattr(owners, "gather", moved)
    body = {"chunks": ["1"], "etags": [one["etag"]], "sizes": [one["size"]]}
    found = await answered(client("POST", f"{path}/chunks/values", body, places="signed"))
    assert len(found.body) > one["size"], "its bytes, and not that it has changed"


async def test_many_datasets_in_one_answer(client: RestClient) -> None:
    paths = [await filled(client), await create(client, lower=[-9], minlower=[-9])]
    assert (await client("PUT", f"{paths[1]}/value", {"value": list(range(10))})).status == 200
    ids = [path.rpartition("/")[2] for path in paths]
    reads = {"reads": [{"ids": ids, "select": "[-2:0]"}]}
    found = await client("POST", "/datasets/values", reads, places="signed")
    blocks = np.frombuffer(found.body, "<i8").tolist()
    assert blocks == [16, -2, -1, 0, 16, 7, 8, 0]


async def test_a_streamed_write_goes_where_its_places_are(
    client: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while both ends of the dataset move, and it stays as long as it is."""
    load, loads = handlers.load_dataset, 0

    async def moved(request: Request) -> StoredDataset:
        nonlocal loads
        loads += 1
        if loads == 3:  # after the first page
            body = {"lower": [-30_000 - 4096], "shape": [40_000]}
            assert (await client("PUT", f"{path}/shape", body)).status == 201
        return await load(request)

    layout = chunked(4096)
    path = await create(client, shape=[40_000], lower=[-30_000], creationProperties={"layout": layout})
    values = np.arange(30_002, dtype="<i8").tobytes()
    monkeypatch.setattr(handlers, "load_dataset", moved)
    reply = await client("PUT", f"{path}/value", values, select="[-30000:2]", places="signed")
    assert (reply.status, loads) == (200, 3), reply.body
    found = await client("GET", f"{path}/value", select="[[-30000,-2,1]]", places="signed")
    assert found["value"] == [0, 29_998, 30_001]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"lower": [1, 2]}, "for each of the 1 dimensions"),
        ({"lower": "x"}, "lower must have an integer"),
        ({"minlower": [-4]}, "at most -5"),
        ({"minlower": [UNLIMITED, 0]}, "for each of the 1 dimensions"),
        ({"maxdims": None}, "give maxdims"),
        ({"lower": [2**62], "minlower": None}, "at most 2^62"),
        ({"lower": [-(2**63)], "minlower": None}, "between -2^62 and 2^62"),
        ({"shape": []}, "Only a simple dataspace"),
        (CONTIGUOUS | {"maxdims": None, "minlower": None}, "needs the layout"),
        ({"creationProperties": {"layout": DENSE, "initializer": ["arange", "--start=0"]}}, "initializer"),
    ],
)
async def test_what_cannot_be_is_refused(client: RestClient, body: dict[str, Any], message: str) -> None:
    given = {"type": I64, "shape": [10], "lower": [-5], "minlower": [UNLIMITED], "maxdims": [0]} | body
    given = {key: value for key, value in given.items() if value is not None}
    await refuses(client("POST", "/datasets", given), 400, message)


async def test_an_ordinary_dataset_has_no_lower_bound(client: RestClient) -> None:
    made = await client("POST", "/datasets", {"type": I64, "shape": [10], "maxdims": [0]})
    path = f"/datasets/{made['id']}"
    for body in ({"lower": [-5]}, {"minlower": [-5]}, {"extend": 1, "side": "lower"}):
        await refuses(client("PUT", f"{path}/shape", body), 400, "has no lower bound")
    reply = await client("PUT", f"{path}/value", {"append": 1, "append_side": "lower", "value": [1]})
    assert "has no lower bound" in reply["error"]["message"]
    assert await json_of(client, path, select="[2:4]", places="signed") == [0, 0]
    assert set(await shape(client, path)) == {"class", "dims", "maxdims"}


async def test_what_counts_from_zero_refuses_it(client: RestClient) -> None:
    """References of other readers, and mappings of virtual datasets."""
    path = await filled(client, "dense")
    reply = await client("GET", f"{path}/map", format="kerchunk", places="signed")
    assert (reply.status, reply["error"]["kind"]) == (400, "unsupported")
    assert "lower bound" in reply["error"]["message"]
    root = (await client("GET", "/"))["root"]
    await client("PUT", f"/groups/{root}/links/s", {"id": path.rpartition("/")[2]})
    whole = {"class": "H5S_SEL_HYPERSLABS", "start": [0], "count": [1], "block": [10]}
    mapping = {"file": ".", "dataset": "/s", "virtual": whole, "source": whole}
    layout = {"class": "H5D_VIRTUAL", "mappings": [mapping]}
    body = {"type": I64, "shape": [10], "creationProperties": {"layout": layout}}
    made = await client("POST", "/datasets", body)
    found = await client("GET", f"/datasets/{made['id']}/value")
    assert (found.status, found["error"]["kind"]) == (409, "conflict")
    assert all(part in found["error"]["message"] for part in ("/s", "lower bound"))
