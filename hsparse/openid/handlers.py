"""Handlers of the sign-in at an issuer: the requests of a page before and after it sends a user to the issuer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from aiohttp import hdrs, web

from hsparse.api import (
    Clock,
    Misconfigured,
    NotFound,
    OptionalModule,
    Parts,
    Request,
    Route,
    Settings,
    Unauthenticated,
    read_json,
    respond,
)
from hsparse.openid.code_flow import IssuedTokens, read_grant
from hsparse.openid.settings import OpenIdSettings

if TYPE_CHECKING:
    from hsparse.openid.code_flow import CodeFlow

SIGN_IN = OptionalModule("hsparse.openid.code_flow", "server")


async def get_sign_in_client(flow: CodeFlow | None, request: Request) -> web.StreamResponse:
    """Handle `GET /sign-in/client`: return the issuer, its authorization endpoint, the client id and the scopes."""
    flow = _known(flow)
    async with request.without_place():
        found = await flow.description()
    return respond(found)


async def post_sign_in_token(flow: CodeFlow | None, request: Request) -> web.StreamResponse:
    """Handle `POST /sign-in/token`: exchange an issuer's code for a token; return the token and the user's name."""
    flow = _known(flow)
    grant = read_grant(await read_json(request))
    async with request.without_place():
        tokens = await flow.exchange(grant)
    token, name = await _accepted(request, tokens)
    answer = respond({"token": token, "username": name})
    answer.headers[hdrs.CACHE_CONTROL] = "no-store"
    return answer


async def _accepted(request: Request, tokens: IssuedTokens) -> tuple[str, str]:
    """Return a pair: the token that this server accepts, and the user's name.

    The access token is preferred; the ID token is used if the server cannot verify the access token.
    """
    authenticator = request.service.authenticator
    try:
        return tokens.access, (await authenticator.principal(f"Bearer {tokens.access}")).name
    except Unauthenticated as refused:
        try:
            return tokens.identity, (await authenticator.principal(f"Bearer {tokens.identity}")).name
        except Unauthenticated:
            raise refused from None


def _known(flow: CodeFlow | None) -> CodeFlow:
    if flow is None:
        raise NotFound("This server has no sign-in at an issuer: its operator can set --oidc-client-id.")
    return flow


def parts(settings: Settings, clock: Clock) -> Parts:
    """Return the sign-in parts of a service node; if no issuer is set, the modules of sign-in are not imported."""
    asked = settings.section(OpenIdSettings)
    if asked.oidc_issuer is None and asked.oidc_audience:
        raise Misconfigured("--oidc-audience needs --oidc-issuer: name the issuer of the tokens.")
    flow, tokens = None, None
    if asked.oidc_issuer is not None:
        flow, tokens = SIGN_IN.load().make_sign_in(asked, clock)
    elif asked.oidc_client_id is not None:
        raise Misconfigured("--oidc-client-id needs --oidc-issuer: name the issuer of the client.")
    return Parts(
        routes=(
            Route("GET", "/sign-in/client", partial(get_sign_in_client, flow), None),
            Route("POST", "/sign-in/token", partial(post_sign_in_token, flow), None, reads_only=True),
        ),
        schemes=() if tokens is None else (tokens,),
        about={} if flow is None else {"sign_in_issuer": flow.issuer.url},
    )
