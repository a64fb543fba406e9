"""Values over HTTP, dense and sparse alike, against numpy."""

from __future__ import annotations

import base64
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hsparse.sn.http import stream
from hsparse.sn.objects import dataset_creation
from hsparse.sn.service_settings import ServiceSettings
from hsparse.wire.record_message import Forget
from tests.sn.value_client import BINARY, SETTINGS, create, read, sparse, value_client
from tests.support.rest_client import RestClient
from tests.testing.faulty_store import FaultyStore
from tests.testing.memory_store import MemoryStore

SHAPE = (37, 53)
LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "chunked": {"layout": {"class": "H5D_CHUNKED", "dims": [10, 20]}},
    "filtered": {
        "layout": {"class": "H5D_CHUNKED", "dims": [16, 16]},
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


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client() as made:
        yield made


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_every_selection_reads_what_numpy_reads(client: RestClient, layout: str) -> None:
    path = await create(client, list(SHAPE), "H5T_STD_I32LE", fillValue=-3, **LAYOUTS[layout])
    model = np.full(SHAPE, -3, "<i4")
    np.testing.assert_array_equal(await read(client, path, "<i4", SHAPE), model)
    for number, (select, index) in enumerate(SELECTIONS.items()):
        values = np.arange(model[index].size, dtype="<i4").reshape(model[index].shape) + 1000 * number
        reply = await client("PUT", f"{path}/value", values.tobytes(), select=select)
        assert reply.status == 200, reply.body
        model[index] = values
        for wanted, place in SELECTIONS.items():
            got = await read(client, path, "<i4", model[place].shape, select=wanted)
            np.testing.assert_array_equal(got, model[place])
    json = await client("GET", f"{path}/value", select="[0:3,0:4]")
    assert json["value"] == model[:3, :4].tolist()


@pytest.mark.parametrize("layout", ["chunked", "sparse"])
async def test_points(client: RestClient, layout: str) -> None:
    path = await create(client, list(SHAPE), "H5T_IEEE_F64LE", **LAYOUTS[layout])
    points = [[36, 52], [0, 0], [9, 20], [10, 19], [0, 0]]
    reply = await client("PUT", f"{path}/value", {"points": points, "value": [1.0, 2.0, 3.0, 4.0, 5.0]})
    assert reply.status == 200, reply.body
    expected = [1.0, 5.0, 3.0, 4.0, 5.0]
    assert (await client("POST", f"{path}/value", {"points": points}))["value"] == expected
    binary = await client("POST", f"{path}/value", np.array(points, "<u8").tobytes(), accept=BINARY)
    assert np.frombuffer(binary.body).tolist() == expected
    selected = await client("POST", f"{path}/value", {"select": "[[0,9],0:1]"})
    assert selected["value"] == [[5.0], [0.0]]
    paired = await client("GET", f"{path}/value", select="[[36,9],[52,20]]")
    assert paired["value"] == [1.0, 3.0]


async def test_points_of_one_dimension_may_be_numbers(client: RestClient) -> None:
    path = await create(client, [10], "H5T_STD_I16BE")
    assert (await client("PUT", f"{path}/value", {"points": [3, 5], "value": [-3, -5]})).status == 200
    assert (await client("GET", f"{path}/value"))["value"] == [0, 0, 0, -3, 0, -5, 0, 0, 0, 0]
    assert (await read(client, path, ">i2", (10,))).tolist() == [0, 0, 0, -3, 0, -5, 0, 0, 0, 0]


async def test_one_element_for_all(client: RestClient) -> None:
    path = await create(
        client,
        [4, 5],
        "H5T_STD_U8LE",
        **LAYOUTS["chunked"] | {"layout": {"class": "H5D_CHUNKED", "dims": [2, 2]}},
    )
    reply = await client("PUT", f"{path}/value", b"\7", select="[1:3,1:4]", element_count=1)
    assert reply.status == 200
    assert (await client("PUT", f"{path}/value", {"value": 9}, select="[0,0]")).status == 200
    model = np.zeros((4, 5), "u1")
    model[1:3, 1:4] = 7
    model[0, 0] = 9
    np.testing.assert_array_equal(await read(client, path, "u1", (4, 5)), model)


async def test_start_stop_step_and_base64(client: RestClient) -> None:
    path = await create(client, [10], "H5T_STD_I32LE")
    body = {"start": [0], "stop": [10], "step": [3], "value": [1, 2, 3, 4]}
    assert (await client("PUT", f"{path}/value", body)).status == 200
    text = base64.b64encode(np.array([8, 9], "<i4").tobytes()).decode()
    assert (await client("PUT", f"{path}/value", {"start": 1, "stop": 3, "value_base64": text})).status == 200
    read = await client("POST", f"{path}/value", {"start": [0], "stop": [7], "step": [3]})
    assert read["value"] == [1, 2, 3]
    for body in (
        {},
        {"start": 1, "select": "[1]"},
        {"points": [1], "select": "[1]"},
        {"select": "[1]", "x": 1},
    ):
        assert (await client("POST", f"{path}/value", body)).status == 400
    assert (await client("GET", f"{path}/value"))["value"] == [1, 8, 9, 2, 0, 0, 3, 0, 0, 4]


@pytest.mark.parametrize(
    ("parse", "body", "is_aside"),
    [
        ("parse_initial_value", {"shape": [20_000], "value": [1] * 20_000}, True),
        (
            "parse_initial_bytes",
            {"shape": [9000], "value_base64": base64.b64encode(bytes(72000)).decode()},
            True,
        ),
        (
            "parse_initial_bytes",
            {"shape": [100], "value_base64": base64.b64encode(bytes(800)).decode()},
            False,
        ),
    ],
    ids=["json", "base64", "few"],
)
async def test_many_initial_values_are_parsed_aside(
    client: RestClient, monkeypatch: pytest.MonkeyPatch, parse: str, body: dict[str, Any], is_aside: bool
) -> None:
    found: list[bool] = []
    real = getattr(dataset_creation, parse)

    def noted(*args: Any) -> Any:
        found.append(threading.current_thread() is not threading.main_thread())
        return real(*args)

    monkeypatch.setattr(dataset_creation, parse, noted)
    assert (await client("POST", "/datasets", {"type": "H5T_IEEE_F64LE"} | body)).status == 201
    assert found == [is_aside]


async def test_values_as_base64_are_written_with_the_dataset(client: RestClient) -> None:
    made = await client(
        "POST", "/datasets", {"type": "H5T_IEEE_F64LE", "shape": [1], "value_base64": "AAAAAAAA8D8="}
    )
    assert (await client("GET", f"/datasets/{made['id']}/value"))["value"] == [1.0]
    text = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}
    body = {"type": text, "shape": [2], "value_base64": "AgAAAGFiAAAAAA=="}
    made = await client("POST", "/datasets", body)
    assert (await client("GET", f"/datasets/{made['id']}/value"))["value"] == ["ab", ""]


