"""Reductions: at the server and in the client, beside numpy and scipy, and each other."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hsparse.client import block_reduction
from hsparse.client.block_reduction import Block, BlockReduction
from hsparse.client.dense_dataset import DenseDataset
from hsparse.client.errors import InvalidValue, MissingKey, NotImplementedHere, ResultTooLarge
from hsparse.client.file import File
from hsparse.client.reductions import ReducedDataset
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.errors import HsparseError
from hsparse.format.selections.orthogonal import StridedSpan, indices
from tests.client.access_ways import DatasetAccess, Model, open_file
from tests.client.scripted_server import answer, scripted

OPERATIONS = ("count", "nnz", "sum", "mean", "var", "min", "max")
COUNTED = itertools.count()
DTYPES = ["i1", ">i8", "u8", "f4", ">f8", "?", "f2"]


@pytest.fixture(scope="module")
def shared(url: str) -> File:
    return open_file(f"{url}/block-reductions.h5", "w")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_reduction, "BLOCK_BYTES", 128)


def in_both_ways(dataset: Any, *operations: Any, **options: Any) -> tuple[Any, Any]:
    """Return what a reduction is at the server, and here: a dict, or the class of an error."""
    found: list[Any] = []
    for dataset._reduces_here in (False, True):
        try:
            found.append(dataset.reduce(*operations, **options))
        except HsparseError as error:
            found.append(type(error))
    dataset._reduces_here = False
    return found[0], found[1]


def assert_same(found: Any, wanted: Any) -> None:
    if isinstance(wanted, type):
        assert found == wanted
        return
    assert list(found) == list(wanted)
    for name, values in wanted.items():
        assert (found[name].dtype, found[name].shape) == (values.dtype, values.shape)
        if values.dtype.kind == "f":  # the order of additions may differ
            np.testing.assert_allclose(found[name], values, rtol=1e-12, atol=1e-12)
        else:
            assert np.array_equal(found[name], values)


@st.composite
def cases(draw: Any) -> tuple[Model, tuple[int, ...], dict[str, Any]]:
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    dtype = draw(st.sampled_from(DTYPES))
    fill = draw(st.sampled_from([0, 0, 1]))
    model = Model.random(shape, dtype, draw(st.integers(0, 99)), fill)
    chunks = tuple(draw(st.integers(1, length)) for length in shape)
    axes = draw(st.none() | st.sets(st.integers(0, len(shape) - 1), min_size=1).map(tuple))
    items = [
        draw(
            st.just(slice(None))
            | st.slices(length)
            | st.lists(st.integers(0, length - 1), min_size=1, unique=True)
        )
        for length in shape
    ]
    options: dict[str, Any] = {
        "axis": axes,
        "select": tuple(items),
        "undefined": draw(st.sampled_from(["skip", "fill"])),
        "ddof": draw(st.integers(0, 1)),
    }
    if axes is not None and draw(st.booleans()):
        labels = st.sampled_from(["a", "b", None]) if draw(st.booleans()) else st.integers(0, 3)
        options["by"] = draw(st.lists(labels, min_size=shape[axes[0]], max_size=shape[axes[0]]))
    return model, chunks, options


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cases(), st.booleans())
def test_both_ways_give_the_same(
    shared: File, case: tuple[Model, tuple[int, ...], dict[str, Any]], dense: bool
) -> None:
    model, chunks, options = case
    if sum(isinstance(item, list) for item in options["select"]) > 1:  # else they would be paired
        options["select"] = tuple(slice(None) for _ in options["select"])
    path, shape, dtype = f"/{next(COUNTED)}", model.values.shape, model.values.dtype
    dataset: Any
    if dense:
        dataset = shared.create_dataset(path, data=model.values, chunks=chunks)
    else:
        dataset = shared.create_sparse(path, shape, dtype, chunks, fillvalue=model.fill_value)
        dataset.write(np.argwhere(model.is_defined), model.values[model.is_defined])
    operations = OPERATIONS if "by" in options else OPERATIONS[::-1]
    served, own = in_both_ways(dataset, *operations, **options)
    assert isinstance(served, dict)
    assert_same(own, served)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    dtype=st.sampled_from(["i1", "i2", ">i4", "u2", "u8", "f4", ">f8", "?"]),
    fill=st.sampled_from([0, 1]),
    axis=st.sampled_from([None, 0, 1, -1, (0, 1)]),
    seed=st.integers(0, 99),
    here=st.booleans(),
)
def test_the_methods_are_those_of_scipy(
    shared: File, dtype: str, fill: int, axis: Any, seed: int, here: bool
) -> None:
    model = Model.random((9, 6), dtype, seed, fill)
    x: Any = shared.create_sparse(f"/{next(COUNTED)}", (9, 6), dtype, (4, 3), fillvalue=fill)
    x.write(np.argwhere(model.is_defined), model.values[model.is_defined])
    y: Any = shared.create_dataset(f"/{next(COUNTED)}", data=model.values, chunks=(4, 3))
    native = model.values.astype(model.values.dtype.newbyteorder("="))
    matrix = sp.csr_array(native)
    x._reduces_here = y._reduces_here = here
    for dataset in (x, y):
        for name in ("sum", "mean", "min", "max", "var"):
            found, wanted = getattr(dataset, name)(axis), getattr(native, name)(axis)
            np.testing.assert_allclose(found, wanted, rtol=1e-6 if dtype == "f4" else 1e-12)
            assert (np.shape(found), found.dtype) == (np.shape(wanted), wanted.dtype)
        of_matrix = matrix.sum(axis=None if axis == (0, 1) else axis)
        np.testing.assert_allclose(dataset.sum(axis), of_matrix, rtol=1e-6)
        with pytest.raises(ValueError, match="name an axis"):
            dataset.reduce("sum", axis=())
    assert np.array_equal(x.count(axis=axis), model.is_defined.sum(axis=axis))


def test_sums_of_integers_are_exact(shared: File) -> None:
    values = np.full(40, 2**61 + 1)
    values[::2] *= -1
    values[0] = 5
    x = shared.create_dataset("exact", data=values, chunks=(4,))
    served, own = in_both_ways(x, "sum")
    assert own["sum"] == served["sum"] == sum(values.tolist())
    y = shared.create_dataset("too large", data=np.full(40, 2**61), chunks=(4,))
    assert in_both_ways(y, "sum") == (InvalidValue, InvalidValue)
    assert in_both_ways(y, "mean")[1]["mean"] == 2.0**61


def test_a_scalar_compounds_and_text(shared: File) -> None:
    scalar = shared.create_dataset("scalar", data=np.float32(2.5))
    pairs = shared.create_dataset("pairs", data=np.array([(1, 2.0), (3, 4.0)], [("n", ">i4"), ("x", "f8")]))
    texts = shared.create_dataset("text", data=np.array(["a", "b", "c"], object))
    none = shared.create_sparse("none", (0, 4), "f4", (2, 2), maxshape=(None, 4))
    cases: list[tuple[Any, tuple[str, ...], dict[str, Any]]] = [
        (scalar, ("sum", "max"), {}),
        (pairs, ("mean", "max"), {"field": "n"}),
        (pairs, ("sum",), {}),
        (pairs, ("sum",), {"field": "y"}),
        (texts, ("count",), {}),
        (texts, ("sum",), {}),
        (none, OPERATIONS, {"axis": 0}),
        (scalar, ("median",), {}),
        (scalar, ("var",), {"ddof": 2}),
    ]
    for dataset, operations, options in cases:
        served, own = in_both_ways(dataset, *operations, **options)
        assert_same(own, served)


def test_labels_of_the_domain(shared: File) -> None:
    x = shared.create_sparse("labelled", (6, 3), "i4", (2, 2))
    x.write([[0, 0], [1, 1], [3, 2], [5, 0]], [1, 2, 3, 4])
    shared.create_dataset("obs/batch", data=np.array([7, 8, 7, 8, 9, 9]))
    shared.create_dataset("obs/score", data=np.array([0.5, np.nan, 0.5, 1, 1, 1]))
    shared.create_dataset("obs/name", data=np.array(list("babaab"), object))
    shared.create_dataset("obs/fixed", data=np.array(list("babaab"), "S1"))
    kind = shared.create_group("obs/kind")
    kind["codes"] = np.array([0, 1, -1, 0, 1, 1], "i1")
    kind["categories"] = np.array(["T", "B"], object)
    other = shared.create_group("obs/other")
    paths = ["/obs/batch", "/obs/score", "/obs/name", "/obs/fixed", "/obs/kind", kind["codes"].id]
    for by in (*paths, "/labelled", "/obs/none", "/obs/other", [1, 2], ["a", 1] * 3):
        served, own = in_both_ways(x, "sum", "count", axis=0, by=by, undefined="skip")
        assert_same(own, served)
        assert isinstance(own, type) == (by not in paths)
    other["codes"] = np.full(6, 5, "i1")
    other["categories"] = np.array(["T"], object)
    assert in_both_ways(x, "sum", axis=0, by="/obs/other") == (InvalidValue, InvalidValue)


@pytest.mark.parametrize("density", [0.02, 0.5])
def test_blocks_are_small(shared: File, monkeypatch: pytest.MonkeyPatch, density: float) -> None:
    """Each block has at most twice the bytes of a block, also where the dataset is denser than elsewhere."""
    monkeypatch.setattr(block_reduction, "BLOCK_BYTES", 4000)
    x = shared.create_sparse(f"/{next(COUNTED)}", (300, 200), "f4", (20, 200))
    matrix = sp.random_array((300, 200), density=density, dtype=np.float32, rng=1, format="csr").toarray()
    matrix[200:220] = 1
    matrix[:100] = 0
    x.write(np.argwhere(matrix), matrix[matrix != 0])
    x.max_bytes, x._reduces_here, sizes = 20_000, True, []
    read = x.source.defined_elements

    def note(selection: Any) -> Any:
        found = read(selection)
        sizes.append(len(found) * 20)
        return found

    monkeypatch.setattr(x.source, "defined_elements", note)
    np.testing.assert_allclose(x.sum(axis=0), matrix.sum(axis=0), rtol=1e-6)
    assert max(sizes) <= 3 * 4000
    assert len(sizes) <= 4 * sum(sizes) / 4000 + 16


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 30), st.integers(1, 9), st.integers(0, 5), st.booleans()),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 40),
)
def test_blocks_divide_a_selection(dims: list[tuple[int, int, int, bool]], most: int) -> None:
    axes: list[Any] = [
        np.arange(start, start + 2 * length, 2, np.uint64)
        if listed
        else StridedSpan.range(start, start + length)
        for length, _, start, listed in dims
    ]
    whole = Block(tuple(axes), (0,) * len(axes))
    there = np.zeros([length for length, *_ in dims], int)
    for block in whole.divided([chunk for _, chunk, *_ in dims], most):
        assert 0 < block.size <= most
        there[tuple(slice(o, o + a.size) for o, a in zip(block.origin, block.axes, strict=True))] += 1
        for own, axis, first in zip(block.axes, axes, block.origin, strict=True):
            assert indices(own).tolist() == indices(axis)[first : first + own.size].tolist()
    assert (there == 1).all()


def test_operations_are_named() -> None:
    with pytest.raises(InvalidValue, match="no operation"):
        BlockReduction(None, None, ("mode",), ())  # type: ignore[arg-type]


def test_groups(file: File) -> None:
    x = file.create_sparse("x", (4, 3), "i4", (2, 2))
    x.write([[0, 0], [1, 0], [3, 2]], [1, 2, 3])
    labels = ["b", "a", None, "a"]
    found = x.reduce("sum", "max", "count", axis=0, by=labels, undefined="skip")
    assert (found["group"].tolist(), found["sum"].tolist()) == (["a", "b"], [[2, 0, 3], [1, 0, 0]])
    assert (found["count"].tolist(), found["max"].dtype) == ([[1, 0, 1], [1, 0, 0]], np.dtype("i4"))
    file.create_dataset("obs/kind", data=np.array([5, 7, 7, 5]))
    assert x.reduce("sum", axis=(0, 1), by="/obs/kind")["sum"].tolist() == [4, 2]


# --- when the server does not ------------------------------------------------------------------------


def without_reductions(dataset: ReducedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server have no such route, as one before it had reductions."""
    path = dataset._path
    monkeypatch.setattr(
        dataset, "_path", lambda what: path("reductions-of-old" if what == "reduce" else what)
    )


