"""Sparse datasets and frames as lazy frames of polars, beside pandas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars import col
from polars.testing import assert_frame_equal

import hsparse
from hsparse.client.connection import Connection
from hsparse.client.integrations.anndata.element_reader import ElementReader
from hsparse.client.integrations.polars import frame_scan
from hsparse.client.integrations.polars.row_filter import allowed_places
from hsparse.client.sparse_dataset import SparseDataset
from tests.client.access_ways import open_file
from tests.client.anndata import conftest as anndata_domains
from tests.client.anndata.anndata_examples import column_kinds
from tests.support.endurance import repeats

SHAPE = (60, 9, 40)
CHUNKS = (7, 9, 16)


@pytest.fixture(scope="module")
def dataset(url: str) -> SparseDataset:
    file = open_file(f"{url}/polars.h5", "w")
    made = file.create_sparse("run/x", SHAPE, "i4", CHUNKS)
    rng = np.random.default_rng(1)
    places = np.unique(rng.integers(0, SHAPE, (700, 3)), axis=0)
    places = places[(places[:, 0] < 20) | (places[:, 0] > 45)]
    made.write(places, rng.integers(-50, 50, len(places)))
    return made


@pytest.fixture(scope="module")
def frame(dataset: SparseDataset) -> pd.DataFrame:
    coords, values = dataset.read()
    return pd.DataFrame({**{f"dim_{dim}": coords[:, dim] for dim in range(3)}, "value": values})


@pytest.fixture
def asked(dataset: SparseDataset, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """What is read of the dataset from now on."""
    found: list[tuple[str, Any]] = []

    def note(name: str) -> Any:
        whole = getattr(dataset, name)

        def read(key: Any) -> Any:
            found.append((name, key))
            return whole(key)

        return read

    for name in ("read", "defined"):
        monkeypatch.setattr(dataset, name, note(name))
    return found


@dataclass(frozen=True, slots=True)
class Scanned:
    """A dataset, and its elements as a frame of pandas, with the types of pandas that know missing values."""

    dataset: SparseDataset
    frame: pd.DataFrame


@pytest.fixture(
    scope="module",
    params=[
        ("i4", (300,), None),
        ("f4", (60, 40), None),
        (">f8", (30, 9, 20), None),
        ("f8", (12, 5, 6, 7), None),
        ("i2", (60, 40), (-13, 5)),
    ],
)
def scanned(url: str, request: pytest.FixtureRequest) -> Scanned:
    """A dataset of each rank, with NaN and infinity if it has them, and one with lower bounds."""
    dtype, shape, lower = request.param
    file = open_file(f"{url}/polars-{len(shape)}-{dtype[-2:]}.h5", "w")
    chunks = tuple(max(2, length // 4) for length in shape)
    dataset = file.create_sparse("x", shape, dtype, chunks, lower=lower)
    rng = np.random.default_rng(2)
    places = np.unique(rng.integers(0, shape, (200, len(shape))), axis=0)
    values = rng.integers(-20, 60, len(places)).astype(dtype)
    if values.dtype.kind == "f":
        values[::5], values[1::31], values[2::31], values[3::31] = np.nan, np.inf, -np.inf, -0.0
    dataset.write(places if lower is None else places + lower, values)
    coords, found = dataset.read()
    native = found.astype(found.dtype.newbyteorder("="))
    columns = {f"dim_{dim}": coords[:, dim].astype(np.int64) for dim in range(len(shape))}
    return Scanned(dataset, pd.DataFrame(columns | {"value": native}))


Condition = tuple[polars.Expr, Callable[[pd.DataFrame], Any]]


def known(rows: pd.DataFrame, name: str) -> Any:
    """Return a column of pandas that is missing where it is NaN."""
    return rows[name].astype("Float64" if rows[name].dtype.kind == "f" else "Int64")


@st.composite
def comparisons(draw: st.DrawFn, names: list[str], *, has_nan: bool) -> Condition:
    """Draw a condition on a column, for polars and for pandas. NaN is as it is, or missing (null)."""
    name = draw(st.sampled_from([*names, names[-1]]))
    limit = draw(st.integers(-1, 40))
    listed = float if has_nan and name == "value" else int
    several = [listed(abs(limit)), listed(abs(limit) // 2), listed(7)]
    number = col(name).cast(polars.Float64).fill_nan(None)  # whatever its type
    return draw(
        st.sampled_from(
            [
                (col(name) < limit, lambda rows: rows[name] < limit),
                (col(name) == limit, lambda rows: rows[name] == limit),
                (col(name).is_in(several), lambda rows: rows[name].isin(several)),
                # polars takes NaN for the greatest number; pandas compares it with nothing
                (col(name) >= limit, lambda rows: (rows[name] >= limit) | rows[name].isna()),
                (number >= limit, lambda rows: known(rows, name) >= limit),
                (number != limit, lambda rows: known(rows, name) != limit),
                (number.is_null(), lambda rows: known(rows, name).isna()),
                (number.fill_null(limit) == limit, lambda rows: known(rows, name).fillna(limit) == limit),
                (
                    number.replace(limit, None) < 2 * limit,
                    lambda rows: known(rows, name).mask(known(rows, name) == limit) < 2 * limit,
                ),
                (
                    number.is_between(limit // 2, limit),
                    lambda rows: known(rows, name).between(limit // 2, limit),
                ),
            ]
        )
    )


def joined(conditions: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    return st.one_of(
        st.tuples(conditions, conditions).map(
            lambda two: (two[0][0] & two[1][0], lambda rows: two[0][1](rows) & two[1][1](rows))
        ),
        st.tuples(conditions, conditions).map(
            lambda two: (two[0][0] | two[1][0], lambda rows: two[0][1](rows) | two[1][1](rows))
        ),
        conditions.map(lambda one: (~one[0], lambda rows: ~one[1](rows))),
    )


@pytest.mark.endurance
def test_conditions_are_those_of_pandas(scanned: Scanned) -> None:
    names = list(scanned.frame.columns)
    conditions = comparisons(names, has_nan=scanned.dataset.dtype.kind == "f")

    @settings(max_examples=repeats(150, short=15))
    @given(condition=st.recursive(conditions, joined, max_leaves=5))
    def check(condition: Condition) -> None:
        expression, of_pandas = condition
        found = hsparse.scan(scanned.dataset).filter(expression).collect().to_pandas()
        wanted = scanned.frame[of_pandas(scanned.frame)]
        ordered = (rows.sort_values(names, ignore_index=True) for rows in (found, wanted))
        pd.testing.assert_frame_equal(*ordered, check_dtype=False)
        assert found["value"].dtype == wanted["value"].dtype
        assert found["dim_0"].dtype == ("i8" if hasattr(scanned.dataset.shape, "lower") else "u4")

    check()


def test_columns_and_types(dataset: SparseDataset, url: str) -> None:
    lazy = hsparse.scan(f"{url}/polars.h5", "run/x")
    assert lazy.collect_schema() == {f"dim_{dim}": polars.UInt32 for dim in range(3)} | {
        "value": polars.Int32
    }
    assert_frame_equal(lazy.collect(), hsparse.scan(dataset).collect())


def test_values_are_read_only_if_they_are_wanted(
    dataset: SparseDataset, frame: pd.DataFrame, asked: list[tuple[str, Any]]
) -> None:
    counts = hsparse.scan(dataset).group_by("dim_1").len().sort("dim_1").collect()
    assert counts["len"].to_list() == frame.groupby("dim_1").size().to_list()
    assert hsparse.scan(dataset).select(polars.len()).collect().item() == len(frame)
    assert {name for name, _ in asked} == {"defined"}
    asked.clear()
    assert hsparse.scan(dataset).select(col("value").sum()).collect().item() == frame.value.sum()
    assert {name for name, _ in asked} == {"read"}


def test_conditions_choose_what_is_read(dataset: SparseDataset, asked: list[tuple[str, Any]]) -> None:
    lazy = hsparse.scan(dataset)
    lazy.filter((col("dim_0") >= 8) & (col("dim_0") < 13), col("dim_2") == 3).collect()
    assert asked == [("read", (slice(8, 13), slice(0, 9), slice(3, 4)))]
    asked.clear()
    lazy.filter(col("dim_0").is_in([2, 50])).collect()
    assert [key[0] for _, key in asked] == [slice(2, 3), slice(50, 51)]
    asked.clear()
    assert (lazy.filter(col("dim_0") > 1000).collect().shape, asked) == ((0, 4), [])


def test_scattered_rows_are_a_list(dataset: SparseDataset, asked: list[tuple[str, Any]]) -> None:
    hsparse.scan(dataset).filter(col("dim_0").is_in([0, 14, 27])).collect()
    assert [key[0] if isinstance(key[0], slice) else key[0].tolist() for _, key in asked] == [
        slice(0, 1),
        [14, 27],
    ]


def test_conditions_on_all_rows_are_polars_own(dataset: SparseDataset, frame: pd.DataFrame) -> None:
    lazy = hsparse.scan(dataset)
    assert len(lazy.filter(col("dim_0") > col("dim_0").mean()).collect()) == sum(
        frame.dim_0 > frame.dim_0.mean()
    )
    assert len(lazy.filter(col("dim_0").rank("dense") <= 2).collect()) == sum(frame.dim_0 < 2)


def test_a_limit_ends_the_reading(
    dataset: SparseDataset, frame: pd.DataFrame, asked: list[tuple[str, Any]]
) -> None:
    found = hsparse.scan(dataset).head(5).collect()
    assert (found.to_numpy().tolist(), len(asked)) == (frame[:5].to_numpy().tolist(), 1)
    few = hsparse.scan(dataset).head(30).filter(col("dim_2") > 8).collect()
    assert few.to_numpy().tolist() == frame[:30][frame.dim_2[:30] > 8].to_numpy().tolist()
    assert hsparse.scan(dataset).filter(col("dim_2") > 8).head(3).collect().shape == (3, 4)


def test_other_types(connection: Connection) -> None:
    fields = np.dtype([("energy", ">f4"), ("count", "u2")])
    pairs = SparseDataset.create(connection, "/pairs", (4, 4), fields, (2, 2))
    pairs.write([[0, 1], [3, 2]], np.array([(0.5, 1), (1.5, 2)], fields))
    rows = hsparse.scan(pairs).filter(col("value").struct.field("count") > 1).collect()
    assert rows.to_dicts() == [{"dim_0": 3, "dim_1": 2, "value": {"energy": 1.5, "count": 2}}]
    for dtype in ("S3", "?", ">i8", "f2"):
        made = SparseDataset.create(connection, f"/{dtype}", (4,), dtype, (4,))
        made.write([[1], [2]], np.array([1, 0]).astype(dtype))
        assert hsparse.scan(made).collect()["value"].to_list() == np.array([1, 0]).astype(dtype).tolist()
    assert hsparse.scan(made, None).filter(col("value") > 0).collect().height == 1


def test_what_is_not_sparse_is_refused(connection: Connection) -> None:
    file = open_file(f"{connection.url}{connection.domain}")
    file["dense"] = np.arange(3)
    with pytest.raises(TypeError, match="neither a sparse dataset nor a data frame"):
        hsparse.scan(file, "dense")
    with pytest.raises(ValueError, match="Name a dataset or a data frame"):
        hsparse.scan(file)
    with pytest.raises(TypeError, match="options"):
        hsparse.scan(file, "dense", token="x")


NAMES, EXTENT = ["dim_0", "dim_1"], (10, 6)
DTYPES = [np.dtype("u4")] * 2


def places(predicate: Any) -> list[list[int] | None]:
    masks = allowed_places(predicate, NAMES, EXTENT, DTYPES)
    return [None if mask is None else np.flatnonzero(mask).tolist() for mask in masks]


@pytest.mark.parametrize(
    ("predicate", "wanted"),
    [
        (col("dim_0") > 6, [[7, 8, 9], None]),
        ((col("dim_0") > 6) & (col("dim_1") == 2), [[7, 8, 9], [2]]),
        ((col("dim_0") > 6) & (col("dim_0") % 2 == 0) & (col("value") > 3), [[8], None]),
        (col("dim_0").is_in([3, 99]) & col("dim_1").is_between(2, 3), [[3], [2, 3]]),
        (~(col("dim_1") < 4), [None, [4, 5]]),
        ((col("dim_0") > 6) | (col("dim_0") < 2), [[0, 1, 7, 8, 9], None]),
        ((col("dim_0") > 6) | (col("dim_1") < 2), [None, None]),
        (col("dim_0") > col("dim_1"), [None, None]),
        (col("value") > 1, [None, None]),
        (polars.lit(True), [None, None]),
        (col("dim_0") > 99, [[], None]),
        (col("dim_0").replace(3, None) < 5, [[0, 1, 2, 4], None]),
        (col("dim_0").cast(polars.String).str.contains("[1-3]"), [[1, 2, 3], None]),
    ],
)
def test_a_predicate_restricts_the_coordinates_that_it_names_alone(
    predicate: Any, wanted: list[list[int] | None]
) -> None:
    assert places(predicate) == wanted


def test_what_cannot_be_tried_restricts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert places(col("dim_0").str.contains("x")) == [None, None]  # fails, at any value
    monkeypatch.setattr("hsparse.client.integrations.polars.row_filter.MAX_FILTERED_ROWS", 9)
    assert places((col("dim_0") > 6) & (col("dim_1") == 2)) == [None, [2]]


def test_long_dimensions_are_tried_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hsparse.client.integrations.polars.row_filter.ROWS_AT_ONCE", 3)
    assert places((col("dim_0") % 4) == 1) == [[1, 5, 9], None]


example_file, imported, imported_pbmc = (
    anndata_domains.example_file,
    anndata_domains.imported,
    anndata_domains.imported_pbmc,
)


@pytest.fixture
def cells(imported: Callable[[str], hsparse.File]) -> Iterator[hsparse.File]:
    with imported("column_kinds") as file:
        yield file


def values_of(column: pd.Series) -> list[object]:
    return [None if pd.isna(value) else value for value in column.tolist()]


@pytest.mark.parametrize("rows_at_once", [7, 1 << 20])
def test_columns_are_those_of_the_frame(
    cells: hsparse.File, monkeypatch: pytest.MonkeyPatch, rows_at_once: int
) -> None:
    wanted = column_kinds().obs
    monkeypatch.setattr(frame_scan, "BLOCK_VALUES", rows_at_once * (len(wanted.columns) + 1))
    lazy = hsparse.scan(cells, "obs")
    found = lazy.collect()
    assert (found.columns, found.schema) == (["barcode", *wanted.columns], lazy.collect_schema())
    assert found["barcode"].to_list() == wanted.index.tolist()
    for name in wanted.columns:
        assert [None if value != value else value for value in found[name].to_list()] == values_of(
            wanted[name]
        )


def test_types_are_those_of_the_columns(cells: hsparse.File) -> None:
    schema = hsparse.scan(cells["obs"]).collect_schema()
    assert schema["stage"] == polars.Enum(["early", "mid", "late"])
    assert (schema["cell type"], schema["cluster"]) == (polars.Categorical, polars.Int64)
    assert (schema["age"], schema["smoker"], schema["small"]) == (polars.Int32, polars.Boolean, polars.UInt8)
    assert (schema["score"], schema["barcode"]) == (polars.Float32, polars.String)


def test_only_what_is_asked_for_is_read(cells: hsparse.File, monkeypatch: pytest.MonkeyPatch) -> None:
    lazy, wanted = hsparse.scan(cells, "/obs"), column_kinds().obs
    read: list[tuple[str, tuple[int, ...]]] = []
    fetch = ElementReader.fetch

    def noting(reader: ElementReader) -> None:
        read.extend((path, one.shape) for path, one in reader._reads.items())
        fetch(reader)

    monkeypatch.setattr(ElementReader, "fetch", noting)
    found = lazy.filter(col("n_genes") > 500).select("barcode").collect()
    assert found["barcode"].to_list() == wanted.index[wanted.n_genes > 500].tolist()
    assert {path for path, _ in read} == {"obs/n_genes", "obs/barcode"}
    read.clear()
    assert lazy.head(5).select("small").collect()["small"].to_list() == wanted["small"][:5].tolist()
    assert read == [("obs/small", (5,))]


def test_a_frame_without_columns_has_its_index(imported: Callable[[str], hsparse.File]) -> None:
    with imported("plain") as file:
        found = hsparse.scan(file, "var").collect()
        assert found.columns == ["index"]
        assert found["index"].to_list() == [f"gene{number}" for number in range(23)]
        assert hsparse.scan(file, "var").select(polars.len()).collect().item() == 23


def test_frames_of_compounds(imported_pbmc: str, connection: Connection) -> None:
    """A file that AnnData wrote before version 0.7, and a table of no AnnData."""
    with open_file(imported_pbmc) as file:
        wanted = file.query().obs
        found = hsparse.scan(file, "obs").collect()
        assert found["bulk_labels"].to_list() == wanted["bulk_labels"].tolist()
        assert found["bulk_labels"].dtype == polars.Categorical
        assert found["index"].to_list() == wanted.index.tolist()
        assert np.array_equal(found["percent_mito"].to_numpy(), wanted["percent_mito"].to_numpy())
    file = open_file(f"{connection.url}{connection.domain}")
    file["hits"] = np.array([(1, 2.5), (3, 4.5)], [("frame", "i4"), ("energy", "f8")])
    assert hsparse.scan(file, "hits").filter(col("energy") > 3).collect().rows() == [(3, 4.5)]
