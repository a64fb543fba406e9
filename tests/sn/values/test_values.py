"""Values over HTTP, dense and sparse alike, against numpy."""

from __future__ import annotations

import base64
import gc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hsparse.concurrency import collector
from hsparse.format.chunk_spec import chunk_key
from hsparse.sn.http import stream
from hsparse.sn.objects import dataset_creation
from hsparse.sn.service_settings import ServiceSettings
from hsparse.wire.record_message import Forget
from tests.sn.conftest import Watch
from tests.sn.dataset_kinds import F64, I16, I32, TEXT, U8, array_of, chunked, sparse
from tests.sn.value_client import BINARY, SETTINGS, create, defined_count, json_of, put, read, value_client
from tests.support.rest_client import RestClient, answered, refuses
from tests.testing.faulty_store import FaultyStore
from tests.testing.memory_store import MemoryStore

SHAPE = (37, 53)
LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "chunked": {"layout": chunked(10, 20)},
    "filtered": {
        "layout": chunked(16, 16),
        "filters": ["shuffle", {"class": "H5Z_FILTER_DEFLATE", "id": 1, "level": 4, "name": "deflate"}],
    },
    "sparse": {"layout": sparse(10, 20)},
    "sparse filtered": {"layout": sparse(37, 7), "filters": ["shuffle", "zstd"]},
}
SELECTIONS = {
    "[0:37,0:53]": np.s_[0:37, 0:53],
    "[3:30:4,5:50:7]": np.s_[3:30:4, 5:50:7],
    "[5,0:53]": np.s_[5:6, 0:53],
    "[:,52]": np.s_[:, 52:53],
    "[[1,9,30],2:9]": np.s_[[1, 9, 30], 2:9],
    "[2:9,[0,20,52]]": np.s_[2:9, [0, 20, 52]],
}


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_every_selection_reads_what_numpy_reads(client: RestClient, layout: str) -> None:
    path = await create(client, list(SHAPE), I32, fillValue=-3, **LAYOUTS[layout])
    model = np.full(SHAPE, -3, "<i4")
    np.testing.assert_array_equal(await read(client, path, "<i4", SHAPE), model)
    for number, (select, index) in enumerate(SELECTIONS.items()):
        values = np.arange(model[index].size, dtype="<i4").reshape(model[index].shape) + 1000 * number
        await put(client, path, values.tobytes(), select=select)
        model[index] = values
        for wanted, place in SELECTIONS.items():
            got = await read(client, path, "<i4", model[place].shape, select=wanted)
            np.testing.assert_array_equal(got, model[place])
    assert await json_of(client, path, select="[0:3,0:4]") == model[:3, :4].tolist()


@pytest.mark.parametrize("layout", ["chunked", "sparse"])
async def test_points(client: RestClient, layout: str) -> None:
    path = await create(client, list(SHAPE), F64, **LAYOUTS[layout])
    points = [[36, 52], [0, 0], [9, 20], [10, 19], [0, 0]]
    await put(client, path, {"points": points, "value": [1.0, 2.0, 3.0, 4.0, 5.0]})
    expected = [1.0, 5.0, 3.0, 4.0, 5.0]
    assert (await client("POST", f"{path}/value", {"points": points}))["value"] == expected
    binary = await client("POST", f"{path}/value", np.array(points, "<u8").tobytes(), accept=BINARY)
    assert np.frombuffer(binary.body).tolist() == expected
    assert (await client("POST", f"{path}/value", {"select": "[[0,9],0:1]"}))["value"] == [[5.0], [0.0]]
    assert await json_of(client, path, select="[[36,9],[52,20]]") == [1.0, 3.0]


async def test_start_stop_step_and_base64(client: RestClient) -> None:
    path = await create(client, [10], I32)
    await put(client, path, {"start": [0], "stop": [10], "step": [3], "value": [1, 2, 3, 4]})
    text = base64.b64encode(np.array([8, 9], "<i4").tobytes()).decode()
    await put(client, path, {"start": 1, "stop": 3, "value_base64": text})
    read = await client("POST", f"{path}/value", {"start": [0], "stop": [7], "step": [3]})
    assert read["value"] == [1, 2, 3]
    for body in (
        {},
        {"start": 1, "select": "[1]"},
        {"points": [1], "select": "[1]"},
        {"select": "[1]", "x": 1},
    ):
        assert (await client("POST", f"{path}/value", body)).status == 400
    assert await json_of(client, path) == [1, 8, 9, 2, 0, 0, 3, 0, 0, 4]


