"""The application of a service node: it routes each request through the policies to the route's handler."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from aiohttp import hdrs, web

from hsparse.errors import BadRequest, Misconfigured, NotFound
from hsparse.sn.auth.authenticator import Scheme
from hsparse.sn.domains.domain_deletion import DomainDeletions
from hsparse.sn.http.response import respond_error
from hsparse.sn.metrics import OTHER
from hsparse.sn.objects.handlers import ObjectJsonCache
from hsparse.sn.policies.log import RequestLog
from hsparse.sn.policies.policy import Next, Policy, chained
from hsparse.sn.policies.table import policies_of
from hsparse.sn.request import Request
from hsparse.sn.route import Route
from hsparse.sn.routes import ROUTES, spelled_out
from hsparse.sn.service import Component, Service
from hsparse.sn.statistics import Statistics

COMPONENTS: tuple[type[Component], ...] = (Statistics, ObjectJsonCache, DomainDeletions)
"""Components that are made when the node starts, so that a node with an invalid setting does not start."""
BRACES = re.compile(r"{(\w+)(:[^}]*)?}")
"""A placeholder in a path template: `{name}` matches one path component, `{name:.+}` all components that follow."""


@dataclass(slots=True)
class _Place:
    """A node in the tree of path templates, which has one level for each path component."""

    path: str = ""
    literal: dict[str, _Place] = field(default_factory=dict)
    any: _Place | None = None
    rest: _Place | None = None
    answers: dict[str, tuple[Route, Next, dict[str, int]]] = field(default_factory=dict)
    """By method: the route, its handler wrapped by the policies, and the index of each placeholder's path component."""

    def below(self, part: str) -> _Place:
        """Return the child node for `part`, the template's next component; make the child if it does not exist."""
        braces = BRACES.fullmatch(part)
        if braces is None:
            return self.literal.setdefault(part, _Place(f"{self.path}/{part}"))
        path = f"{self.path}/{{{braces[1]}}}"
        if braces[2] is None:
            self.any = self.any or _Place(path)
            return self.any
        self.rest = self.rest or _Place(path)
        return self.rest

    def found(self, parts: Sequence[str], first: int) -> Iterator[_Place]:
        """Yield the tree nodes whose templates match the components `parts[first:]`; literal matches come first."""
        if first == len(parts):
            yield self
            return
        part = parts[first]
        if part in self.literal:
            yield from self.literal[part].found(parts, first + 1)
        if self.any is not None and part:
            yield from self.any.found(parts, first + 1)
        if self.rest is not None and any(parts[first:]):
            yield self.rest


@dataclass(frozen=True, slots=True)
class Parts:
    """What an extension adds to a service node: routes, policies, components and authentication schemes.

    The function `parts(settings, clock)` of the extension's module returns them.
    """

    routes: tuple[Route, ...] = ()
    policies: tuple[tuple[type[Any], Policy], ...] = ()
    """Pairs of a policy class of the core and the policy that runs directly after it, nearer to the handler."""
    components: tuple[type[Component], ...] = ()
    """Components that are made when the node starts. If they define `close()`, it runs when the node stops."""
    provides: Mapping[Any, type[Component]] = field(default_factory=dict)
    """Components by the protocol of the core that they implement; `service.provided(protocol)` returns them."""
    schemes: tuple[Scheme, ...] = ()
    """Authentication schemes in addition to passwords."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Keys to add to the answer of `/about`."""
    running: Callable[[Service, str], AbstractAsyncContextManager[None]] | None = None
    """A function of the service and the node's URL that returns a context manager, entered while the node serves."""


