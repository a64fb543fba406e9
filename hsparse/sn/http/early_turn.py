"""The turn of a request that its connection asked for before it was parsed.

Tests: tests/sn/http/test_request_gate.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from hsparse.concurrency.admission import Place
from hsparse.errors import Busy


@dataclass(slots=True)
class EarlyTurn:
    """A turn: the request came at `arrived`, a time of the event loop, and waited so many seconds.

    It has a place, was refused or, with neither, is still to ask for its turn.
    """

    arrived: float
    waited: float = 0.0
    place: Place | None = None
    refusal: Busy | None = None


def early_turn(request: web.BaseRequest) -> EarlyTurn | None:
    """Return the turn that the request's connection asked for, None if it did not."""
    turn: EarlyTurn | None = getattr(request.protocol, "turn", None)
    return turn


def waited_before(request: web.BaseRequest) -> float:
    """Return the seconds that the request has waited before it was parsed."""
    turn = early_turn(request)
    return 0.0 if turn is None else turn.waited