@pytest.mark.parametrize(
    ("parse", "body", "is_aside"),
    [
        ("parse_initial_value", {"shape": [20_000], "value": [1] * 20_000}, True),
        *(
            (
                "parse_initial_bytes",
                {"shape": [n], "value_base64": base64.b64encode(bytes(8 * n)).decode()},
                n > 100,
            )
            for n in (9000, 100)
        ),
    ],
    ids=["json", "base64", "few"],
)
async def test_many_initial_values_are_parsed_aside(
    client: RestClient, watch: Watch, parse: str, body: dict[str, Any], is_aside: bool
) -> None:
    on_loop = watch(dataset_creation, parse)
    assert (await client("POST", "/datasets", {"type": F64} | body)).status == 201
    assert on_loop == [not is_aside]


async def test_values_as_base64_are_written_with_the_dataset(client: RestClient) -> None:
    made = await client("POST", "/datasets", {"type": F64, "shape": [1], "value_base64": "AAAAAAAA8D8="})
    assert (await client("GET", f"/datasets/{made['id']}/value"))["value"] == [1.0]
    made = await client("POST", "/datasets", {"type": TEXT, "shape": [2], "value_base64": "AgAAAGFiAAAAAA=="})
    assert (await client("GET", f"/datasets/{made['id']}/value"))["value"] == ["ab", ""]


async def test_fields_of_compound_elements(client: RestClient) -> None:
    fields = [{"name": name, "type": I32} for name in "abc"]
    path = await create(client, [600], {"class": "H5T_COMPOUND", "fields": fields})
    model = np.zeros(600, [(name, "<i4") for name in "abc"])
    for number, name in enumerate("abc"):
        model[name] = np.arange(600) + 1000 * number
    await put(client, path, model.tobytes())
    for text in ("b", "c:a", "a:b:c"):
        names = text.split(":")
        expected = np.stack([model[name] for name in names], axis=1)
        got = await read(client, path, "<i4", (600, len(names)), fields=text)
        np.testing.assert_array_equal(got, expected)
        some = await client("GET", f"{path}/value", select="[3:5]", fields=text)
        assert some["value"] == expected[3:5].tolist()
        posted = await client("POST", f"{path}/value", {"select": "[3:5]", "fields": text})
        assert posted["value"] == expected[3:5].tolist()
    for text in ("d", "a:a", "a,b", "a:"):
        assert (await client("GET", f"{path}/value", fields=text)).status == 400
    points = np.array([9, 3], "<u8").tobytes()
    got = await client("POST", f"{path}/value", points, fields="c", accept=BINARY)
    assert np.frombuffer(got.body, "<i4").tolist() == model["c"][[9, 3]].tolist()


@pytest.mark.parametrize("layout", [{"layout": chunked(100)}, {"layout": sparse(100)}])
async def test_writing_some_fields_leaves_the_others(client: RestClient, layout: dict[str, Any]) -> None:
    fields = [{"name": "a", "type": I32}, {"name": "b", "type": F64}]
    fields += [{"name": "v", "type": array_of(I16, 2)}]
    dtype = np.dtype([("a", "<i4"), ("b", "<f8"), ("v", "<i2", (2,))])
    kind = {"class": "H5T_COMPOUND", "fields": fields}
    path = await create(client, [300], kind, fillValue=[-1, -2.0, [3, 4]], **layout)
    model = np.full(300, np.array((-1, -2.0, [3, 4]), dtype))
    some = np.zeros(200, [("v", "<i2", (2,)), ("a", "<i4")])
    some["v"], some["a"] = np.arange(400).reshape(200, 2), np.arange(200)
    model["v"][50:250], model["a"][50:250] = some["v"], some["a"]
    writes: list[tuple[Any, dict[str, Any]]] = [(some.tobytes(), {"fields": "v:a", "select": "[50:250]"})]
    for body, select in (({"value": [1.5, 2.5]}, slice(0, 2)), ({"value": [[6.5], [7.5]]}, slice(2, 4))):
        writes.append((body, {"fields": "b", "select": f"[{select.start}:{select.stop}]"}))
    model["b"][:4] = [1.5, 2.5, 6.5, 7.5]
    writes.append(({"points": [299, 7, 7], "value": [1, 2, 3], "fields": "a"}, {}))
    model["a"][[299, 7]] = [1, 3]
    writes.append((np.float64(9).tobytes(), {"fields": "b", "select": "[90:110]", "element_count": 1}))
    model["b"][90:110] = 9
    text = base64.b64encode(np.array([5, 6], "<i4").tobytes()).decode()
    writes.append(({"points": [[3], [4]], "value_base64": text}, {"fields": "a"}))
    model["a"][[3, 4]] = [5, 6]
    writes.append(({"start": 298, "value": [[[1, 2]], [[3, 4]]], "fields": "v"}, {}))
    model["v"][298:] = [[1, 2], [3, 4]]
    for body, arguments in writes:
        await put(client, path, body, **arguments)
    np.testing.assert_array_equal(await read(client, path, dtype, (300,)), model)
    for arguments in ({"fields": "x"}, {"fields": "a:a"}, {"fields": "a", "select": "[0:299]"}):
        assert (await client("PUT", f"{path}/value", bytes(1200), **arguments)).status == 400
    assert (await client("PUT", f"{path}/value", {"value": 1, "fields": ["a"]})).status == 400
    np.testing.assert_array_equal(await read(client, path, dtype, (300,)), model)


