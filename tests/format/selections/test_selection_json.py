"""HDF5/JSON's forms of selections."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.orthogonal import Orthogonal, Span
from hsparse.format.selections.points import Points, Selection
from hsparse.format.selections.select_syntax import parse_selection_json, selection_json
from tests.format.selection_strategies import any_selections, iterate
from tests.support.characters import CHARACTERS


@given(any_selections())
def test_round_trip(selection: Selection) -> None:
    text = json.dumps(selection_json(selection))
    assert iterate(parse_selection_json(json.loads(text), selection.extent)) == iterate(selection)


def test_forms() -> None:
    assert selection_json(Orthogonal.all((4,))) == {"class": "H5S_SEL_ALL"}
    assert selection_json(Orthogonal.none((4,))) == {"class": "H5S_SEL_NONE"}
    assert selection_json(Orthogonal((9, 9), (Span(1, 4, 2, 3), Span.range(2, 5)))) == {
        "class": "H5S_SEL_HYPERSLABS",
        "start": [1, 2],
        "stride": [4, 1],
        "count": [2, 1],
        "block": [3, 3],
    }
    assert selection_json(Boxes((9, 9), [[0, 0], [2, 3]], [[1, 1], [4, 5]])) == {
        "class": "H5S_SEL_HYPERSLABS",
        "coordinates": [[[0, 0], [0, 0]], [[2, 3], [3, 4]]],
    }
    assert selection_json(Orthogonal((9,), (np.array([5, 1], np.uint64),))) == {
        "class": "H5S_SEL_POINTS",
        "coordinates": [[5], [1]],
    }


def test_region_reference_keys_and_defaults() -> None:
    value: dict[str, Any] = {"select_type": "H5S_SEL_POINTS", "selection": [[1, 2]]}
    assert parse_selection_json(value, (3, 3)) == Points((3, 3), [[1, 2]])
    value = {"select_type": "H5S_SEL_HYPERSLABS", "selection": [[[0, 0], [1, 2]]]}
    assert parse_selection_json(value, (3, 3)) == Orthogonal.box((3, 3), (0, 0), (2, 3))
    value = {"class": "H5S_SEL_HYPERSLABS", "start": [1], "count": [2]}
    assert parse_selection_json(value, (3,)) == Orthogonal.box((3,), (1,), (3,))
    assert parse_selection_json({"class": "H5S_SEL_NONE"}, ()).size == 0
    assert parse_selection_json({"class": "H5S_SEL_POINTS", "coordinates": []}, (3,)).size == 0
    assert parse_selection_json({"class": "H5S_SEL_HYPERSLABS", "coordinates": []}, (3,)).size == 0


def _slabs(**fields: Any) -> dict[str, Any]:
    return {"class": "H5S_SEL_HYPERSLABS", **fields}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "JSON object"),
        ({}, "class is None"),
        ({"class": "H5S_SEL_ODD"}, "class is 'H5S_SEL_ODD'"),
        ({"class": "H5S_SEL_POINTS"}, "must be a list"),
        ({"class": "H5S_SEL_POINTS", "coordinates": [[1]]}, "shape"),
        ({"class": "H5S_SEL_POINTS", "coordinates": [[1, 2], [1]]}, "equal length"),
        ({"class": "H5S_SEL_POINTS", "coordinates": [[1, 2.5]]}, "integers"),
        ({"class": "H5S_SEL_POINTS", "coordinates": [[1, "2"]]}, "integers"),
        ({"class": "H5S_SEL_POINTS", "coordinates": [[1, 10**30]]}, "integers"),
        ({"class": "H5S_SEL_POINTS", "coordinates": [[1, -2]]}, "-2"),
        ({"class": "H5S_SEL_POINTS", "coordinates": [[1, 5]]}, "dimension 1"),
        (_slabs(coordinates=[[[0, 0], [1, 5]]]), "imension 1"),
        (_slabs(coordinates=[[[2, 0], [1, 1]]]), "ends before it starts in dimension 0"),
        (_slabs(coordinates=[[[0, 0], [1, 1]], [[1, 1], [2, 2]]]), "overlap"),
        (_slabs(), "start must be a list"),
        (_slabs(start=[0], count=[1]), "start must be a list of 2"),
        (_slabs(start=[0, 0], count=[1, True]), "count must be integers"),
        (_slabs(start=[0, 0], count=[1, 1.0]), "count must be integers"),
        (_slabs(start=[0, 0], count=[1, -1]), "count must be integers"),
        (_slabs(start=[0, 0], count=[1, 6]), "Dimension 1"),
        (_slabs(start=[0, 0], count=[1, 2], block=[1, 2]), "overlap"),
    ],
)
def test_refused(value: Any, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        parse_selection_json(value, (4, 5))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 12) | st.floats(0, 5) | st.text(CHARACTERS, max_size=2),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=8,
)


@given(
    st.sampled_from(["H5S_SEL_POINTS", "H5S_SEL_HYPERSLABS"]),
    st.dictionaries(st.sampled_from(["coordinates", "start", "stride", "count", "block"]), JSON),
)
def test_any_fields_select_or_are_refused(kind: str, fields: dict[str, Any]) -> None:
    for extent in ((), (9,), (4, 5)):
        try:
            selection = parse_selection_json({"class": kind, **fields}, extent)
        except BadRequest:
            continue
        assert len(iterate(selection)) == selection.size


def test_scalar_has_no_hyperslabs() -> None:
    with pytest.raises(BadRequest, match="scalar"):
        parse_selection_json(_slabs(coordinates=[[[], []]]), ())