class Application:
    """Answers HTTP requests for `service`. GET routes also answer HEAD, without a body.

    A request that changes something is completed even if its client disconnects, because the client could not tell
    how much of the change was applied. A request that only reads is cancelled if its client disconnects (`HttpServer`).
    """

    def __init__(
        self,
        service: Service,
        routes: tuple[Route, ...],
        policies: Sequence[Policy],
        components: Sequence[type[Component]] = COMPONENTS,
    ) -> None:
        self.service = service
        self._closed = [kind for kind in components if hasattr(kind, "close")]
        self._policies = policies
        self._root = _Place()
        self._changes: set[asyncio.Task[web.StreamResponse]] = set()
        for route in routes:
            for path in spelled_out(route.path):
                self._add(route, path)

    def _add(self, route: Route, path: str) -> None:
        place, parameters = self._root, {}
        for number, part in enumerate(path.split("/")[1:]):
            place = place.below(part)
            if (braces := BRACES.fullmatch(part)) is not None:
                parameters[braces[1]] = number
        if route.method in place.answers:
            raise Misconfigured(f"Two routes answer {route.method} {place.path}: uninstall one extension.")
        shown = replace(route, path=place.path)
        place.answers[route.method] = shown, chained(self._policies, shown), parameters

    async def __call__(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer a request. Errors become answers; only an aborted connection or a cancellation raises."""
        request, answer = self._routed(http)
        if request.route.reads:
            return self._begun(request, await answer(request))
        change = asyncio.ensure_future(answer(request))
        self._changes.add(change)
        change.add_done_callback(self._changes.discard)
        return self._begun(request, await asyncio.shield(change))

    def _begun(self, request: Request, response: web.StreamResponse) -> web.StreamResponse:
        if not response.prepared:
            request.begin(response)
        return response

    def _routed(self, http: web.BaseRequest) -> tuple[Request, Next]:
        """Return a pair: the request, and the function that answers the request (the handler inside the policies)."""
        # `path_safe` is decoded except for %2F and %25, so that an escaped slash does not separate components.
        parts = [
            part.replace("%2F", "/").replace("%25", "%") for part in http.rel_url.path_safe.split("/")[1:]
        ]
        method = hdrs.METH_GET if http.method == hdrs.METH_HEAD else http.method
        allowed: set[str] = set()
        for place in self._root.found(parts, 0):
            found = place.answers.get(http.method) or place.answers.get(method)
            # Proxies block state routes such as /metrics by comparing bytes, so /%6detrics must not reach them.
            if found is not None and (found[0].queued or http.rel_url.raw_path == found[0].path):
                route, answer, parameters = found
                params = {name: parts[number] for name, number in parameters.items()}
                if "path" in params:
                    params["path"] = "/".join(parts[parameters["path"] :])
                return Request(http, self.service, route, params), answer
            allowed.update(
                method for method, (route, _, _) in place.answers.items() if route.queued or found is None
            )
        route = _no_route(http, place.path if allowed else OTHER, allowed)
        return Request(http, self.service, route, {}), chained(self._policies, route)

    async def close(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for changes in flight, cancel the rest, and close the components."""
        if self._changes:
            _, unfinished = await asyncio.wait(self._changes, timeout=timeout)
            for change in unfinished:
                change.cancel()
        for one in self.service.all_buckets():
            for kind in self._closed:
                closed: Any = one.component(kind)
                await closed.close()


def create_app(
    service: Service,
    routes: tuple[Route, ...] = ROUTES,
    log: RequestLog | None = None,
    parts: Sequence[Parts] = (),
) -> Application:
    """Make the application of `service` and of the extensions' `parts`; raise `Misconfigured` for a bad setting."""
    for one in parts:
        service.provides |= one.provides
        service.about |= one.about
    components = (*COMPONENTS, *(kind for one in parts for kind in one.components))
    for kind in components:
        service.component(kind)
    added = [pair for one in parts for pair in one.policies]
    whole = (*routes, *(route for one in parts for route in one.routes))
    return Application(service, whole, policies_of(service, log, added), components)


def _no_route(http: web.BaseRequest, path: str, allowed: set[str]) -> Route:
    """Return a route that refuses an unrouted request: 405 if the path has methods (`allowed`), else 404."""
    handler = _no_resource
    if allowed:
        allowed |= {hdrs.METH_OPTIONS} | ({hdrs.METH_HEAD} if hdrs.METH_GET in allowed else set())
        handler = _preflight if http.method == hdrs.METH_OPTIONS else _no_method
    named = tuple(sorted(allowed))
    return Route(http.method, path, handler, None, queued=False, authenticated=False, allowed=named)


async def _no_resource(request: Request) -> web.StreamResponse:
    raise NotFound(f"There is no resource {request.http.path}; /openapi.json lists all resources.")


async def _no_method(request: Request) -> web.StreamResponse:
    allowed = ", ".join(request.route.allowed)
    answer = respond_error(
        BadRequest(f"{request.http.path} does not answer {request.http.method[:20]}; it answers {allowed}."),
        status=405,
    )
    answer.headers[hdrs.ALLOW] = allowed
    return answer


async def _preflight(request: Request) -> web.StreamResponse:
    return web.Response()