async def test_dimensions_of_one_can_be_left_out(client: RestClient) -> None:
    path = await create(client, [3, 4], U8)
    await put(client, path, bytes(range(12)))
    assert await json_of(client, path, select="[1,0:3]") == [[4, 5, 6]]
    assert await json_of(client, path, select="[1,0:3]", reduce_dim=1) == [4, 5, 6]
    assert await json_of(client, path, select="[1,1]", reduce_dim=1) == 5
    line = await create(client, [3], U8)
    assert await json_of(client, line, select="[1]", reduce_dim=1) == [0]


async def test_a_zero_extent_has_no_values(client: RestClient) -> None:
    path = await create(client, [0, 5], I32, maxdims=["H5S_UNLIMITED", 5], layout=sparse(4, 5))
    assert await json_of(client, path) == []
    assert (await client("GET", f"{path}/value", accept=BINARY)).body == b""
    assert await defined_count(client, path) == 0


async def test_json_has_a_limit_that_binary_has_not() -> None:
    async with value_client(settings=ServiceSettings(page_size=4096, max_request_size=10_000)) as client:
        path = await create(client, [50, 50], F64)
        await refuses(client("GET", f"{path}/value"), 413, "max_request_size")
        assert len((await client("GET", f"{path}/value", accept=BINARY)).body) == 20_000


async def test_a_failure_late_in_an_answer_breaks_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_WHOLE_BYTES", 0)
    store = FaultyStore(MemoryStore())
    async with value_client(store) as client:
        path = await create(client, [64, 64], F64, layout=chunked(8, 64))
        await put(client, path, np.ones((64, 64)).tobytes())
        record = (await client("GET", path)).body
        await client.service.owners.ask_all(Forget(record["id"]))
        store.fail_before("gets", chunk_key(record["id"], (7, 0)), times=100)
        with pytest.raises(Exception, match=r"payload|disconnected|closed|reset"):
            await client("GET", f"{path}/value", accept=BINARY)
        store.clear()
        np.testing.assert_array_equal(await read(client, path, float, (64, 64)), np.ones((64, 64)))


BAD_WRITES: dict[str, tuple[Any, dict[str, Any]]] = {
    "malformed json": ("{", {}),
    "not an object": ([1], {}),
    "unknown key": ({"value": [1], "speed": 1}, {}),
    "no value": ({}, {}),
    "too few values": ({"value": [[1, 2]]}, {}),
    "too few bytes": (b"123", {}),
    "too many bytes": (bytes(8 * 9 * 4 + 4), {}),
    "a fraction": ({"value": 1.5}, {"select": "[0,0]"}),
    "a number out of range": ({"value": 2**31}, {"select": "[0,0]"}),
    "text": ({"value": "abc"}, {"select": "[0,0]"}),
    "null": ({"value": None}, {"select": "[0,0]"}),
    "outside the extent": (bytes(4), {"select": "[8,0]"}),
    "stop beyond the extent": (bytes(4 * 9 * 9), {"select": "[0:9,0:9]"}),
    "wrong rank": (bytes(4), {"select": "[0]"}),
    "malformed select": (bytes(4), {"select": "[0,__import__('os')]"}),
    "step zero": (bytes(4), {"select": "[0:4:0,0]"}),
    "point outside": ({"points": [[0, 99]], "value": [1]}, {}),
    "point of wrong rank": ({"points": [[0]], "value": [1]}, {}),
    "negative point": ({"points": [[0, -1]], "value": [1]}, {}),
    "points that are no numbers": ({"points": [["a", "b"]], "value": [1]}, {}),
    "two selections": ({"points": [[0, 1]], "select": "[0,0]", "value": [1]}, {}),
    "bad base64": ({"value_base64": "???"}, {"select": "[0,0]"}),
    "bad element count": (bytes(4), {"element_count": 3}),
    "an element count of a thousand digits": (bytes(4), {"element_count": "9" * 5000}),
    "append to a fixed dataset": ({"append": 1, "value": [0] * 9}, {}),
    "negative append": ({"append": -1, "value": [0]}, {}),
    "much too long": (bytes(200_001), {}),
    "drop_fill on a dense dataset": (bytes(4), {"select": "[0,0]", "drop_fill": 1}),
    "drop_fill that is no flag": (bytes(4), {"select": "[0,0]", "drop_fill": "maybe"}),
}


