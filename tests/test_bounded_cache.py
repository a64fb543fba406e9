"""Caches of what clients choose are bounded by bytes: the cache itself, and each place that keeps results."""

from __future__ import annotations

import ast
import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.bounded_cache import ENTRY_BYTES, BoundedCache, remember
from hsparse.errors import BadRequest, TooLarge
from hsparse.format.chunk_spec import _chunk_spec as chunk_spec_of
from hsparse.format.chunk_spec import chunk_spec, statistic_columns
from hsparse.model.datatype import _parse as parsed_type
from hsparse.model.datatype import parse_requested_type
from hsparse.model.initial_values import parse_fill_value
from hsparse.model.vlen_array import skipper
from tests.support.endurance import repeats

I64 = "H5T_STD_I64LE"
TEXT = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}
TYPES: dict[str, Callable[[int], Any]] = {
    "arrays of arrays": lambda number: _array(_array(I64, 4096), 4096 - number),
    "many fields": lambda number: _compound([(f"f{number}_{field}", I64) for field in range(2000)]),
    "fields of fields": lambda number: _compound(
        [(f"f{number}_{field}", _compound([("a", I64), ("b", _array(I64, 3))])) for field in range(1000)]
    ),
    "varying fields": lambda number: _compound([(f"f{number}_{field}", TEXT) for field in range(1000)]),
    "a long enum": lambda number: {
        "class": "H5T_ENUM",
        "base": I64,
        "mapping": {f"n{number}_{name}": name for name in range(3000)},
    },
}
CALLS = st.lists(st.tuples(st.integers(0, 12), st.booleans()))
PACKAGE = Path(__file__).parents[1] / "hsparse"
SMALL_RESULTS = {
    "client/embedded.py": "a process has one",
    "client/sparse/coo_serialization.py": "a process has one",
    "cluster/membership.py": "numbers, by names of at most 1 KiB",
    "compute.py": "a process has one",
    "explorer/handlers.py": "a process has one",
    "extension.py": "the extensions that are installed",
    "format/arrow_stream.py": "64 schemas of at most 4 KiB",
    "format/dataspace_message.py": "heads of at most 32 dimensions",
    "format/selections/planar.py": "heads of at most 32 dimensions",
    "hdf5/format/chunk_indexes/extensible_array.py": "levels of at most 62 bits",
    "hdf5/format/plan/matrix_encoding.py": "types of numbers, by shapes",
    "model/datatype.py": "the predefined types, and types of at most 1 KiB of JSON",
    "model/ids.py": "ids and keys of at most 1 KiB",
    "model/stripes.py": "steps of at most 32 dimensions",
    "sn/about.py": "a process has one",
    "sn/policies/authentication.py": "networks, by addresses of sockets",
    "sn/records/domain_path.py": "paths of at most 2 KiB",
    "sn/policies/guards.py": "a truth, by 256 headers of a limited size",
    "storage/object_store.py": "keys of at most 1 KiB",
    "storage/s3/s3_client.py": "a process has one",
}
"""Modules with a cache of functools, which counts results, and why each result is small whatever a client sends."""


@given(CALLS, st.integers(1, 6))
def test_results_are_right_and_bounded_by_bytes(calls: list[tuple[int, bool]], entries: int) -> None:
    made = []
    limit = entries * (ENTRY_BYTES + 8)

    @remember(limit, lambda _, text, reverse: len(text), largest=8)
    def double(text: str, reverse: bool) -> str:
        made.append(text)
        return (text * 2)[::-1] if reverse else text * 2

    for length, reverse in calls:
        text = "ab" * length
        assert double(text, reverse) == ((text * 2)[::-1] if reverse else text * 2)
        assert double.results.size <= limit
        before = len(made)
        double(text, reverse)
        assert (len(made) == before) == (len(text) <= 8), "the latest is remembered, unless it is large"
    assert len(double.results) <= entries


def test_an_error_is_not_remembered_and_none_is() -> None:
    calls = []

    @remember(10 * ENTRY_BYTES, lambda *_: 0)
    def answer(text: str) -> None:
        calls.append(text)
        if text == "x":
            raise ValueError(text)

    for text in ("x", "x", "y", "y"):
        if text == "x":
            with pytest.raises(ValueError, match="x"):
                answer(text)
        else:
            answer(text)
    assert calls == ["x", "x", "y"]


def _array(base: Any, length: int) -> Any:
    return {"class": "H5T_ARRAY", "base": base, "dims": [length]}


def _compound(fields: list[tuple[str, Any]]) -> Any:
    return {"class": "H5T_COMPOUND", "fields": [{"name": name, "type": kind} for name, kind in fields]}