async def test_scalar_datasets(client: RestClient) -> None:
    made = await client("POST", "/datasets", {"type": "H5T_IEEE_F32LE"})
    path = f"/datasets/{made['id']}"
    assert (await client("GET", f"{path}/value"))["value"] == 0.0
    assert (await client("PUT", f"{path}/value", {"value": 2.5})).status == 200
    assert (await client("GET", f"{path}/value"))["value"] == 2.5
    assert (await client("PUT", f"{path}/value", np.float32(7).tobytes())).status == 200
    assert np.frombuffer((await client("GET", f"{path}/value", accept=BINARY)).body, "<f4").tolist() == [7.0]


async def test_compound_and_string_elements(client: RestClient) -> None:
    string = {"class": "H5T_STRING", "length": 4, "charSet": "H5T_CSET_ASCII", "strPad": "H5T_STR_NULLPAD"}
    kind = {
        "class": "H5T_COMPOUND",
        "fields": [{"name": "n", "type": "H5T_STD_I64LE"}, {"name": "s", "type": string}],
    }
    for layout in ({}, {"layout": sparse(5)}):
        path = await create(client, [5], kind, **layout)
        reply = await client("PUT", f"{path}/value", {"value": [[1, "ab"], [2, "cdef"]]}, select="[1:3]")
        assert reply.status == 200, reply.body
        assert (await client("GET", f"{path}/value"))["value"] == [
            [0, ""],
            [1, "ab"],
            [2, "cdef"],
            [0, ""],
            [0, ""],
        ]
        dtype = np.dtype([("n", "<i8"), ("s", "S4")])
        assert (await read(client, path, dtype, (5,)))["s"].tolist() == [b"", b"ab", b"cdef", b"", b""]
    path = await create(client, [2], string)
    assert (await client("PUT", f"{path}/value", {"value": ["x", "yz"]})).status == 200
    assert (await client("GET", f"{path}/value"))["value"] == ["x", "yz"]