@pytest.mark.parametrize("name", BAD_WRITES)
async def test_bad_writes_change_nothing(client: RestClient, name: str) -> None:
    body, query = BAD_WRITES[name]
    path = await create(client, [8, 9], I32, layout=chunked(4, 4))
    model = np.arange(72, dtype="<i4").reshape(8, 9)
    await put(client, path, model.tobytes())
    json = {"headers": {"Content-Type": "application/json"}} if isinstance(body, str) else {}
    body = body.encode() if isinstance(body, str) else body
    reply = await answered(client("PUT", f"{path}/value", body, **query, **json), 400)
    assert set(reply["error"]) == {"kind", "message"}
    assert reply["error"]["message"].endswith((".", "?"))
    np.testing.assert_array_equal(await read(client, path, "<i4", (8, 9)), model)


@pytest.mark.parametrize(
    "select", ["[0:9,0:9]", "[0]", "[a,b]", "0,0", "[0,0", "[[8],0]", "[-1,0]", "[5:2,0]"]
)
async def test_bad_reads_name_what_is_wrong(client: RestClient, select: str) -> None:
    path = await create(client, [8, 9], I32)
    reply = await answered(client("GET", f"{path}/value", select=select), 400)
    assert reply["error"]["message"]


async def test_ids_of_elsewhere(client: RestClient) -> None:
    path = await create(client, [8], I32)
    assert (await client("PUT", "/", {}, domain="/home/admin/other.h5")).status == 201
    assert (await client("GET", f"{path}/value", domain="/home/admin/other.h5")).status == 400
    assert (await client("GET", "/datasets/nonsense/value")).status == 400
    gone = path[:-6] + "000000"
    assert (await client("GET", f"{gone}/value")).status == 404
    assert (await client("DELETE", path)).status == 200
    assert (await client("GET", f"{path}/value")).status == 410


async def test_a_store_that_fails_fails_the_request_alone() -> None:
    store = FaultyStore(MemoryStore())
    async with value_client(store) as client:
        path = await create(client, [8, 8], U8, layout=chunked(8, 8))
        await put(client, path, bytes(range(64)))
        store.fail_before("puts")
        await answered(client("PUT", f"{path}/value", bytes(64)), 500)
        assert (await client("GET", f"{path}/value", accept=BINARY)).body == bytes(range(64))
        await put(client, path, bytes(64))
        assert (await client("GET", f"{path}/value", accept=BINARY)).body == bytes(64)


async def extent(client: RestClient, path: str) -> Any:
    return (await client("GET", f"{path}/shape"))["shape"]["dims"]


@pytest.mark.parametrize("layout", [LAYOUTS["contiguous"], {"layout": sparse(4)}])
async def test_what_cannot_be_appended_does_not_grow_the_dataset(
    client: RestClient, layout: dict[str, Any]
) -> None:
    path = await create(client, [3], I32, maxdims=["H5S_UNLIMITED"], **layout)
    for body in ({"append": 2, "value": [1, 2, 3]}, {"append": 2, "value": ["x", 1]}, {"append": 2}):
        assert (await client("PUT", f"{path}/value", body)).status == 400
    assert (await client("PUT", f"{path}/value", b"abc", append=2)).status == 400
    for count in (2**63 - 1, 2**63 - 3, 2**64 - 1):
        assert (await client("PUT", f"{path}/value", {"append": count, "value": 1})).status in (400, 413)
    assert await extent(client, path) == [3]


