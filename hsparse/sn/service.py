"""A service node's parts, made once and given to every request."""

from __future__ import annotations

from dataclasses import dataclass

from hsparse.clock import Clock
from hsparse.sn.authenticator import Authenticator
from hsparse.sn.metrics import Metrics
from hsparse.sn.owners import Owners
from hsparse.sn.settings import ServiceSettings


@dataclass(frozen=True, slots=True)
class Service:
    """What handlers reach through their context."""

    settings: ServiceSettings
    owners: Owners
    clock: Clock
    authenticator: Authenticator
    metrics: Metrics
    start_time: float