async def test_fields_of_compound_elements(client: RestClient) -> None:
    fields = [{"name": name, "type": "H5T_STD_I32LE"} for name in "abc"]
    path = await create(client, [600], {"class": "H5T_COMPOUND", "fields": fields})
    model = np.zeros(600, [(name, "<i4") for name in "abc"])
    for number, name in enumerate("abc"):
        model[name] = np.arange(600) + 1000 * number
    assert (await client("PUT", f"{path}/value", model.tobytes())).status == 200
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


@pytest.mark.parametrize(
    "layout", [{"layout": {"class": "H5D_CHUNKED", "dims": [100]}}, {"layout": sparse(100)}]
)
async def test_writing_some_fields_leaves_the_others(client: RestClient, layout: dict[str, Any]) -> None:
    fields = [{"name": "a", "type": "H5T_STD_I32LE"}, {"name": "b", "type": "H5T_IEEE_F64LE"}]
    fields += [{"name": "v", "type": {"class": "H5T_ARRAY", "base": "H5T_STD_I16LE", "dims": [2]}}]
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
    body = {
        "points": [[3], [4]],
        "value_base64": base64.b64encode(np.array([5, 6], "<i4").tobytes()).decode(),
    }
    writes.append((body, {"fields": "a"}))
    model["a"][[3, 4]] = [5, 6]
    writes.append(({"start": 298, "value": [[[1, 2]], [[3, 4]]], "fields": "v"}, {}))
    model["v"][298:] = [[1, 2], [3, 4]]
    for body, arguments in writes:
        reply = await client("PUT", f"{path}/value", body, **arguments)
        assert reply.status == 200, reply.body
    np.testing.assert_array_equal(await read(client, path, dtype, (300,)), model)
    for arguments in ({"fields": "x"}, {"fields": "a:a"}, {"fields": "a", "select": "[0:299]"}):
        assert (await client("PUT", f"{path}/value", bytes(1200), **arguments)).status == 400
    assert (await client("PUT", f"{path}/value", {"value": 1, "fields": ["a"]})).status == 400
    np.testing.assert_array_equal(await read(client, path, dtype, (300,)), model)


async def test_floats_that_json_does_not_have(client: RestClient) -> None:
    path = await create(client, [3], "H5T_IEEE_F64LE")
    assert (await client("PUT", f"{path}/value", {"value": [1.5, float("nan"), float("inf")]})).status == 200
    shown = (await client("GET", f"{path}/value"))["value"]
    assert shown[0] == 1.5
    assert np.isnan(shown[1])
    assert shown[2] == float("inf")
    assert (await client("GET", f"{path}/value", ignore_nan=1))["value"] == [1.5, None, None]
    posted = await client("POST", f"{path}/value", {"points": [1]}, ignore_nan=1)
    assert posted["value"] == [None]
    found = await client("GET", f"{path}/value", ignore_nan=1, query="_.is_null()")
    assert (found["index"], found["value"]) == ([1], [None])
    found = await client("GET", f"{path}/value", query="~_.is_null()")
    assert (found["index"], found["value"]) == ([0, 2], [1.5, float("inf")])
    found = await client("PUT", f"{path}/value", {"value": float("inf")}, query="_ == 1.5")
    assert found.facts == {"indices": [[0]], "value": [[0, float("inf")]]}


