"""The workloads, and the points, layouts and requests that they are made of."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import nanoarrow as na
import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st
from nanoarrow import c_array_from_buffers, ipc
from nanoarrow.c_array_stream import CArrayStream

from benchmarks import arrow
from benchmarks import rest as module
from benchmarks.rest import BINARY, Rest, UnexpectedAnswer, select
from benchmarks.trials import layout
from benchmarks.workloads.case import SparseCase
from benchmarks.workloads.dense import CHUNK, dense
from benchmarks.workloads.files import files
from benchmarks.workloads.lcls_points import lcls_points
from benchmarks.workloads.lcls_roi import lcls_roi
from benchmarks.workloads.metadata import metadata
from benchmarks.workloads.points import PointData, dense_rows, from_offsets
from benchmarks.workloads.rfc_table import PATTERNS, PERCENTS, rfc_table
from benchmarks.workloads.single_cell import DENSITY, gene_shares, single_cell
from benchmarks.workloads.uniform import uniform

SMALL: dict[str, Callable[[], SparseCase]] = {
    "lcls-points": lambda: lcls_points(8),
    "lcls-roi": lambda: lcls_roi(4),
    "uniform": lambda: uniform(10_000, 1_000),
    "single-cell": lambda: single_cell(500, 400),
    "random": lambda: rfc_table("random points", 10),
    "rectangle": lambda: rfc_table("one rectangle", 10),
    "runs": lambda: rfc_table("one run a row", 10),
}


@pytest.fixture(params=SMALL)
def case(request: pytest.FixtureRequest) -> SparseCase:
    return SMALL[request.param]()


def test_points_are_distinct_in_order_and_inside(case: SparseCase) -> None:
    offsets = np.ravel_multi_index(tuple(c.astype(np.int64) for c in case.points.coords), case.extent)
    assert (np.diff(offsets) > 0).all()
    assert len(offsets) > 0
    assert (case.points.values != 0).all()  # undefined and zero must not look alike in the dense dataset


def test_the_same_seed_gives_the_same_points(case: SparseCase, request: pytest.FixtureRequest) -> None:
    again = SMALL[request.node.callspec.params["case"]]()
    assert np.array_equal(case.points.values, again.points.values)
    assert all(map(np.array_equal, case.points.coords, again.points.coords))


def test_chunks_and_boxes_fit(case: SparseCase) -> None:
    for start, stop in case.boxes:
        assert all(0 <= a < b <= e for a, b, e in zip(start, stop, case.extent, strict=True))
    if case.dense_chunk is not None:
        assert np.prod(case.dense_chunk) * case.dtype.itemsize <= 8 * 2**20


def test_a_frame_has_75_peaks_of_5_to_10_pixels() -> None:
    case = lcls_points(8)
    for frame in range(8):
        image = dense_rows(case.points, case.extent, frame, frame + 1)[0] > 0
        assert 75 * 5 * 0.9 <= image.sum() <= 75 * 10
        padded = np.pad(image.astype(np.int8), ((0, 0), (1, 1)))
        assert (np.diff(padded, axis=1) == 1).sum() <= 75


def test_a_region_of_interest_is_a_tenth_of_its_frame_and_every_100th_frame_is_whole() -> None:
    case = lcls_roi(101)
    sizes = np.bincount(case.points.coords[0].astype(np.int64))
    area = 1024 * 1024
    assert sizes[0] == sizes[100] == area
    assert ((sizes[1:100] > 0.099 * area) & (sizes[1:100] <= 0.1 * area)).all()
    band = case.points.rows(1, 2)
    top, left = (int(column.min()) for column in band.coords[1:])
    bottom, right = (int(column.max()) + 1 for column in band.coords[1:])
    assert (bottom - top) * (right - left) == len(band)


def test_uniform_has_as_many_points_as_asked() -> None:
    assert len(uniform(10_000, 1_000).points) == 10_000


def test_popular_genes_are_far_denser() -> None:
    shares = np.sort(gene_shares(20_000))
    assert shares.mean() == pytest.approx(DENSITY, rel=1e-3)
    assert shares[-1] > 10 * shares[len(shares) // 2]
    assert shares[-1] <= 0.95


@pytest.mark.parametrize("percent", PERCENTS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_of_the_table_has_its_share(pattern: str, percent: int) -> None:
    assert len(rfc_table(pattern, percent).points) == pytest.approx(1024 * 1024 * percent / 100, rel=0.05)


def test_dense_requests_cover_the_array_once() -> None:
    case = dense(1024, 1024)
    assert (np.prod(CHUNK) * 8) == 2 * 2**20
    for boxes in (case.bands(), case.chunks()):
        seen = np.zeros(case.extent, dtype=np.uint8)
        for (top, left), (bottom, right) in boxes:
            seen[top:bottom, left:right] += 1
        assert (seen == 1).all()
    scattered = case.scattered(500)
    assert (scattered.shape, scattered.dtype) == ((500, 2), np.uint64)
    assert (scattered.max(axis=0) < case.extent).all()
    coords = case.coordinates(2)[1]
    assert coords.shape == (10_000, 2)
    assert len(np.unique(coords, axis=0)) == 10_000


def test_a_dataset_of_metadata_is_linked() -> None:
    assert metadata(quick=True).dataset("g-1", "d7")["link"] == {"id": "g-1", "name": "d7"}


def test_files_have_about_the_bytes_they_are_asked_for(tmp_path: Path) -> None:
    for case in files(quick=True):
        path = tmp_path / f"{case.name}.h5"
        case.make(path, case.size)
        with h5py.File(path) as file:
            found = file["X"]
            if isinstance(found, h5py.Dataset):
                size = found.size * found.dtype.itemsize
            else:
                shape = found.attrs["shape"]
                size = 5 * int(np.prod(shape))
                assert found["indices"].shape == found["data"].shape == (found["indptr"][-1],)
                assert len(found["indptr"]) == shape[0] + 1
            assert 0.5 * case.size < size <= case.size


@st.composite
def cases(draw: st.DrawFn) -> tuple[PointData, tuple[int, ...], np.ndarray]:
    extent = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    size = int(np.prod(extent))
    offsets = np.array(sorted(draw(st.sets(st.integers(0, size - 1)))), dtype=np.int64)
    values = np.arange(1, len(offsets) + 1, dtype=np.uint16)
    dense = np.zeros(size, dtype=np.uint16)
    dense[offsets] = values
    return from_offsets(offsets, extent, values), extent, dense.reshape(extent)


@given(cases(), st.data())
def test_dense_rows_are_the_rows_of_the_dense_array(case: tuple, data: st.DataObject) -> None:
    points, extent, dense = case
    start = data.draw(st.integers(0, extent[0]))
    stop = data.draw(st.integers(start, extent[0]))
    assert np.array_equal(dense_rows(points, extent, start, stop), dense[start:stop])
    assert len(points.rows(start, stop)) == np.count_nonzero(dense[start:stop])
    moved = points.rows(start, stop).from_row(start)
    assert np.array_equal(dense_rows(moved, (stop - start, *extent[1:]), 0, stop - start), dense[start:stop])


@given(cases(), st.data())
def test_points_inside_a_box_are_the_defined_elements_of_its_slice(case: tuple, data: st.DataObject) -> None:
    points, extent, dense = case
    start = tuple(data.draw(st.integers(0, size)) for size in extent)
    stop = tuple(data.draw(st.integers(low, size)) for low, size in zip(start, extent, strict=True))
    piece = dense[tuple(slice(a, b) for a, b in zip(start, stop, strict=True))]
    inside = points.inside(start, stop)
    assert np.array_equal(inside.values, piece[piece > 0])
    assert inside.total() == piece.sum()
    for column, low, places in zip(inside.coords, start, np.nonzero(piece), strict=True):
        assert np.array_equal(column, places + low)


def test_a_sparse_dataset_filters_each_section_and_can_grow() -> None:
    body = layout.sparse(lcls_points(4), rows=0)
    properties = body["creationProperties"]
    assert properties["layout"] == {
        "class": "H5D_STRUCT_CHUNK",
        "dims": [16, 512, 512],
        "flags": ["H5D_SPARSE_DATA"],
    }
    sections = [(each["section"], each["class"]) for each in properties["filters"]]
    assert sections == [
        ("H5_SECTION_SELECTION", "H5Z_FILTER_SHUFFLE"),
        ("H5_SECTION_SELECTION", "H5Z_FILTER_USER"),
        ("H5_SECTION_FIXED", "H5Z_FILTER_SHUFFLE"),
        ("H5_SECTION_FIXED", "H5Z_FILTER_USER"),
    ]
    assert body["shape"] == [0, 1024, 1024]
    assert body["maxdims"] == ["H5S_UNLIMITED", 1024, 1024]


def test_bytes_are_not_shuffled() -> None:
    filters = layout.sparse(rfc_table("one rectangle", 1), codec=layout.GZIP)["creationProperties"]["filters"]
    assert [(each["section"], each["id"]) for each in filters] == [
        ("H5_SECTION_SELECTION", 2),
        ("H5_SECTION_SELECTION", 1),
        ("H5_SECTION_FIXED", 1),
    ]


def test_a_dense_dataset_has_shuffle_and_gzip() -> None:
    body = layout.dense(lcls_points(4))
    assert body["shape"] == [4, 1024, 1024]
    assert [each["id"] for each in body["creationProperties"]["filters"]] == [2, 1]
    with pytest.raises(ValueError, match="too large"):
        layout.dense(uniform(10, 100))


@dataclass
class Script:
    """Statuses to answer, then 200 for ever; and the requests that came."""

    statuses: list[int] = field(default_factory=list)
    seen: list[web.Request] = field(default_factory=list)
    body: bytes = b"{}"

    async def answer(self, request: web.Request) -> web.Response:
        await request.read()
        self.seen.append(request)
        status = self.statuses.pop(0) if self.statuses else 200
        return web.Response(status=status, body=self.body)


@pytest.fixture
async def script(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Script, Rest]]:
    monkeypatch.setattr(module, "BACKOFF", 0.0)
    script = Script()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", script.answer)
    async with TestServer(app) as server, Rest("it", str(server.make_url("/")), ("user", "word")) as rest:
        yield script, rest


async def test_a_5xx_is_sent_again_and_counted(script: tuple[Script, Rest]) -> None:
    server, rest = script
    server.statuses = [503, 500]
    assert await rest.send("GET", "/x") == b"{}"
    assert rest.refused == 2


async def test_a_server_that_stays_busy_is_a_failure(script: tuple[Script, Rest]) -> None:
    server, rest = script
    server.statuses = [503] * module.RETRIES
    with pytest.raises(UnexpectedAnswer, match="it: GET /x answered 503"):
        await rest.send("GET", "/x")
    assert len(server.seen) == module.RETRIES


@pytest.mark.parametrize("status", [400, 404, 410])
async def test_other_errors_are_not_tried_again(script: tuple[Script, Rest], status: int) -> None:
    server, rest = script
    server.statuses = [status]
    with pytest.raises(UnexpectedAnswer, match=str(status)):
        await rest.send("PUT", "/x", b"body")
    assert len(server.seen) == 1


async def test_a_domain_makes_its_folders_and_goes_with_every_request(script: tuple[Script, Rest]) -> None:
    server, rest = script
    server.statuses = [409, 201]
    server.body = b'{"root": "g-1"}'
    await rest.domain("/home/bench/run1")
    assert rest.root == "g-1"
    await rest.flush()
    domains = [request.headers["X-Hdf-domain"] for request in server.seen]
    assert domains == ["/home", "/home/bench", "/home/bench/run1", "/home/bench/run1"]
    assert all(request.headers["Authorization"] == "Basic dXNlcjp3b3Jk" for request in server.seen)


async def test_values_are_read_as_the_box_is_shaped(script: tuple[Script, Rest]) -> None:
    server, rest = script
    server.body = np.arange(6, dtype="<u2").tobytes()
    found = await rest.read("d-1", ((4, 0), (6, 3)), np.dtype("<u2"))
    assert found.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert server.seen[0].query["select"] == "[4:6,0:3]"
    assert server.seen[0].headers["Accept"] == BINARY


async def test_growing_tells_where_the_new_rows_begin(script: tuple[Script, Rest]) -> None:
    server, rest = script
    server.body = b'{"selection": "[20:25]"}'
    assert await rest.extend("d-1", 5) == 20


async def test_an_append_is_one_request(script: tuple[Script, Rest]) -> None:
    server, rest = script
    await rest.append_points("d-1", b"points", 5)
    (request,) = server.seen
    assert (request.method, request.path, request.query["append"]) == ("PUT", "/datasets/d-1/value", "5")


async def test_a_stream_is_passed_on_in_pieces(script: tuple[Script, Rest]) -> None:
    server, rest = script
    server.body = bytes(range(256)) * 4096
    pieces = [piece async for piece in rest.stream("/x", BINARY)]
    assert b"".join(pieces) == server.body
    server.statuses = [500]
    with pytest.raises(UnexpectedAnswer, match="500"):
        _ = [piece async for piece in rest.stream("/x", BINARY)]


def test_boxes_in_the_selection_syntax() -> None:
    assert select(((0, 5, 7), (1, 6, 9))) == "[0:1,5:6,7:9]"


@given(st.integers(1, 4), st.integers(0, 50), st.sampled_from(sorted(arrow.TYPES)))
def test_what_is_encoded_decodes_to_the_same_columns(rank: int, count: int, dtype: str) -> None:
    rng = np.random.default_rng(count)
    coords = tuple(rng.integers(0, 2**40, count).astype(np.uint64) for _ in range(rank))
    points = PointData(coords, rng.integers(0, 200, count).astype(dtype))
    found = arrow.decode(arrow.encode(points))
    assert len(found.coords) == rank
    assert found.values.dtype == points.values.dtype
    for ours, theirs in zip((*points.coords, points.values), (*found.coords, found.values), strict=True):
        assert np.array_equal(ours, theirs)


def test_columns_of_several_batches_are_joined() -> None:
    out = io.BytesIO()
    schema = na.struct({"dim_0": na.uint64(), "value": na.float64()})
    with ipc.StreamWriter.from_writable(out) as writer:
        pieces = []
        for start in (0, 3):
            column = np.arange(start, start + 3, dtype=np.uint64)
            children = [
                c_array_from_buffers(na.uint64(), 3, [None, column]),
                c_array_from_buffers(na.float64(), 3, [None, column / 2]),
            ]
            pieces.append(c_array_from_buffers(schema, 3, [None], children=children))
        writer.write_stream(CArrayStream.from_c_arrays(pieces, na.c_schema(schema)))
    found = arrow.decode(out.getvalue())
    assert found.coords[0].tolist() == [0, 1, 2, 3, 4, 5]
    assert found.values.tolist() == [0, 0.5, 1, 1.5, 2, 2.5]


def test_a_stream_without_values_is_refused() -> None:
    stream = arrow.encode(PointData((), np.arange(3, dtype=np.uint8))).replace(b"value", b"valve")
    with pytest.raises(ValueError, match="value"):
        arrow.decode(stream)
