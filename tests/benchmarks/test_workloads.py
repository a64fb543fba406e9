"""Every generator, small: distinct points in row-major order, inside the extent, the same each time."""

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from benchmarks.workloads.case import SparseCase
from benchmarks.workloads.dense import CHUNK, dense
from benchmarks.workloads.files import files
from benchmarks.workloads.lcls_points import lcls_points
from benchmarks.workloads.lcls_roi import lcls_roi
from benchmarks.workloads.metadata import metadata
from benchmarks.workloads.points import dense_rows
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