async def test_text_that_is_no_text_is_asked_for_as_bytes(client: RestClient) -> None:
    string = {"class": "H5T_STRING", "length": 2, "charSet": "H5T_CSET_ASCII", "strPad": "H5T_STR_NULLPAD"}
    path = await create(client, [1], string)
    assert (await client("PUT", f"{path}/value", b"\xff\xfe")).status == 200
    reply = await client("GET", f"{path}/value")
    assert reply.status == 400
    assert "octet-stream" in reply["error"]["message"]
    assert (await client("GET", f"{path}/value", accept=BINARY)).body == b"\xff\xfe"


async def test_dimensions_of_one_can_be_left_out(client: RestClient) -> None:
    path = await create(client, [3, 4], "H5T_STD_U8LE")
    assert (await client("PUT", f"{path}/value", bytes(range(12)))).status == 200
    assert (await client("GET", f"{path}/value", select="[1,0:3]"))["value"] == [[4, 5, 6]]
    assert (await client("GET", f"{path}/value", select="[1,0:3]", reduce_dim=1))["value"] == [4, 5, 6]
    assert (await client("GET", f"{path}/value", select="[1,1]", reduce_dim=1))["value"] == 5
    line = await create(client, [3], "H5T_STD_U8LE")
    assert (await client("GET", f"{line}/value", select="[1]", reduce_dim=1))["value"] == [0]


@pytest.mark.parametrize("layout", [{"layout": {"class": "H5D_CHUNKED", "dims": [4]}}, {"layout": sparse(4)}])
async def test_appending_grows_first(client: RestClient, layout: dict[str, Any]) -> None:
    path = await create(client, [3], "H5T_STD_I32LE", maxdims=["H5S_UNLIMITED"], **layout)
    assert (await client("PUT", f"{path}/value", {"append": 2, "value": [7, 8]})).status == 200
    assert (await client("PUT", f"{path}/value", np.array([1, 2], "<i4").tobytes(), append=2)).status == 200
    assert (await client("GET", f"{path}/value"))["value"] == [0, 0, 0, 7, 8, 1, 2]
    assert (
        await client("PUT", f"{path}/value", {"append": 2, "append_dim": 1, "value": [7, 8]})
    ).status == 400


async def test_a_zero_extent_has_no_values(client: RestClient) -> None:
    path = await create(client, [0, 5], "H5T_STD_I32LE", maxdims=["H5S_UNLIMITED", 5], layout=sparse(4, 5))
    assert (await client("GET", f"{path}/value"))["value"] == []
    assert (await client("GET", f"{path}/value", accept=BINARY)).body == b""
    assert (await client("GET", f"{path}/defined", count_only=1)).body == {"count": 0}


async def test_a_null_dataspace_has_no_values(client: RestClient) -> None:
    made = await client("POST", "/datasets", {"type": "H5T_STD_I32LE", "shape": "H5S_NULL"})
    assert (await client("GET", f"/datasets/{made['id']}/value")).status == 400


async def test_answers_over_a_page_are_streamed_whole(client: RestClient) -> None:
    path = await create(
        client,
        [200, 100],
        "H5T_IEEE_F64LE",
        **LAYOUTS["chunked"] | {"layout": {"class": "H5D_CHUNKED", "dims": [30, 40]}},
    )
    model = np.random.default_rng(1).random((200, 100))
    assert (await client("PUT", f"{path}/value", model.tobytes())).status == 200
    np.testing.assert_array_equal(await read(client, path, float, (200, 100)), model)
    got = await read(client, path, float, (60, 33), select="[7:187:3,1:100:3]")
    np.testing.assert_array_equal(got, model[7:187:3, 1:100:3])