async def test_some_fields_with_drop_fill_do_not_grow_the_dataset(client: RestClient) -> None:
    fields = [{"name": name, "type": I32} for name in "ab"]
    item = {"class": "H5T_COMPOUND", "fields": fields}
    path = await create(client, [3], item, maxdims=["H5S_UNLIMITED"], layout=sparse(4))
    for extra in ({}, {"append": 2}):
        body = {"value": [[1], [2]], "fields": "a"} | extra
        await refuses(
            client("PUT", f"{path}/value", body, drop_fill=1), 400, "whole elements: leave out fields"
        )
    assert await extent(client, path) == [3]
    await put(client, path, {"append": 2, "value": [[1, 0], [0, 0]], "fields": "a:b"}, drop_fill=1)
    assert await defined_count(client, path) == 1


async def test_one_value_for_too_much_is_refused(client: RestClient) -> None:
    many = await create(client, [2**40], I32, layout=sparse(1))
    assert (await client("PUT", f"{many}/value", {"value": 1})).status == 413
    large = await create(client, [2**32 - 1], I32, layout=sparse(2**32 - 1))
    assert (await client("PUT", f"{large}/value", {"value": 1})).status == 413
    assert await defined_count(client, large) == 0


async def test_all_of_a_chunk_in_another_order(client: RestClient) -> None:
    path = await create(client, [2, 2], I32)
    await put(client, path, {"points": [[1, 1], [0, 1], [0, 0], [1, 0]], "value": [1, 2, 3, 4]})
    assert await json_of(client, path) == [[3, 2], [4, 1]]
    await put(client, path, {"value": [[1, 2], [3, 4]]}, select="[[0,1],:]")
    assert await json_of(client, path) == [[1, 2], [3, 4]]


async def test_an_initializer(client: RestClient) -> None:
    """Unwritten elements have its values: read, beside what is written, after a shrink, in many chunks."""
    initial = {"initializer": ["arange", "--start=10", "--step=2"], "fillValue": 7}
    path = await create(client, [5000], I32, maxdims=[10_000], layout=chunked(256), **initial)
    model = 10 + 2 * np.arange(10_000, dtype="<i4")
    np.testing.assert_array_equal(await read(client, path, "<i4", (5000,)), model[:5000])
    await put(client, path, {"value": [1, 2, 3]}, select="[300:303]")
    written = model.copy()
    written[300:303] = 1, 2, 3
    np.testing.assert_array_equal(await read(client, path, "<i4", (5000,)), written[:5000])
    for extent in (301, 10_000):
        assert (await client("PUT", f"{path}/shape", {"shape": [extent]})).status == 201
    written[301:] = model[301:]
    np.testing.assert_array_equal(await read(client, path, "<i4", (10_000,)), written)
    assert await json_of(client, path, select="[9990:9992]") == written[9990:9992].tolist()


async def test_an_initializer_in_more_chunks_than_are_looked_for(client: RestClient) -> None:
    async with value_client(settings=replace(SETTINGS, min_chunk_size=4)) as client:
        path = await create(client, [4000], F64, layout=chunked(2), initializer=["arange"])
        np.testing.assert_array_equal(await read(client, path, "<f8", (4000,)), np.arange(4000.0))


@pytest.mark.parametrize("initializer", [["fire"], ["arange", "--stop=1"], 7])
async def test_an_initializer_that_is_not_known(client: RestClient, initializer: object) -> None:
    body = {"type": I32, "shape": [5], "creationProperties": {"initializer": initializer}}
    assert (await client("POST", "/datasets", body)).status == 400