def test_an_older_server_is_asked_once(
    http_access: DatasetAccess, monkeypatch: pytest.MonkeyPatch, requests: list[str]
) -> None:
    x = http_access.create((4, 3), "f4", (2, 2))
    x.write([[0, 0], [3, 2]], [1, 2])
    without_reductions(x, monkeypatch)
    requests.clear()
    assert x.sum() == 3
    asked = [f"POST /datasets/{x.id}/reductions-of-old", f"GET /datasets/{x.id}"]
    assert requests[:2] == asked
    requests.clear()
    assert (x.sum(axis=0).tolist(), x.mean()) == ([1, 0, 2], 0.25)
    assert not {*asked} & {*requests}


def test_labels_that_are_missing_are_no_older_server(file: File, requests: list[str]) -> None:
    x: SparseDataset = file.create_sparse("unlabelled", (4, 3), "f4", (2, 2))
    with pytest.raises(MissingKey):
        x.reduce("sum", axis=0, by="/no/labels")
    requests.clear()
    x.sum()
    assert requests == [f"POST /datasets/{x.id}/reduce"]


def test_a_missing_dataset_is_no_older_server(http_access: DatasetAccess) -> None:
    x = http_access.create((4, 3), "f4", (2, 2))
    x.connection.json("DELETE", f"/datasets/{x.id}")
    with pytest.raises(KeyError):
        x.sum()
    assert not x._reduces_here