async def test_json_has_a_limit_that_binary_has_not() -> None:
    async with value_client(settings=ServiceSettings(page_size=4096, max_request_size=10_000)) as client:
        path = await create(client, [50, 50], "H5T_IEEE_F64LE")
        reply = await client("GET", f"{path}/value")
        assert reply.status == 413
        assert "max_request_size" in reply["error"]["message"]
        assert len((await client("GET", f"{path}/value", accept=BINARY)).body) == 20_000


async def test_a_failure_late_in_an_answer_breaks_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_WHOLE_BYTES", 0)
    store = FaultyStore(MemoryStore())
    async with value_client(store) as client:
        path = await create(
            client, [64, 64], "H5T_IEEE_F64LE", layout={"class": "H5D_CHUNKED", "dims": [8, 64]}
        )
        assert (await client("PUT", f"{path}/value", np.ones((64, 64)).tobytes())).status == 200
        record = (await client("GET", path)).body
        keys = [
            key for page in [page async for page in store.list("")] for key in (e.key for e in page.entries)
        ]
        last = next(key for key in keys if key.endswith("/7_0"))
        await client.service.owners.ask_all(Forget(record["id"]))
        store.fail_before("gets", last, times=100)
        with pytest.raises(Exception, match=r"payload|disconnected|closed|reset"):
            await client("GET", f"{path}/value", accept=BINARY)
        store.clear()
        np.testing.assert_array_equal(await read(client, path, float, (64, 64)), np.ones((64, 64)))


BAD_WRITES: dict[str, tuple[Any, dict[str, Any], int]] = {
    "malformed json": ("{", {}, 400),
    "not an object": ([1], {}, 400),
    "unknown key": ({"value": [1], "speed": 1}, {}, 400),
    "no value": ({}, {}, 400),
    "too few values": ({"value": [[1, 2]]}, {}, 400),
    "too few bytes": (b"123", {}, 400),
    "too many bytes": (bytes(8 * 9 * 4 + 4), {}, 400),
    "a fraction": ({"value": 1.5}, {"select": "[0,0]"}, 400),
    "a number out of range": ({"value": 2**31}, {"select": "[0,0]"}, 400),
    "text": ({"value": "abc"}, {"select": "[0,0]"}, 400),
    "null": ({"value": None}, {"select": "[0,0]"}, 400),
    "outside the extent": (bytes(4), {"select": "[8,0]"}, 400),
    "stop beyond the extent": (bytes(4 * 9 * 9), {"select": "[0:9,0:9]"}, 400),
    "wrong rank": (bytes(4), {"select": "[0]"}, 400),
    "malformed select": (bytes(4), {"select": "[0,__import__('os')]"}, 400),
    "step zero": (bytes(4), {"select": "[0:4:0,0]"}, 400),
    "point outside": ({"points": [[0, 99]], "value": [1]}, {}, 400),
    "point of wrong rank": ({"points": [[0]], "value": [1]}, {}, 400),
    "negative point": ({"points": [[0, -1]], "value": [1]}, {}, 400),
    "points that are no numbers": ({"points": [["a", "b"]], "value": [1]}, {}, 400),
    "two selections": ({"points": [[0, 1]], "select": "[0,0]", "value": [1]}, {}, 400),
    "bad base64": ({"value_base64": "???"}, {"select": "[0,0]"}, 400),
    "bad element count": (bytes(4), {"element_count": 3}, 400),
    "append to a fixed dataset": ({"append": 1, "value": [0] * 9}, {}, 400),
    "negative append": ({"append": -1, "value": [0]}, {}, 400),
    "much too long": (bytes(200_001), {}, 400),
    "drop_fill on a dense dataset": (bytes(4), {"select": "[0,0]", "drop_fill": 1}, 400),
    "drop_fill that is no flag": (bytes(4), {"select": "[0,0]", "drop_fill": "maybe"}, 400),
}


