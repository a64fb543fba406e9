from __future__ import annotations

from pathlib import Path

import pytest

from tests.lanes import CONTRACT, ENDURE, PURE
from tests.support.endurance import ENDURANCE, repeats, spread


def test_the_option_chooses_the_length(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    options = pytestconfig.option
    assert ENDURANCE.full is (options.endure or options.lane == "endure")
    monkeypatch.setattr(ENDURANCE, "full", False)
    assert repeats(25, 3) == 3
    assert spread(range(7), 3) == [0, 3, 6]
    monkeypatch.setattr(ENDURANCE, "full", True)
    assert repeats(25, 3) == 25
    assert spread(range(7), 3) == list(range(7))


def test_before_the_options_are_read_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ENDURANCE, "full", None)
    with pytest.raises(pytest.UsageError, match="once pytest has read its options"):
        repeats(25, 3)


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
    return [file.read_text() for file in ([where] if where.is_file() else where.rglob("*.py"))]
