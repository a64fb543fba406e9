"""Select strings against numpy's indexing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, TooLarge, Unsupported
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.orthogonal import Orthogonal, StridedSpan
from hsparse.format.selections.points import Points, Selection, gather
from hsparse.format.selections.select_syntax import (
    MAX_PAIRED_BYTES,
    MAX_SCANNED,
    format_select,
    most_paired,
    paired_bytes,
    parse_select,
)
from tests.format.selection_strategies import any_selections, extents, iterate


@st.composite
def pieces(draw: st.DrawFn, length: int) -> tuple[str, slice | list[int]]:
    """One piece, and the numpy index it means; an index keeps its dimension."""
    kind = draw(st.sampled_from(["index", "slice", "list"]))
    if kind == "index":
        index = draw(st.integers(0, length - 1))
        return str(index), slice(index, index + 1)
    if kind == "list":
        listed = draw(st.lists(st.integers(0, length - 1), max_size=5))
        return f"[{','.join(map(str, listed))}]", listed
    start = draw(st.integers(0, length))
    stop = draw(st.integers(start, length))
    step = draw(st.integers(1, 4))
    first = "" if start == 0 and draw(st.booleans()) else str(start)
    last = "" if stop == length and draw(st.booleans()) else str(stop)
    tail = draw(st.sampled_from(["", ":"])) if step == 1 else f":{step}"
    return f"{first}:{last}{tail}", slice(start, stop, step)


@given(st.data())
def test_reads_as_numpy_with_at_most_one_list(data: st.DataObject) -> None:
    extent = data.draw(extents())
    texts, index = zip(*(data.draw(pieces(length)) for length in extent), strict=True)
    if sum(isinstance(one, list) for one in index) <= 1:
        array = np.arange(math.prod(extent)).reshape(extent)
        found = gather(array, parse_select(f"[{' , '.join(texts)}]", extent))
        expected = array[tuple(np.array(one, np.intp) if isinstance(one, list) else one for one in index)]
        assert found.tolist() == expected.tolist()
        assert found.shape == expected.shape


@pytest.mark.parametrize("text", ["[]", "[0]", "[:]", "[0:1]"])
def test_scalar(text: str) -> None:
    assert parse_select(text, ()) == Orthogonal.all(())


def test_what_h5pyd_sends() -> None:
    assert parse_select("[0:100:2,5:6]", (100, 10)).shape == (50, 1)
    assert parse_select("[0:99:2]", (99,)) == Orthogonal((99,), (StridedSpan(0, 2, 50),))
    assert parse_select("[3,[1,4,9]]", (5, 10)).shape == (1, 3)
    assert parse_select("[0:0]", (0,)).size == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0:3,0:3", "brackets"),
        ("[", "brackets"),
        ("[0:3]", "1 dimensions, the dataset 2"),
        ("[0:3,0:3,0:3]", "3 dimensions"),
        ("[0:3,5]", "'5' .*dimension 1.*not below the extent 5"),
        ("[0:3,0:6]", "'0:6' .*stops beyond the extent 5"),
        ("[0:3,4:2]", "'4:2' .*after its stop"),
        ("[0:3,6:]", "'6:' .*after its stop"),
        ("[0:3,0:4:0]", "'0:4:0' .*at least 1"),
        ("[0:3,-1]", "'-1' .*negative"),
        ("[0:3,0:-1]", "'0:-1' .*negative"),
        ("[0:3,0:4:-1]", "negative"),
        ("[0:3,]", "neither an index"),
        ("[,0:3]", "neither an index"),
        ("[0:3,x]", "'x' .*neither"),
        ("[0:3,1:2:3:4]", "neither"),
        ("[0:3,1e3]", "neither"),
        ("[0:3,٣]", "neither"),
        ("[0:3,[1,2]", "not closed"),
        ("[0:3,[1,,2]]", "neither"),
        ("[0:3,[1:2]]", "neither"),
        ("[0:3,[[1]]]", "not closed|after the list|neither"),
        ("[0:3,[1]2]", "after the list"),
        ("[0:3,[1,9]]", "index 9, not below"),
        ("[[1,2],[1,2,3]]", "equal lengths"),
        ("[0:3," + "9" * 5000 + "]", "neither"),
        ("[" + "1," * 100 + "1]", "101 dimensions"),
    ],
)
def test_refused(text: str, words: str) -> None:
    with pytest.raises(BadRequest, match=words) as caught:
        parse_select(text, (4, 5))
    assert len(caught.value.message) < 250


@given(st.text("[]:,0123456789-. x", max_size=12), extents(0, 3, least=0))
def test_any_text_selects_or_is_refused(text: str, extent: tuple[int, ...]) -> None:
    try:
        selection = parse_select(text, extent)
    except BadRequest:
        return
    assert selection.extent == extent
    assert len(iterate(selection)) == selection.size


def test_paired_lists_are_bounded() -> None:
    with pytest.raises(TooLarge, match="select"):
        parse_select("[[1,2],[1,2],:]", (4, 4, 2**40))
    assert most_paired(3) * 3 * 8 <= MAX_PAIRED_BYTES < (most_paired(3) + 1) * 3 * 8
    most = most_paired(3) // 2
    for parse in (parse_select, paired_bytes):
        for text, rank in (("[[],[],:]", 3), ("[[1,2],[1,2],:,5:5]", 4)):
            with pytest.raises(TooLarge, match="select"):
                parse(text, (9, 9, 2**40, 9)[:rank])
        with pytest.raises(TooLarge, match="select"):
            parse(f"[[1,2],[1,2],0:{most + 1}]", (4, 4, 2**40))
    assert MAX_PAIRED_BYTES - 48 < paired_bytes(f"[[1,2],[1,2],0:{most}]", (4, 4, 2**40)) <= MAX_PAIRED_BYTES


@pytest.mark.parametrize(
    "text",
    [
        "[[1,2],[3,0],0:6:4]",
        "[ [1,2], [3,0] , 1]",
        "[:,[0],[5]]",
        "[[1],0,0]",
        "[...]",
        "[[],[],0:3]",
    ],
)
def test_the_bytes_of_paired_lists_are_known_before_they_are_parsed(text: str) -> None:
    selection = parse_select(text, (4, 5, 6))
    nbytes = selection.coordinates.nbytes if isinstance(selection, Points) else 0
    assert paired_bytes(text, (4, 5, 6)) == nbytes


@pytest.mark.parametrize("rest", ["0:3", "0:1000", " " * 2 * MAX_SCANNED])
def test_of_long_lists_the_bytes_are_bounded(rest: str) -> None:
    column = ",".join(map(str, range(100_000)))
    text = f"[[{column}],[{column}],{rest}]"
    assert len(text) > MAX_SCANNED
    nbytes = paired_bytes(text, (10**6, 10**6, 10**6))
    assert 100_000 * (3 if ":3" in rest else 1) * 3 * 8 <= nbytes <= MAX_PAIRED_BYTES


@pytest.mark.parametrize("text", ["", "[[[", "[[1],[2]", "[[1],[2],x]", "[[1],[2],9:]", "[[1],[2]]"])
def test_what_cannot_be_parsed_takes_no_bytes(text: str) -> None:
    assert paired_bytes(text, (4, 5, 6)) == 0


@given(any_selections())
def test_format(selection: Selection) -> None:
    try:
        text = format_select(selection)
    except Unsupported:
        lists = isinstance(selection, Orthogonal) and len(selection.extent) > 1
        assert lists or (isinstance(selection, Boxes) and len(selection.starts) > 1)
        return
    assert iterate(parse_select(text, selection.extent)) == iterate(selection)


def test_format_examples() -> None:
    assert format_select(Orthogonal.box((100,), (10,), (20,))) == "[10:20]"
    assert (
        format_select(Orthogonal((9, 9), (StridedSpan(1, 3, 2), np.array([4, 2], np.uint64))))
        == "[1:5:3,[4,2]]"
    )
    assert format_select(Points((9, 9), [[1, 2], [3, 4]])) == "[[1,3],[2,4]]"
    assert format_select(Boxes((9,), [[2]], [[4]])) == "[2:4]"
    assert format_select(Orthogonal.all(())) == "[...]"
    with pytest.raises(Unsupported, match="union of boxes"):
        format_select(Boxes((9,), [[2], [5]], [[4], [6]]))