@pytest.mark.parametrize("name", BAD_WRITES)
async def test_bad_writes_change_nothing(client: RestClient, name: str) -> None:
    body, query, status = BAD_WRITES[name]
    path = await create(client, [8, 9], "H5T_STD_I32LE", layout={"class": "H5D_CHUNKED", "dims": [4, 4]})
    model = np.arange(72, dtype="<i4").reshape(8, 9)
    assert (await client("PUT", f"{path}/value", model.tobytes())).status == 200
    if isinstance(body, str):
        reply = await client(
            "PUT", f"{path}/value", body.encode(), headers={"Content-Type": "application/json"}
        )
    else:
        reply = await client("PUT", f"{path}/value", body, **query)
    assert reply.status == status, reply.body
    assert set(reply["error"]) == {"kind", "message"}
    assert reply["error"]["message"].endswith((".", "?"))
    np.testing.assert_array_equal(await read(client, path, "<i4", (8, 9)), model)


@pytest.mark.parametrize(
    "select", ["[0:9,0:9]", "[0]", "[a,b]", "0,0", "[0,0", "[[8],0]", "[-1,0]", "[5:2,0]"]
)
async def test_bad_reads_name_what_is_wrong(client: RestClient, select: str) -> None:
    path = await create(client, [8, 9], "H5T_STD_I32LE")
    reply = await client("GET", f"{path}/value", select=select)
    assert reply.status == 400
    assert reply["error"]["message"]


async def test_ids_of_elsewhere(client: RestClient) -> None:
    path = await create(client, [8], "H5T_STD_I32LE")
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
        path = await create(client, [8, 8], "H5T_STD_U8LE", layout={"class": "H5D_CHUNKED", "dims": [8, 8]})
        assert (await client("PUT", f"{path}/value", bytes(range(64)))).status == 200
        store.fail_before("puts")
        reply = await client("PUT", f"{path}/value", bytes(64))
        assert reply.status == 500
        assert (await client("GET", f"{path}/value", accept=BINARY)).body == bytes(range(64))
        assert (await client("PUT", f"{path}/value", bytes(64))).status == 200
        assert (await client("GET", f"{path}/value", accept=BINARY)).body == bytes(64)


async def extent(client: RestClient, path: str) -> Any:
    return (await client("GET", f"{path}/shape"))["shape"]["dims"]


@pytest.mark.parametrize("layout", [LAYOUTS["contiguous"], {"layout": sparse(4)}])
async def test_what_cannot_be_appended_does_not_grow_the_dataset(
    client: RestClient, layout: dict[str, Any]
) -> None:
    path = await create(client, [3], "H5T_STD_I32LE", maxdims=["H5S_UNLIMITED"], **layout)
    for body in ({"append": 2, "value": [1, 2, 3]}, {"append": 2, "value": ["x", 1]}, {"append": 2}):
        assert (await client("PUT", f"{path}/value", body)).status == 400
    assert (await client("PUT", f"{path}/value", b"abc", append=2)).status == 400
    for count in (2**63 - 1, 2**63 - 3, 2**64 - 1):
        assert (await client("PUT", f"{path}/value", {"append": count, "value": 1})).status in (400, 413)
    assert await extent(client, path) == [3]


async def test_some_fields_with_drop_fill_do_not_grow_the_dataset(client: RestClient) -> None:
    fields = [{"name": name, "type": "H5T_STD_I32LE"} for name in "ab"]
    item = {"class": "H5T_COMPOUND", "fields": fields}
    path = await create(client, [3], item, maxdims=["H5S_UNLIMITED"], layout=sparse(4))
    for extra in ({}, {"append": 2}):
        body = {"value": [[1], [2]], "fields": "a"} | extra
        reply = await client("PUT", f"{path}/value", body, drop_fill=1)
        assert (reply.status, reply["error"]["message"]) == (
            400,
            "drop_fill is about whole elements; leave out fields.",
        )
    assert await extent(client, path) == [3]
    body = {"append": 2, "value": [[1, 0], [0, 0]], "fields": "a:b"}  # all, so whole elements
    assert (await client("PUT", f"{path}/value", body, drop_fill=1)).status == 200
    assert (await client("GET", f"{path}/defined", count_only=1))["count"] == 1


