"""When the cycle collector is paused, and how seldom it runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from hsparse.concurrency.collector import (
    SERVER_THRESHOLDS,
    collect_seldom,
    paused_collector,
)


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    was = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if was else gc.disable)()


def test_it_goes_on_after_an_error() -> None:
    def fail() -> None:
        with paused_collector():
            assert not gc.isenabled()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert gc.isenabled()


def test_a_pause_inside_a_pause_does_not_end_it() -> None:
    with paused_collector():
        with paused_collector():
            pass
        assert not gc.isenabled()


def test_one_that_is_off_stays_off() -> None:
    gc.disable()
    with paused_collector():
        pass
    assert not gc.isenabled()


def test_a_pause_that_ends_before_another_does_not_end_it() -> None:
    first, second = paused_collector(), paused_collector()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_a_server_has_thresholds_of_its_own() -> None:
    before = gc.get_threshold()
    try:
        collect_seldom()
        assert gc.get_threshold() == SERVER_THRESHOLDS
    finally:
        gc.set_threshold(*before)
