"""The density of sparse datasets against numpy: bins, counts, reductions, and counts by chunks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, TooLarge
from hsparse.sn.values import density as density_handlers
from hsparse.sn.values import density as module
from hsparse.sn.values.density import BIN_BYTES, SPREAD_BYTES, Bins, ChunkCounts, Density, spread_size
from tests.sn.conftest import note_holds
from tests.sn.dataset_kinds import F64, I32, sparse
from tests.sn.value_client import ARROW, BINARY, arrow, create, put
from tests.support.rest_client import RestClient

SHAPE = (40, 50)


def chunk_density(bins: Bins, chunk: Any, extent: Any, scaled: np.ndarray, defined: np.ndarray) -> np.ndarray:
    """Count chunks in two pages."""
    found = ChunkCounts(bins, chunk, extent)
    half = len(scaled) // 2
    for part in (slice(half), slice(half, None)):
        found.add(scaled[part], defined[part])
    return found.counts()


@st.composite
def boxes(draw: st.DrawFn) -> tuple[tuple[int, ...], Bins]:
    extent = tuple(draw(st.lists(st.integers(1, 12), min_size=1, max_size=3)))
    start = tuple(draw(st.integers(0, length - 1)) for length in extent)
    stop = tuple(draw(st.integers(first + 1, length)) for first, length in zip(start, extent, strict=True))
    return extent, Bins(start, stop, tuple(draw(st.integers(1, 5)) for _ in extent))


def by_hand(array: np.ndarray, bins: Bins, reduce: Any) -> np.ndarray:
    """Reduce each bin of an array by itself."""
    result = np.zeros(bins.shape)
    for place in np.ndindex(*bins.shape):
        low = [a + at * w for a, at, w in zip(bins.start, place, bins.width, strict=True)]
        high = [min(b, first + w) for b, first, w in zip(bins.stop, low, bins.width, strict=True)]
        result[place] = reduce(array[tuple(slice(a, b) for a, b in zip(low, high, strict=True))])
    return result


@given(boxes(), st.integers(0, 2**32))
def test_each_bin_has_its_elements(box: tuple[tuple[int, ...], Bins], seed: int) -> None:
    extent, bins = box
    rng = np.random.default_rng(seed)
    values = np.where(rng.random(extent) < 0.4, rng.integers(-9, 9, extent), np.nan)
    inside = tuple(slice(a, b) for a, b in zip(bins.start, bins.stop, strict=True))
    places = [axis + a for axis, a in zip(np.nonzero(~np.isnan(values[inside])), bins.start, strict=True)]
    for reduce, wanted in (("mean", "nanmean"), ("min", "nanmin"), ("max", "nanmax"), ("sum", "nansum")):
        found = Density(bins, reduce)
        half = len(places[0]) // 2
        for part in (slice(half), slice(half, None)):
            columns = [axis[part].astype(np.uint32) for axis in places]
            found.add(columns, values[tuple(axis[part] for axis in places)])
        counts = by_hand(values, bins, lambda part: np.count_nonzero(~np.isnan(part)))
        assert np.array_equal(found.counts.reshape(bins.shape), counts)

        def reduced(part: np.ndarray, name: str = wanted) -> float:
            return getattr(np, name)(part) if not np.isnan(part).all() else np.nan

        np.testing.assert_allclose(found.values().reshape(bins.shape), by_hand(values, bins, reduced))


@given(boxes(), st.integers(0, 2**32))
def test_elements_of_chunks_are_spread_evenly(box: tuple[tuple[int, ...], Bins], seed: int) -> None:
    extent, bins = box
    rng = np.random.default_rng(seed)
    chunk = tuple(int(rng.integers(1, length + 1)) for length in extent)
    counts = tuple(-(-length // one) for length, one in zip(extent, chunk, strict=True))
    first = [a // one for a, one in zip(bins.start, chunk, strict=True)]
    last = [-(-b // one) for b, one in zip(bins.stop, chunk, strict=True)]
    scaled = [
        at for at in np.ndindex(*counts) if all(a <= i < b for i, a, b in zip(at, first, last, strict=True))
    ]
    defined = rng.integers(0, 50, len(scaled))
    even = np.zeros(extent)
    for at, count in zip(scaled, defined, strict=True):
        part = tuple(slice(i * one, (i + 1) * one) for i, one in zip(at, chunk, strict=True))
        even[part] = count / even[part].size
    found = chunk_density(bins, chunk, extent, np.array(scaled, np.uint64), defined)
    np.testing.assert_allclose(found.reshape(bins.shape), by_hand(even, bins, np.sum), atol=1e-9)


def test_chunks_of_a_large_grid_count_where_their_middle_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SPREAD", 10)
    bins = Bins((0, 0), (100, 100), (50, 50))
    scaled = np.array([[0, 0], [9, 9], [9, 0]], np.uint64)
    found = chunk_density(bins, (10, 10), (100, 100), scaled, np.array([5, 7, 1]))
    assert found.tolist() == [5, 0, 1, 7]


def test_bins_across_chunks_take_no_array_of_both() -> None:
    bins = Bins((0, 0), (300, 4_000_000), (1, 4_000_000))
    assert spread_size(bins, (300, 1)) == 0
    found = chunk_density(
        bins, (300, 1), (300, 4_000_000), np.array([[0, 7], [0, 9]], np.uint64), np.array([2, 3])
    )
    assert (found.nonzero()[0].tolist(), found[150]) == ([150], 5)
    assert spread_size(Bins((0, 0), (100, 100), (1, 50)), (50, 10)) == 100 * 10


async def test_memory_of_an_approximate_density_is_held(
    client: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await create(client, list(SHAPE), F64, layout=sparse(1, 16))
    held = note_holds(client.service.answers, monkeypatch)
    assert (await client("GET", f"{path}/density", bin="[40,1]", approximate=1)).status == 200
    assert held == [BIN_BYTES * 50 + SPREAD_BYTES * 40 * 50]


@pytest.mark.parametrize(
    ("select", "bin"),
    [
        ("[0:4:2,:]", None),
        ("[[1,3],:]", None),
        ("[:]", None),
        (None, "[0,1]"),
        (None, "[2]"),
        (None, "[2,x]"),
    ],
)
def test_what_is_no_box_or_no_bin_is_refused(select: str | None, bin: str | None) -> None:
    with pytest.raises(BadRequest):
        Bins.parse(select, bin, SHAPE)


def test_too_many_bins_are_refused() -> None:
    with pytest.raises(TooLarge, match="wider"):
        Bins.parse(None, None, (10_000, 10_000))
    assert Bins.parse(None, "[100,100]", (10_000, 10_001)).shape == (100, 101)


async def test_over_http(client: RestClient) -> None:
    path = await create(client, list(SHAPE), F64, fillValue=-1.0, layout=sparse(16, 16))
    rng = np.random.default_rng(7)
    model = np.where(rng.random(SHAPE) < 0.3, rng.random(SHAPE), np.nan)
    coords = np.argwhere(~np.isnan(model))
    body = arrow(coords, model[tuple(coords.T)])
    await put(client, path, body, headers=ARROW)
    bins = Bins((3, 5), (40, 41), (4, 5))
    query = {"select": "[3:40,5:41]", "bin": "[4,5]"}
    counts = by_hand(model, bins, lambda part: np.count_nonzero(~np.isnan(part)))
    reply = await client("GET", f"{path}/density", **query)
    assert reply.body == {"shape": [10, 8], "bin": [4, 5], "count": counts.tolist()}
    binary = await client("GET", f"{path}/density", reduce="max", accept=BINARY, **query)
    found = np.frombuffer(binary.body, "<f4").reshape(2, 10, 8)
    assert np.array_equal(found[0], counts)
    wanted = by_hand(np.where(np.isnan(model), -np.inf, model), bins, np.max)
    np.testing.assert_allclose(found[1], np.where(counts > 0, wanted, np.nan), rtol=1e-6)
    about = await client("GET", f"{path}/density", approximate=1)
    assert np.isclose(np.sum(about["count"]), len(coords))
    nothing = await client("GET", f"{path}/density", select="[4:4,:]", approximate=1)
    assert nothing.body == {"shape": [0, 50], "bin": [1, 1], "count": []}


@pytest.mark.parametrize("accept", ["application/json", BINARY])
async def test_chunks_come_page_by_page(
    client: RestClient, accept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(density_handlers, "CHUNKS_AT_ONCE", 2)
    path = await create(client, list(SHAPE), F64, layout=sparse(8, 8))
    coords = np.argwhere(np.random.default_rng(7).random(SHAPE) < 0.3)
    body = arrow(coords, np.ones(len(coords)))
    await put(client, path, body, headers=ARROW)

    async def ask(**query: Any) -> tuple[np.ndarray, str | None]:
        reply = await client("GET", f"{path}/density", bin="[5,5]", approximate=1, accept=accept, **query)
        if accept == BINARY:
            return np.frombuffer(reply.body, "<f4").reshape(8, 10), reply.headers.get("X-Hdf-marker")
        return np.array(reply["count"]), reply.body.get("marker")

    whole, end = await ask()
    assert (end, round(whole.sum())) == (None, len(coords))
    total, marker, pages = np.zeros((8, 10)), "", 0
    while marker is not None:
        part, marker = await ask(Limit=5, **({"Marker": marker} if marker else {}))
        total, pages = total + part, pages + 1
    assert pages == 7
    np.testing.assert_allclose(total, whole, rtol=1e-5)


@pytest.mark.parametrize("query", [{"Limit": 3}, {"Marker": "1_1"}, {"Marker": "1", "approximate": 1}])
async def test_a_page_of_nothing(client: RestClient, query: dict[str, Any]) -> None:
    path = await create(client, [4, 4], I32, layout=sparse(2, 2))
    assert (await client("GET", f"{path}/density", **query)).status == 400


async def test_a_marker_is_a_name_of_a_chunk_as_elsewhere(client: RestClient) -> None:
    path = await create(client, [4, 4], I32, layout=sparse(2, 2))
    asked: dict[str, Any] = {"approximate": 1, "marker": (last := f"{2**63 - 1}_0"), "Marker": last}
    assert (await client("GET", f"{path}/chunks", **asked)).status == 200
    after = await client("GET", f"{path}/density", **asked)
    assert (after.status, np.sum(after["count"])) == (200, 0)
    for wrong in ("1", f"{2**63}_0", "x_0"):
        replies = [
            await client("GET", f"{path}/{route}", **asked | {"marker": wrong, "Marker": wrong})
            for route in ("chunks", "density")
        ]
        assert [reply.status for reply in replies] == [400, 400]
        assert replies[0]["error"] == replies[1]["error"]


async def test_what_has_no_density(client: RestClient) -> None:
    dense = await create(client, [4], I32)
    assert (await client("GET", f"{dense}/density")).status == 400
    text = {"class": "H5T_STRING", "length": 4, "charSet": "H5T_CSET_ASCII", "strPad": "H5T_STR_NULLPAD"}
    words = await create(client, [4, 4], text, layout=sparse(2, 2))
    assert (await client("GET", f"{words}/density")).body["count"] == np.zeros((4, 4)).tolist()
    assert (await client("GET", f"{words}/density", reduce="mean")).status == 400
    numbers = await create(client, [4, 4], I32, layout=sparse(2, 2))
    for query in ({"reduce": "mode"}, {"reduce": "mean", "approximate": 1}):
        assert (await client("GET", f"{numbers}/density", **query)).status == 400