async def test_one_value_for_too_much_is_refused(client: RestClient) -> None:
    many = await create(client, [2**40], "H5T_STD_I32LE", layout=sparse(1))
    assert (await client("PUT", f"{many}/value", {"value": 1})).status == 413
    large = await create(client, [2**32 - 1], "H5T_STD_I32LE", layout=sparse(2**32 - 1))
    assert (await client("PUT", f"{large}/value", {"value": 1})).status == 413
    assert (await client("GET", f"{large}/defined", count_only=1))["count"] == 0


async def test_a_number_of_a_thousand_digits(client: RestClient) -> None:
    path = await create(client, [3], "H5T_STD_I32LE")
    reply = await client("PUT", f"{path}/value", bytes(12), element_count="9" * 5000)
    assert reply.status == 400


async def test_all_of_a_chunk_in_another_order(client: RestClient) -> None:
    path = await create(client, [2, 2], "H5T_STD_I32LE")
    points = [[1, 1], [0, 1], [0, 0], [1, 0]]
    assert (await client("PUT", f"{path}/value", {"points": points, "value": [1, 2, 3, 4]})).status == 200
    assert (await client("GET", f"{path}/value"))["value"] == [[3, 2], [4, 1]]
    assert (
        await client("PUT", f"{path}/value", {"value": [[1, 2], [3, 4]]}, select="[[0,1],:]")
    ).status == 200
    assert (await client("GET", f"{path}/value"))["value"] == [[1, 2], [3, 4]]


async def test_an_initializer(client: RestClient) -> None:
    """Unwritten elements have its values: read, beside what is written, after a shrink, in many chunks."""
    path = await create(
        client,
        [5000],
        "H5T_STD_I32LE",
        maxdims=[10_000],
        layout={"class": "H5D_CHUNKED", "dims": [256]},
        initializer=["arange", "--start=10", "--step=2"],
        fillValue=7,
    )
    model = 10 + 2 * np.arange(10_000, dtype="<i4")
    np.testing.assert_array_equal(await read(client, path, "<i4", (5000,)), model[:5000])
    assert (await client("PUT", f"{path}/value", {"value": [1, 2, 3]}, select="[300:303]")).status == 200
    written = model.copy()
    written[300:303] = 1, 2, 3
    np.testing.assert_array_equal(await read(client, path, "<i4", (5000,)), written[:5000])
    for extent in (301, 10_000):
        assert (await client("PUT", f"{path}/shape", {"shape": [extent]})).status == 201
    written[301:] = model[301:]
    np.testing.assert_array_equal(await read(client, path, "<i4", (10_000,)), written)
    assert (await client("GET", f"{path}/value", select="[9990:9992]"))["value"] == written[
        9990:9992
    ].tolist()


async def test_an_initializer_in_more_chunks_than_are_looked_for(client: RestClient) -> None:
    settings = replace(SETTINGS, min_chunk_size=4)
    async with value_client(settings=settings) as client:
        layout = {"class": "H5D_CHUNKED", "dims": [2]}
        path = await create(client, [4000], "H5T_IEEE_F64LE", layout=layout, initializer=["arange"])
        np.testing.assert_array_equal(await read(client, path, "<f8", (4000,)), np.arange(4000.0))


@pytest.mark.parametrize("initializer", [["fire"], ["arange", "--stop=1"], 7])
async def test_an_initializer_that_is_not_known(client: RestClient, initializer: object) -> None:
    body = {"type": "H5T_STD_I32LE", "shape": [5], "creationProperties": {"initializer": initializer}}
    assert (await client("POST", "/datasets", body)).status == 400
