"""When the cycle collector is paused."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from hsparse.concurrency.collector import MANY, paused_collector


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    was = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if was else gc.disable)()


@pytest.mark.parametrize(("count", "runs"), [(MANY, False), (MANY - 1, True)])
def test_it_is_paused_for_many_lists_and_goes_on_after_an_error(count: int, runs: bool) -> None:
    def fail() -> None:
        with paused_collector(count):
            found.append(gc.isenabled())
            raise KeyError

    found: list[bool] = []
    with pytest.raises(KeyError):
        fail()
    assert found == [runs]
    assert gc.isenabled()


def test_a_pause_inside_a_pause_does_not_end_it() -> None:
    with paused_collector(MANY):
        with paused_collector(MANY):
            pass
        assert not gc.isenabled()


def test_one_that_is_off_stays_off() -> None:
    gc.disable()
    with paused_collector(MANY):
        pass
    assert not gc.isenabled()