@pytest.mark.parametrize("layout", [chunked(1, 2, 3), sparse(1, 2, 3)])
async def test_values_are_repeated_over_the_first_dimensions(client: RestClient, layout: Any) -> None:
    path = await create(client, [2, 3, 5], I32, layout=layout)
    model = np.zeros((2, 3, 5), "<i4")
    plane = np.arange(15, dtype="<i4").reshape(3, 5)
    text = base64.b64encode((plane + 3).tobytes()).decode()
    writes: list[tuple[Any, dict[str, Any], Any, Any]] = [
        ((plane + 2).tobytes(), {"element_count": 15}, np.s_[:], plane + 2),
        ({"value_base64": text}, {"element_count": 15}, np.s_[:], plane + 3),
        ({"value": [9, 8]}, {"element_count": 2, "select": "[0:2,1,2:4]"}, np.s_[:, 1:2, 2:4], [9, 8]),
        ({"value": [7], "start": [0, 0, 1], "stop": [2, 2, 4]}, {"element_count": 1}, np.s_[:2, :2, 1:4], 7),
        ({"value": (plane + 4).ravel().tolist(), "element_count": 15}, {}, np.s_[:], plane + 4),
    ]
    for body, options, index, values in writes:
        await put(client, path, body, **options)
        model[index] = values
        np.testing.assert_array_equal(await read(client, path, "<i4", model.shape), model)
    for body, count in (({"value": 1}, 30.0), ({"value": [[1], [2]]}, 1), ({"value": []}, 1), (bytes(8), 1)):
        assert (await client("PUT", f"{path}/value", body, element_count=count)).status == 400
    np.testing.assert_array_equal(await read(client, path, "<i4", model.shape), model)


async def test_a_selection_as_a_list(client: RestClient) -> None:
    path = await create(client, [4, 5], I32)
    await put(client, path, (10 * np.arange(4)[:, None] + np.arange(5)).astype("<i4").tobytes())
    for select, values in (
        (["1:3", [0, 2]], [[10, 12], [20, 22]]),
        ([[3, 1, 1], 0], [[30], [10], [10]]),
        ([[], ":"], []),
        ([":", "4"], [[4], [14], [24], [34]]),
    ):
        assert (await client("POST", f"{path}/value", {"select": select}))["value"] == values
    for bad in ([4, 0], [0, True], [0, None], [0, [True]], [0, "0,1"], [0, "[1]"], [0, ""]):
        assert (await client("POST", f"{path}/value", {"select": bad})).status == 400


async def test_floats_that_json_does_not_have_in_queries(client: RestClient) -> None:
    path = await create(client, [3], F64)
    await put(client, path, {"value": [1.5, float("nan"), float("inf")]})
    assert (await client("POST", f"{path}/value", {"points": [1]}, ignore_nan=1))["value"] == [None]
    found = await client("GET", f"{path}/value", ignore_nan=1, query="_.is_null()")
    assert (found["index"], found["value"]) == ([1], [None])
    found = await client("GET", f"{path}/value", query="~_.is_null()")
    assert (found["index"], found["value"]) == ([0, 2], [1.5, float("inf")])
    found = await client("PUT", f"{path}/value", {"value": float("inf")}, query="_ == 1.5")
    assert found.facts == {"indices": [[0]], "value": [[0, float("inf")]]}


async def test_repeated_values_have_a_limit(client: RestClient) -> None:
    path = await create(client, [1 << 20, 1 << 10], I32, layout=sparse(1, 1024))
    body = {"value": [1] * 1024, "element_count": 1024}
    assert (await client("PUT", f"{path}/value", body)).status == 413
    await put(client, path, body, select="[5:9,:]")
    assert await defined_count(client, path) == 4096


async def test_variable_length_values_are_repeated(client: RestClient) -> None:
    path = await create(client, [2, 3], TEXT)
    await put(client, path, {"value": ["a", "", "bcd"]}, element_count=3)
    assert await json_of(client, path) == [["a", "", "bcd"]] * 2


async def test_many_points_in_json(client: RestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come and go as arrays, while the collector of cycles is paused."""
    monkeypatch.setattr(collector, "PAUSING_LISTS", 1000)
    was_enabled = gc.isenabled()
    client.service.settings = ServiceSettings()
    path = await create(client, [2000, 2000], I32, layout=sparse(1000, 1000))
    places = np.random.default_rng(1).permutation(4_000_000)[:20_000]
    points = np.stack(np.divmod(places, 2000), axis=1)
    body = {"points": points.tolist(), "value": places.tolist()}
    await put(client, path, body)
    read = await client("POST", f"{path}/value", {"points": points[::-1].tolist()})
    assert read["value"] == places[::-1].tolist()
    found = await client("GET", f"{path}/value", sparse=1)
    rows, columns = np.array(found["selection"]["coordinates"]).T
    np.testing.assert_array_equal(2000 * rows + columns, found["value"])
    assert len(found["value"]) == len(places)
    for bad in ([[0, 0], [1]], [[0, "x"]], [[0.5, 1]], [[True, False]], [[0, 1, 2]], [[-1, 0]]):
        assert (await client("POST", f"{path}/value", {"points": bad})).status == 400
    assert gc.isenabled() or not was_enabled
