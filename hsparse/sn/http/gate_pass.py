"""What the gate gave a request, before it was parsed.

Tests: tests/sn/http/test_request_gate.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from hsparse.concurrency.admission import Place
from hsparse.errors import Busy


@dataclass(slots=True)
class GatePass:
    """The request came at `arrived`, a time of the event loop, and waited so many seconds.

    It has a place, it was refused with an `error` or, with neither, is still to ask for its turn.
    """

    arrived: float
    waited: float = 0.0
    place: Place | None = None
    error: Busy | None = None


def pass_of(request: web.BaseRequest) -> GatePass | None:
    """Return what the gate gave a request, None for one that did not come through it."""
    given: GatePass | None = getattr(request.protocol, "gate_pass", None)
    return given


def waited_before(request: web.BaseRequest) -> float:
    """Return the seconds that the request has waited before it was parsed."""
    given = pass_of(request)
    return 0.0 if given is None else given.waited
