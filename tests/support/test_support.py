"""Models, histories and random programs of the tests do what they say."""

from __future__ import annotations

import re
from pathlib import Path

import h5py
import numpy as np
import pytest

from hsparse.model.datatype import parse_type
from hsparse.model.vlen_array import split_elements
from tests.lanes import CONTRACT, ENDURE, PURE
from tests.support.dataset_subject import COMPOUND, LISTS, WORDS, random_element
from tests.support.endurance import ENDURANCE, repeats, spread
from tests.support.programs.all_verbs import CHANGES, VERBS
from tests.support.programs.draft import DRAWINGS, REFUSED, draw_index
from tests.support.programs.random_program import draw_program
from tests.support.write_history import WriteHistory


@pytest.mark.parametrize("item", [WORDS, LISTS, COMPOUND], ids=["words", "lists", "compound"])
def test_random_elements(item: object) -> None:
    datatype, generator = parse_type(item), np.random.default_rng(1)
    found = [random_element(datatype.element, generator) for _ in range(50)]
    assert len(set(found)) > 25
    if datatype.is_vlen:
        assert list(split_elements(b"".join(found), datatype.element, (50,))) == found
    else:
        assert {len(one) for one in found} == {datatype.dtype.itemsize}


def test_the_option_chooses_the_length(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    options = pytestconfig.option
    assert ENDURANCE.full is (options.endure or options.lane == "endure")
    monkeypatch.setattr(ENDURANCE, "full", False)
    assert (repeats(25, 3), spread(range(7), 3)) == (3, [0, 3, 6])
    monkeypatch.setattr(ENDURANCE, "full", True)
    assert (repeats(25, 3), spread(range(7), 3)) == (25, list(range(7)))


@pytest.mark.parametrize("place", [*PURE, *CONTRACT, *ENDURE])
def test_every_place_of_a_lane_is_there_with_its_short_forms(place: str) -> None:
    path, _, test = place.partition("::")
    where = Path(__file__).parents[1] / path
    assert where.exists()
    assert f"def {test}" in "".join(_text(where))
    for form in ENDURE.get(place, ()):
        name, _, test = form.partition("::") if ".py" in form else ("", "", form)
        text = "".join(_text(where / name if where.is_dir() else where))
        assert f"def {test.partition('[')[0]}" in text or not test.startswith("test_")


def _text(where: Path) -> list[str]:
    """Return the text of a file or folder, and of the suites that it imports."""
    texts = [file.read_text() for file in ([where] if where.is_file() else where.rglob("*.py"))]
    suites = re.findall(r"from tests\.([\w.]+) import \*", "".join(texts))
    tests = Path(__file__).parents[1]
    return [*texts, *(tests.joinpath(*one.split(".")).with_suffix(".py").read_text() for one in suites)]


HERE, THERE = (1, 2), (3, 4)


def test_the_last_of_writes_in_order_is_the_one() -> None:
    history = WriteHistory()
    for value in (1, 2):
        history.acknowledge(history.begin([HERE], value))
    assert (history.wrong({HERE: 2}), history.wrong({HERE: 1})) == ([], ["(1, 2) is 1, not one of [2]"])
    assert history.wrong({}) == ["(1, 2) is None, not one of [2]"]


def test_either_of_writes_at_once_may_be_the_last() -> None:
    history = WriteHistory()
    first, second = history.begin([HERE], 1), history.begin([HERE, HERE], 2)
    history.acknowledge(second)
    history.acknowledge(first)
    assert history.wrong({HERE: 1}) == history.wrong({HERE: 2}) == []
    assert history.wrong({}) != []


def test_a_write_that_was_not_acknowledged_may_have_happened() -> None:
    history = WriteHistory()
    history.begin([HERE], 1)
    assert history.wrong({HERE: 1}) == history.wrong({}) == []
    history.acknowledge(history.begin([HERE], 2))
    assert history.wrong({HERE: 1}) == history.wrong({HERE: 2}) == []
    assert history.wrong({}) != []


def test_a_write_that_was_given_up_does_not_come_back() -> None:
    history = WriteHistory()
    history.give_up(history.begin([HERE], 1))
    assert history.wrong({HERE: 1}) == history.wrong({}) == []
    history.acknowledge(history.begin([HERE], 2))
    assert history.wrong({HERE: 2}) == []
    assert history.wrong({HERE: 1}) != []


def test_an_erasure_is_a_write_of_nothing() -> None:
    history = WriteHistory()
    history.acknowledge(history.begin([HERE], 1))
    history.acknowledge(history.begin([HERE], None))
    assert history.wrong({}) == []
    assert history.wrong({HERE: 1}) != []


def test_what_nobody_wrote_is_wrong() -> None:
    assert WriteHistory().wrong({THERE: 7}) == ["(3, 4) is 7, never written"]


def test_the_shape_of_what_is_selected(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    beyond = 0
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for number in range(300):
            shape = tuple(rng.integers(1, 6, rng.integers(0, 4)).tolist())
            data = file.create_dataset(f"{number}", shape, "f4")
            index, selected = draw_index(rng, shape)
            try:
                assert np.shape(data[index]) == selected
            except IndexError:
                beyond += 1
    assert 0 < beyond < 60


def test_every_verb_is_drawn_and_known() -> None:
    sessions = [session for seed in range(150) for session in draw_program(seed).sessions]
    assert {step.verb for session in sessions for step in session.steps} == set(DRAWINGS)
    assert set(DRAWINGS) <= set(VERBS)
    for session in sessions:
        assert session.mode != "r" or not {step.verb for step in session.steps} & (CHANGES - REFUSED)