def test_what_is_too_large_for_the_server_is_computed_here(
    file: File, monkeypatch: pytest.MonkeyPatch, requests: list[str]
) -> None:
    x = file.create_dataset("many places", data=np.arange(60).reshape(5, 12), chunks=(2, 5))
    for error in (ResultTooLarge("The result has 12 places"), NotImplementedHere("It has another layout.")):

        def refuse(*args: Any, error: Exception = error, **options: Any) -> Any:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(x.connection, "binary", refuse)
            assert x.sum(axis=0).tolist() == np.arange(60).reshape(5, 12).sum(axis=0).tolist()
        requests.clear()
        x.sum()
        assert requests == [f"POST /datasets/{x.id}/reduce"]
    x.max_bytes = 12 * 40
    monkeypatch.setattr(x.connection, "binary", refuse)
    with pytest.raises(ResultTooLarge, match="max_bytes"):
        x.sum(axis=0)


@pytest.mark.parametrize("status", ["405 Method Not Allowed", "501 Not Implemented"])
def test_a_server_of_another_make(status: str) -> None:
    record = {
        "id": "d-1",
        "type": {"class": "H5T_INTEGER", "base": "H5T_STD_I32LE"},
        "shape": {"class": "H5S_SIMPLE", "dims": [3]},
    }
    values = np.array([1, 2, 3], "<i4").tobytes()
    connections = [[answer(b"no", status), answer(values, media="application/octet-stream")]]
    with scripted(*connections, domain="/x.h5") as (script, connection):
        assert DenseDataset(connection, record).sum() == 6
    assert [line.split("?")[0] for line in script.requests] == [
        "POST /datasets/d-1/reduce",
        "GET /datasets/d-1/value",
    ]
