"""The door: every request is authenticated, placed in its domain and answered here, errors included."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from aiohttp import hdrs, web

from hsparse.errors import BadRequest, HsparseError, NotFound
from hsparse.sn.access import domain_path, find_domain, require
from hsparse.sn.context import Context
from hsparse.sn.respond import respond_error
from hsparse.sn.route import Route
from hsparse.sn.routes import ROUTES
from hsparse.sn.service import Service

log = logging.getLogger(__name__)

UNCHECKED_BODY = 1 << 20
"""The largest body on routes whose handlers check rights themselves: anybody can send one."""
METHODS = "GET, POST, DELETE, PUT, OPTIONS"
HEADERS = "Authorization, Content-Type, Accept, X-Hdf-domain, X-Hdf-bucket"
FIXED_HEADERS = {
    "Server": "hsparse",
    "X-XSS-Protection": "1; mode=block",
    hdrs.ACCESS_CONTROL_ALLOW_ORIGIN: "*",
}
AioHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def create_app(service: Service, routes: tuple[Route, ...] = ROUTES) -> web.Application:
    """Make the application that answers `routes` for `service`."""
    app = web.Application(middlewares=[service.metrics.middleware, answer_errors])
    app.on_response_prepare.append(add_headers)

    async def stop(app: web.Application) -> None:
        await service.statistics.close()

    app.on_cleanup.append(stop)
    for route in routes:
        app.router.add_route(route.method, route.path, bind(service, route))
    for path in dict.fromkeys(route.path for route in routes):
        app.router.add_route("OPTIONS", path, preflight)
    return app


def bind(service: Service, route: Route) -> AioHandler:
    """Return what aiohttp calls for a route: who asks, about what, may they; then the handler."""

    async def handle(request: web.Request) -> web.StreamResponse:
        principal = await service.authenticator.principal(request.headers.get(hdrs.AUTHORIZATION))
        path = domain_path(service, request)
        domain = None
        if route.right is not None:
            if path is None:
                raise BadRequest("No domain given: name it by ?domain= or the X-Hdf-domain header.")
            domain = await find_domain(service, path)
        limit = 0 if domain is not None else min(UNCHECKED_BODY, service.settings.max_request_size)
        context = Context(service, request, principal, path, domain, limit)
        if domain is not None and route.right is not None:
            await require(context, domain, route.right)
        if not request.body_exists:
            return await route.handler(context)
        context.check_length()
        async with service.bodies.hold(request.content_length or context.most):
            return await route.handler(context)

    return handle


@web.middleware
async def answer_errors(request: web.Request, handler: AioHandler) -> web.StreamResponse:
    """Turn every error into an answer of the one shape; what is not an hsparse error is logged."""
    try:
        return await handler(request)
    except HsparseError as error:
        answer = respond_error(error)
        if answer.status >= 500 and answer.status != 503:
            log.error("%s %s: %s", request.method, request.path, error.message)
        return answer
    except web.HTTPNotFound:
        return respond_error(NotFound(f"There is no resource {request.path}; see the REST reference."))
    except web.HTTPMethodNotAllowed as error:
        answer = respond_error(BadRequest(f"{request.path} does not answer {request.method}."))
        answer.set_status(405)
        answer.headers[hdrs.ALLOW] = ", ".join(sorted(error.allowed_methods))
        return answer
    except web.HTTPException:
        raise
    except Exception:
        # The edge of the process: a defect must cost one request its answer, not the node its life.
        log.exception("%s %s failed", request.method, request.path)
        return respond_error(HsparseError("Internal error; the server's log has the details."))


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(FIXED_HEADERS)


async def preflight(request: web.Request) -> web.Response:
    """Answer a CORS preflight: any origin may ask, credentials still decide."""
    return web.Response(
        headers={
            hdrs.ACCESS_CONTROL_ALLOW_METHODS: METHODS,
            hdrs.ACCESS_CONTROL_ALLOW_HEADERS: HEADERS,
            hdrs.ACCESS_CONTROL_MAX_AGE: "86400",
        }
    )
