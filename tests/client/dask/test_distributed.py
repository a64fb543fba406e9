"""Sparse blocks on dask's schedulers: what leaves a process has its fill value."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest
import sparse

import hsparse
from hsparse.client.sparse.coo_serialization import whole_array

distributed = pytest.importorskip("distributed", reason="distributed is not installed")
SHAPE = (16, 10)
"""Of blocks of 4 x 5, so that partial sums have the same fill value: sparse concatenates no others."""
FILLS = {"zero": 0.0, "below zero": -1.0, "no number": np.nan}
CALCULATIONS: dict[str, Callable[[Any], Any]] = {
    "all": lambda x: x,
    "sum": lambda x: x.sum(),
    "sum of columns": lambda x: x.sum(axis=0),
    "mean": lambda x: x.mean(axis=1),
    "max": lambda x: x.max(),
    "without an element": lambda x: x[5:7, 2:4],
    "over blocks": lambda x: x[3:11, ::3],
    "another fill value": lambda x: (x + 3)[:, 4],
    "transposed": lambda x: (2 * x).T[1],
    "joined": lambda x: np.concatenate([x, x + 0]).min(axis=1),
}


@pytest.fixture(scope="module")
def file(url: str) -> Iterator[hsparse.File]:
    found = hsparse.open(f"{url}/distributed.h5", "w")
    assert isinstance(found, hsparse.File)
    with found:
        for name, fill in FILLS.items():
            made = found.create_sparse(name, SHAPE, "f8", (4, 5), fillvalue=fill)
            made.write([[0, 0], [3, 4], [11, 9]], [7, 0, 2])
        yield found


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A client of two processes, each with a thread: a sum needs blocks of both."""
    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        warnings.catch_warnings(),
        distributed.LocalCluster(processes=True, **options) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as made:
        yield made


@pytest.mark.parametrize("calculation", CALCULATIONS)
@pytest.mark.parametrize("name", FILLS)
@pytest.mark.parametrize("scheduler", ["threads", "processes", "distributed"])
def test_every_scheduler_gives_what_numpy_gives(
    file: hsparse.File, request: pytest.FixtureRequest, scheduler: str, name: str, calculation: str
) -> None:
    dataset, calculate = file[name], CALCULATIONS[calculation]
    array = calculate(dataset.to_dask(chunks=(4, 5)))
    if scheduler == "distributed":
        found = request.getfixturevalue("cluster").compute(array).result()
    else:
        options = {"pool": request.getfixturevalue("pool")} if scheduler == "processes" else {}
        found = array.compute(scheduler=scheduler, **options)
    found = found.todense() if isinstance(found, sparse.COO) else found
    np.testing.assert_allclose(found, calculate(dataset.read_dense()))


def negative_after_a_journey(header: Any, frames: list[bytes]) -> Any:
    """Read an array as a worker that has imported nothing of hsparse, and send what is made of it."""
    from distributed.protocol import deserialize, serialize

    header, frames = serialize(-deserialize(header, frames))
    return header, [bytes(one) for one in frames]


@pytest.mark.parametrize("fill", [2, -0.5, np.nan, True, 1 + 2j], ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (4, 5, 6)], ids=str)
def test_what_a_worker_has_received_is_sent_on_whole(shape: tuple[int, ...], fill: Any) -> None:
    protocol = distributed.protocol
    nothing = np.zeros((len(shape), 0), np.intp), np.zeros(0, np.result_type(fill, np.int8))
    array = whole_array(*nothing, shape, nothing[1].dtype.type(fill))  # as a worker receives it
    header, frames = protocol.serialize(array)
    frames = [bytes(one) for one in frames]
    found = protocol.deserialize(header, frames)
    assert (found.dtype, found.shape) == (array.dtype, shape)
    np.testing.assert_equal(found.fill_value, array.fill_value)


def test_a_worker_learns_it_from_the_first_array(pool: ProcessPoolExecutor) -> None:
    array = whole_array(np.array([[1], [2]]), np.array([5.0]), (3, 4), -1.0)
    header, frames = distributed.protocol.serialize(array)
    answer = pool.submit(negative_after_a_journey, header, [bytes(one) for one in frames])
    found = distributed.protocol.deserialize(*answer.result())
    np.testing.assert_array_equal(found.todense(), -array.todense())
