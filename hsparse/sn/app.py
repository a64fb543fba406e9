"""The application: middleware, and the binding of routes, which authenticates and finds the domain of each request."""

from __future__ import annotations

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from hsparse.errors import BadRequest, Forbidden, Unauthenticated
from hsparse.model.acl import Principal
from hsparse.sn.context import Context, Domain
from hsparse.sn.domains.domain_deletion import DomainDeletions
from hsparse.sn.files.file_plans import FilePlans
from hsparse.sn.http.body_memory import MEMORY_KEY, BodyMemory
from hsparse.sn.http.caching import keep_private
from hsparse.sn.http.compression import POLICY_KEY, compress_body
from hsparse.sn.http.connection import OnlyReading, begin_in_time
from hsparse.sn.http.cors import VARYING, Cors
from hsparse.sn.http.error_middleware import AioHandler, ErrorMiddleware, answer_expect
from hsparse.sn.http.form_guard import FormGuard
from hsparse.sn.http.page_guard import PageGuard, named_origins
from hsparse.sn.http.request_admission import set_deadline, wait_for_place
from hsparse.sn.http.request_gate import GATE_KEY, RequestGate, stranger
from hsparse.sn.http.request_log import TRACE_KEY
from hsparse.sn.http.response import SERVER_NAME
from hsparse.sn.http.stream import ANSWERS_KEY
from hsparse.sn.jobs.job_queue import JobQueue
from hsparse.sn.quotas.folder_count import OBJECT_BYTES
from hsparse.sn.quotas.quotas import DomainNames, Quotas
from hsparse.sn.records.access import find_allowed, find_still_allowed
from hsparse.sn.records.domain_path import request_place
from hsparse.sn.records.object_json import ObjectJsonCache
from hsparse.sn.records.second_names import names_of
from hsparse.sn.routes import ROUTES, Route, spelled_out
from hsparse.sn.service import Component, Service
from hsparse.sn.statistics import Statistics

IDENTITY = "identity"
CHUNKED = "chunked"
UNCHECKED_BODY = 1 << 20
"""Bytes of the largest body on routes whose handlers check rights themselves: every client can send one."""
COMPONENTS: tuple[type[Component], ...] = (Statistics, ObjectJsonCache, FilePlans, JobQueue, DomainDeletions)
"""Components made at the start, so that a wrong setting prevents it."""
FIXED_HEADERS = {
    "Server": SERVER_NAME,
    "X-XSS-Protection": "1; mode=block",
    "X-Content-Type-Options": "nosniff",  # values are never a page or a script, whatever their bytes look like
    "Cross-Origin-Resource-Policy": "same-origin",  # nor are they embedded in another site's page
}


def create_app(service: Service, routes: tuple[Route, ...] = ROUTES) -> web.Application:
    """Make the application that answers `routes` for `service`; `Misconfigured` when a component cannot be made.

    What answers GET answers HEAD too.
    """
    for kind in COMPONENTS:
        service.component(kind)
    cors = Cors(_readers(service))
    app = web.Application(middlewares=_middlewares(service))

    async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
        begin_in_time(request)
        if not service.ready:
            response.force_close()
            response.headers[hdrs.CONNECTION] = "close"
        response.headers.update(FIXED_HEADERS)
        service.log.add_id(request, response)
        cors.add(request, response)
        keep_private(request, response)

    app.on_response_prepare.append(add_headers)
    app[GATE_KEY] = _gate(service, routes)
    app[ANSWERS_KEY] = service.answers

    async def stop(app: web.Application) -> None:
        for one in service.all_buckets():
            await one.component(Statistics).close()
            await one.component(Quotas).close()
            await one.component(DomainDeletions).close()

    app.on_cleanup.append(stop)
    handlers: dict[str, dict[str, AioHandler]] = {}
    for route in routes:
        for path in spelled_out(route.path):
            handlers.setdefault(path, {"OPTIONS": cors.preflight})[route.method] = bind_route(service, route)
    for path, by_method in handlers.items():
        if hdrs.METH_GET in by_method:
            # The same headers: aiohttp sends no body.
            by_method.setdefault(hdrs.METH_HEAD, by_method[hdrs.METH_GET])
        resource = app.router.add_resource(path)
        for method, handler in by_method.items():
            resource.add_route(method, handler, expect_handler=answer_expect)
    return app


def _readers(service: Service) -> tuple[str, ...]:
    """Return the origins whose pages may read answers: without users those that are named alone."""
    settings = service.settings
    return (
        settings.cors_origins if settings.single_user is None else tuple(named_origins(settings.cors_origins))
    )


def _gate(service: Service, routes: tuple[Route, ...]) -> RequestGate:
    """Return the gate before the parser, which servers of connections with gates use."""
    return RequestGate(
        service.admission,
        service.users,
        service.log,
        service.metrics,
        service.clock,
        open_paths=frozenset(path for one in routes if not one.queued for path in spelled_out(one.path)),
        headers={**FIXED_HEADERS, **VARYING},
        timeout=service.settings.request_timeout,
        keeps_open=lambda: service.ready,
    )