@pytest.mark.endurance
@pytest.mark.parametrize("kind", TYPES)
def test_memory_of_types_that_were_used_is_what_the_caches_count(kind: str) -> None:
    """Types are parsed by a request, by a record, and by the kind of their chunks; each remembers something."""
    caches = [statistic_columns.results, *(one.results for one in (parsed_type, chunk_spec_of, skipper))]
    for cache in caches:
        for key in list(cache):
            cache.forget(key)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(repeats(24, short=6)):
            item = TYPES[kind](number)
            with suppress(TooLarge, BadRequest):
                parse_fill_value({"fillValue": 3}, parse_requested_type(item))
            record = {"id": f"d-{number}", "type": item, "shape": {"class": "H5S_SIMPLE", "dims": [4]}}
            layout = {"class": "H5D_CHUNKED", "dims": [1]}
            spec = chunk_spec(record | {"layout": layout, "creationProperties": {"layout": layout}})
            statistic_columns(spec.dtype)
            skipper(spec.datatype.element)
            del item, record, spec
        gc.collect()
        left = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert left <= sum(cache.size for cache in caches) + 2**20
    assert all(cache.size <= cache.limit for cache in caches)


def test_a_fill_value_larger_than_hdf5_has_is_refused_before_it_is_made() -> None:
    datatype = parse_requested_type(_array(_array(I64, 4096), 4096))
    tracemalloc.start()
    try:
        for value in (3, 3.5, "text", [1, 2]):
            with pytest.raises(TooLarge, match="limit is 65536"):
                parse_fill_value({"fillValue": value}, datatype)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    with pytest.raises(TooLarge, match="limit is 65536"):
        parse_fill_value({"fillValue": "x" * 70_000}, parse_requested_type(TEXT))
    assert parse_fill_value({"fillValue": 3}, parse_requested_type(_array(I64, 8192))) == {"fillValue": 3}


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40), st.sampled_from(["keep", "get", "forget"]))))
def test_a_cache_has_the_latest_values_and_counts_what_it_has(steps: list[tuple[int, int, str]]) -> None:
    cache: BoundedCache[int, int] = BoundedCache(3 * ENTRY_BYTES + 50, largest=30)
    kept: dict[int, int] = {}
    for key, nbytes, step in steps:
        if step == "keep":
            cache.keep(key, nbytes, nbytes)
            kept.pop(key, None)
            if nbytes <= 30:
                kept[key] = nbytes
        elif step == "forget":
            cache.forget(key)
            kept.pop(key, None)
        elif cache.use(key) is not None:
            kept[key] = kept.pop(key)
        while sum(kept.values()) + ENTRY_BYTES * len(kept) > cache.limit:
            del kept[next(iter(kept))]
        assert (len(cache), cache.size) == (len(kept), sum(kept.values()) + ENTRY_BYTES * len(kept))
    assert dict(cache) == kept


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["keep", "use", "forget", "clear"]))),
    st.integers(0, 3),
)
def test_a_cache_of_entries_names_those_that_it_forgets(steps: list[tuple[int, str]], limit: int) -> None:
    forgotten: list[tuple[int, int | None]] = []
    cache: BoundedCache[int, int | None] = BoundedCache.of_entries(
        limit, lambda key, value: forgotten.append((key, value))
    )
    kept: dict[int, int | None] = {}
    for number, (key, step) in enumerate(steps):
        value = None if key == 5 else number
        dropped = []
        if step == "keep":
            cache.keep(key, value)
            kept.pop(key, None)
            if limit:
                kept[key] = value
            while len(kept) > limit:
                oldest = next(iter(kept))
                dropped.append((oldest, kept.pop(oldest)))
        elif step == "clear":
            cache.clear()
            kept.clear()
        elif step == "forget":
            assert cache.forget(key) == kept.pop(key, None)
        elif key in kept:
            assert cache.use(key) == kept[key]
            kept[key] = kept.pop(key)
        assert forgotten == dropped
        forgotten.clear()
        assert (dict(cache), cache.size) == (kept, len(kept))


def _counting_caches() -> Iterator[str]:
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "functools" not in text:
            continue  # as in most files; parsing takes long
        tree = ast.parse(text)
        names = [
            name.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "functools"
            for name in node.names
        ]
        if {"lru_cache", "cache"}.intersection(names):
            yield str(path.relative_to(PACKAGE))


def test_each_cache_that_counts_results_says_why_they_are_small() -> None:
    assert sorted(_counting_caches()) == sorted(SMALL_RESULTS), "use hsparse.bounded_cache, or say why"
