"""Handlers of the sign-in at an issuer: what a page asks before it sends somebody there, and afterwards."""

from __future__ import annotations

import re

from aiohttp import hdrs, web

from hsparse.errors import BadRequest, NotFound, Unauthenticated
from hsparse.sn.auth.code_flow import CodeFlow, CodeGrant, IssuedTokens
from hsparse.sn.http.request import read_json
from hsparse.sn.http.response import respond
from hsparse.sn.request import Request

MAX_CODE = 8192
MAX_URL = 2048
VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}", re.ASCII)


async def get_sign_in_client(request: Request) -> web.StreamResponse:
    """`GET /sign-in/client`: the issuer, where it signs people in, and as which client."""
    flow = _flow(request)
    async with request.without_place():
        found = await flow.description()
    return respond(found)


async def post_sign_in_token(request: Request) -> web.StreamResponse:
    """`POST /sign-in/token`: a token for the code of an issuer, and whom this server takes its bearer for."""
    flow = _flow(request)
    grant = read_grant(await read_json(request))
    async with request.without_place():
        tokens = await flow.exchange(grant)
    token, name = await _accepted(request, tokens)
    answer = respond({"token": token, "username": name})
    answer.headers[hdrs.CACHE_CONTROL] = "no-store"
    return answer


def read_grant(body: object) -> CodeGrant:
    """Return the grant in a body; `BadRequest` names what is wrong, without what is in it."""
    members = body if isinstance(body, dict) else {}
    code = _text(members, "code", MAX_CODE)
    redirect_uri = _text(members, "redirect_uri", MAX_URL)
    return CodeGrant(code, _random_text(members, "verifier"), _random_text(members, "nonce"), redirect_uri)


def _random_text(members: dict[str, object], name: str) -> str:
    """Return a verifier, or a nonce, which is made in the same way (RFC 7636, section 4.1)."""
    value = _text(members, name, 128)
    if not VERIFIER.fullmatch(value):
        raise BadRequest(f"{name} must have 43 to 128 letters, digits, and -._~ (RFC 7636, section 4.1).")
    return value


def _text(members: dict[str, object], name: str, most: int) -> str:
    value = members.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= most:
        raise BadRequest(f"{name} must be a text of 1 to {most} characters.")
    return value


async def _accepted(request: Request, tokens: IssuedTokens) -> tuple[str, str]:
    """Return the token that signs in here, and the user's name.

    It is the one for access; that of identity where the issuer gives none that a server can check.
    """
    authenticator = request.service.authenticator
    try:
        return tokens.access, (await authenticator.principal(f"Bearer {tokens.access}")).name
    except Unauthenticated as refused:
        try:
            return tokens.identity, (await authenticator.principal(f"Bearer {tokens.identity}")).name
        except Unauthenticated:
            raise refused from None


def _flow(request: Request) -> CodeFlow:
    flow = request.service.code_flow
    if flow is None:
        raise NotFound("This server signs nobody in at an issuer: its operator may set --oidc-client-id.")
    return flow
