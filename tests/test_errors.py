"""Errors: one class for each kind, and each travels between nodes as a kind and a sentence."""

from __future__ import annotations

import pytest

from hsparse.errors import ERRORS, MISSING_KINDS, Busy, ErrorKind, HsparseError, RateLimited
from hsparse.wire.message import Failure
from hsparse.wire.remote_node import STATUS


def test_every_kind_has_a_class_and_a_status() -> None:
    assert set(ERRORS) == set(STATUS) == set(ErrorKind)
    assert {kind: error.kind for kind, error in ERRORS.items()} == {kind: kind for kind in ErrorKind}
    assert {STATUS[kind] for kind in MISSING_KINDS} == {404, 410}


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_an_error_travels_as_its_kind_and_sentence(error: type[HsparseError]) -> None:
    failure = Failure.of(error("It failed."))
    assert (failure.kind, failure.message) == (error.kind.value, "It failed.")
    again = failure.error()
    assert (type(again), again.message, str(again)) == (error, "It failed.", "It failed.")


def test_a_busy_node_says_when_to_come_again() -> None:
    error = Failure.of(Busy("It is full.", 7.0)).error()
    assert isinstance(error, Busy)
    assert error.retry_after == 7.0


def test_the_kind_of_a_newer_node_is_an_internal_error_with_its_sentence() -> None:
    error = Failure("overgrown", "It is overgrown.").error()
    assert (type(error), error.kind, error.message) == (HsparseError, ErrorKind.INTERNAL, "It is overgrown.")


def test_a_rate_limit_says_when_to_try_again() -> None:
    assert RateLimited("Too many.", 2.5).retry_after == 2.5
