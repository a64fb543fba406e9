"""References in Parquet files against the reader that they are for; and their JSON, however it is cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.reference import LazyReferenceMapper
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import HsparseError, Unsupported
from hsparse.hdf5.maps import parquet_references
from hsparse.hdf5.maps.parquet_references import ReferenceMembers, write_parquet
from tests.support.characters import CHARACTERS

# fsspec reads by fastparquet, of which pandas 3 says that it will go; by pyarrow it finds no chunk that is not stored.
pytestmark = pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated")


def array(shape: list[int], chunks: list[int]) -> str:
    return json.dumps({"zarr_format": 2, "shape": shape, "chunks": chunks})


def test_the_reader_finds_every_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_references, "RECORD_ROWS", 7)
    members: list[tuple[str, Any]] = [
        (".zgroup", '{"zarr_format":2}'),
        ("g/.zgroup", '{"zarr_format":2}'),
        ("g/a/.zarray", array([25, 30], [10, 10])),
        ("g/a/.zattrs", "{}"),
        ("g/a/2.1", ["s3://bucket/x", 4, 1 << 40]),
        ("g/a/0.0", ["s3://bucket/y", 0, 9]),
        ("g/b/.zarray", array([3], [4])),
        ("scalar/.zarray", array([], [])),
        ("scalar/0", ["s3://bucket/größe", 8, 8]),
        ("far/.zarray", array([10**12], [1])),
        ("far/999999999999", ["s3://bucket/z", 1, 1]),
    ]
    write_parquet(tmp_path / "out", members)
    found = LazyReferenceMapper(str(tmp_path / "out"))
    for name, value in members:
        assert (
            (json.loads(found[name]) == json.loads(value))
            if isinstance(value, str)
            else (found[name] == value)
        )
    for name in ("g/a/0.1", "g/a/1.2", "g/b/0", "far/7"):
        assert name not in found
    assert sorted(path.name for path in (tmp_path / "out" / "g/a").iterdir()) == [
        "refs.0.parq",
        "refs.1.parq",
    ]
    assert [path.name for path in (tmp_path / "out" / "far").iterdir()] == ["refs.142857142857.parq"]


def test_names_that_readers_take_for_metadata(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"begin with \.z"):
        write_parquet(tmp_path / "out", [("g/.zebra/.zarray", array([3], [4]))])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(CHARACTERS) | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(CHARACTERS, max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(CHARACTERS), JSON),
    st.dictionaries(st.text(CHARACTERS).filter(lambda name: name != "refs"), JSON, max_size=3),
    st.integers(1, 40),
    st.sampled_from([None, 1]),
)
def test_any_cut(refs: dict[str, object], others: dict[str, object], size: int, indent: int | None) -> None:
    data = json.dumps({**others, "refs": refs}, ensure_ascii=False, indent=indent).encode(errors="replace")
    told = json.loads(data)
    members = ReferenceMembers(data[start : start + size] for start in range(0, len(data), size))
    assert dict(members) == told["refs"]
    assert members.others == {name: value for name, value in told.items() if name != "refs"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b'{"refs"',
        b'{"refs": {"a": [1, 2',
        b'{"refs": {"a": 1}',
        b'{"refs": {"a" 1}}',
        b'{"a": nul}',
        b'{"refs": {"\xff": 1}}',
    ],
)
def test_what_is_no_such_json(data: bytes) -> None:
    with pytest.raises(HsparseError):
        list(ReferenceMembers([data]))
