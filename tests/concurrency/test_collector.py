"""When the cycle collector is paused, and how seldom it runs."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hsparse.clock import Clock
from hsparse.concurrency.collector import (
    SERVER_THRESHOLDS,
    WHOLE_EVERY,
    collect_seldom,
    paused_collector,
)
from tests.testing.manual_clock import ManualClock


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
    with server_collector(ManualClock()):
        assert gc.get_threshold() == SERVER_THRESHOLDS


class Cycle:
    """An object that only the collector frees."""

    def __init__(self) -> None:
        self.own = self


def test_objects_that_stay_are_looked_through_once_until_it_is_time_again() -> None:
    clock = ManualClock()
    with server_collector(clock):
        stays, later = Cycle(), Cycle()
        gone, known = weakref.ref(later), [Cycle() for _ in range(100)]
        gc.collect()
        assert not {id(one) for one in (stays, later, *known)} & {id(one) for one in gc.get_objects()}
        at_once = weakref.ref(new := Cycle())
        del later, new
        gc.collect()
        assert at_once() is None
        assert gone() is not None
        clock.time += WHOLE_EVERY + 1
        gc.collect()
        assert gone() is None


@contextmanager
def server_collector(clock: Clock) -> Iterator[None]:
    """Have the collector run as in a server for the context."""
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    try:
        collect_seldom(clock.monotonic)
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks[:] = callbacks
        gc.unfreeze()