def _middlewares(service: Service) -> list[Middleware]:
    """Return the middlewares, the outermost first."""
    settings = service.settings
    errors = ErrorMiddleware(service.authenticator.challenges)
    guard = (
        FormGuard(settings.cors_origins)
        if settings.single_user is None
        else PageGuard(settings.allowed_hosts, settings.cors_origins)
    )
    return [
        service.log.middleware,
        service.metrics.middleware,
        _compression(service),
        errors.middleware,
        guard.middleware,
    ]


def bind_route(service: Service, route: Route) -> AioHandler:
    """Return the function that aiohttp calls: authenticate, wait, find the domain, check right and quotas, handle."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if not route.queued and request.rel_url.raw_path != route.path:
            # A proxy keeps some of these paths to itself by comparing their bytes: /%6detrics is none of them.
            raise web.HTTPNotFound
        trace = request[TRACE_KEY]
        principal = await _principal(service, request)
        trace.user = principal.name
        if not route.queued:
            return await answer(request, principal)
        set_deadline(request, trace, service.settings.request_timeout)
        place = await wait_for_place(service.admission, request)
        try:
            if not route.only_reads:
                return await answer(request, principal)
            with OnlyReading(request, service.settings.max_read_time):
                return await answer(request, principal)
        finally:
            place.leave()

    async def answer(request: web.Request, principal: Principal) -> web.StreamResponse:
        trace = request[TRACE_KEY]
        node, path = request_place(service, request)
        trace.domain = path
        domain = None
        if route.right is not None:
            if path is None:
                raise BadRequest("No domain given: name it by ?domain= or the X-Hdf-domain header.")
            domain = await find_allowed(node, path, principal, route.right)

        async def find_again() -> Domain | None:
            await _require_same(service, request, principal)
            if domain is None or route.right is None:
                return None
            return await find_still_allowed(node, domain, principal, route.right)

        most = service.settings.max_request_size
        limit = most if domain is not None else min(UNCHECKED_BODY, most)
        names = DomainNames(path or "/") if domain is None else names_of(domain)
        quotas = node.component(Quotas)
        with quotas.growth(names, principal, of_body=route.grows) as growth:
            if route.grows:
                await growth.check(max(min(request.content_length or 0, limit), OBJECT_BYTES))
            context = Context(request, limit, node, principal, path, domain, growth, find_again)
            if not request.body_exists:
                return await route.handler(context)
            return await _handle_body(service, route, context)

    return handle


async def _handle_body(service: Service, route: Route, context: Context) -> web.StreamResponse:
    """Handle a request with a body, within the memory for bodies."""
    request = context.request
    if not route.streams:
        context.check_length()
    if request.headers.get(hdrs.CONTENT_ENCODING, IDENTITY).lower() != IDENTITY:
        raise BadRequest("A request's body must not be compressed: leave out Content-Encoding.")
    if request.headers.get(hdrs.TRANSFER_ENCODING, CHUNKED).strip().lower() != CHUNKED:
        raise BadRequest("The only Transfer-Encoding of a request's body is chunked; leave out the others.")
    async with BodyMemory(service.bodies) as memory:
        request[MEMORY_KEY] = memory
        return await route.handler(context)


async def _principal(service: Service, request: web.Request) -> Principal:
    """Return the principal and count the request; without a valid credential it counts for the remote address."""
    trace = request[TRACE_KEY]
    trace.queue_user = stranger(request.remote)
    authorization = request.headers.get(hdrs.AUTHORIZATION)
    try:
        principal = await service.authenticator.principal(authorization)
    except Unauthenticated:
        service.rates.take(trace.queue_user)
        raise
    if not principal.anonymous:
        trace.queue_user = principal.name
        service.users.learn(authorization, principal.name)
    service.rates.take(trace.queue_user)
    return principal


async def _require_same(service: Service, request: web.Request, principal: Principal) -> None:
    """Raise `Unauthenticated` if the credential is worth nothing any more, `Forbidden` if the principal is another."""
    found = await service.authenticator.principal(request.headers.get(hdrs.AUTHORIZATION))
    if found != principal:
        raise Forbidden(
            f"The role or the groups of {principal.name} were changed before the body had come; nothing was applied: "
            "send the request again."
        )


def _compression(service: Service) -> Middleware:
    """Return the middleware that compresses whole answers, and notes the policy for streams."""
    policy = service.settings.compress

    @web.middleware
    async def compress(request: web.Request, handler: AioHandler) -> web.StreamResponse:
        request[POLICY_KEY] = policy
        response = await handler(request)
        await compress_body(request, response, policy)
        return response

    return compress
