from __future__ import annotations

import pytest

from tests.support.endurance import ENDURANCE, repeats, spread


def test_the_option_chooses_the_length(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ENDURANCE.full is pytestconfig.getoption("--endure")
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
