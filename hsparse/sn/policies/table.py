"""The list of policies that requests pass, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hsparse.sn.policies.access import AccessPolicy
from hsparse.sn.policies.admission import Bodies, Queueing
from hsparse.sn.policies.authentication import Authentication, RateLimit
from hsparse.sn.policies.compression import Compression
from hsparse.sn.policies.cors import Cors
from hsparse.sn.policies.errors import Errors
from hsparse.sn.policies.guards import FormGuard, PageGuard, named_origins
from hsparse.sn.policies.log import RequestLog
from hsparse.sn.policies.policy import Policy
from hsparse.sn.service import Service


def policies_of(
    service: Service, log: RequestLog | None = None, added: Sequence[tuple[type[Any], Policy]] = ()
) -> tuple[Policy, ...]:
    """Return the policies of a service node, the outermost first; without `log`, requests are counted but not logged.

    `added` has pairs of a policy class and a policy to insert directly after the policy of that class.
    """
    settings = service.settings
    limited = None
    if settings.rate_limit:
        limited = RateLimit(settings.rate_limit, settings.rate_burst, service.clock)
    origins, has_users = settings.cors_origins, settings.single_user is None
    policies: list[Policy] = [
        log or RequestLog(service.clock, service.metrics),
        Compression(settings.compress),
        Errors(service.authenticator.challenges),
        # Without users, only pages of named origins may read answers.
        Cors(origins if has_users else tuple(named_origins(origins))),
        FormGuard(origins) if has_users else PageGuard(settings.allowed_hosts, origins),
        *((Authentication(limited),) if limited or service.authenticator.only is None else ()),
        Queueing(service.admission, settings.request_timeout, settings.max_read_time),
        AccessPolicy(),
        Bodies(),
    ]
    for after, policy in reversed(added):
        place = next(number for number, one in enumerate(policies, 1) if isinstance(one, after))
        policies.insert(place, policy)
    return tuple(policies)
