"""An OpenID Connect issuer on this machine: discovery, keys that rotate, tokens by grants, and a page to sign in.

For tests of whatever trusts an issuer. It knows the users and clients it is told, and signs what it is asked to.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import html
import secrets
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from joserfc import jwk, jws, jwt

AUDIENCE = "hsparse"
LIFETIME = 300


@dataclass(slots=True)
class TokenIssuer:
    """An issuer with one key of each kind; `users` are name -> password, `groups` name -> groups.

    `asked` counts the requests for its keys; while `down` it answers nothing but 503. Its page lets everybody sign in
    as each of the users. `codes` are what it has given to pages: the request for each, and the user. Of tokens of
    identity `changed` replaces claims; those for access are no JSON Web Tokens while they are `opaque`. Its addresses
    for keys, codes and tokens end in `query`; without it there are no keys or tokens.
    """

    users: dict[str, str] = field(default_factory=dict)
    groups: dict[str, list[str]] = field(default_factory=dict)
    url: str = ""
    keys: dict[str, jwk.Key] = field(default_factory=dict)
    serial: int = 0
    asked: int = 0
    down: bool = False
    document: dict[str, Any] = field(default_factory=dict)
    codes: dict[str, tuple[dict[str, str], str]] = field(default_factory=dict)
    changed: dict[str, Any] = field(default_factory=dict)
    opaque: bool = False
    query: str = ""

    def __post_init__(self) -> None:
        self.rotate()

    def rotate(self) -> None:
        """Replace all keys by new ones, with new ids."""
        self.serial += 1
        self.keys = {
            "RS256": jwk.RSAKey.generate_key(
                2048, {"kid": f"rsa-{self.serial}", "use": "sig", "alg": "RS256"}
            ),
            "ES256": jwk.ECKey.generate_key(
                "P-256", {"kid": f"ec-{self.serial}", "use": "sig", "alg": "ES256"}
            ),
        }

    def claims(self, name: str, **changed: Any) -> dict[str, Any]:
        """Return the claims of a token for `name`; a change to None leaves one out."""
        now = int(time.time())
        made: dict[str, Any] = {
            "iss": self.url,
            "aud": [AUDIENCE, "account"],
            "sub": f"id-of-{name}",
            "preferred_username": name,
            "realm_access": {"roles": self.groups.get(name, [])},
            "iat": now,
            "exp": now + LIFETIME,
        }
        return {key: value for key, value in (made | changed).items() if value is not None}

    def token(self, name: str, algorithm: str = "RS256", **changed: Any) -> str:
        """Return a token for `name`."""
        key = self.keys[algorithm]
        return jwt.encode({"alg": algorithm, "kid": key.kid}, self.claims(name, **changed), key, [algorithm])

    def signed(self, header: dict[str, Any], payload: bytes, key: jwk.Key) -> str:
        """Return any payload signed with any key, under any header."""
        registry = jws.JWSRegistry(algorithms=[header["alg"]], strict_check_header=False)
        return jws.serialize_compact(header, payload, key, registry=registry)

    def app(self) -> web.Application:
        """Return the application that answers."""
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self._discovery)
        app.router.add_get("/keys", self._keys)
        app.router.add_get("/authorize", self._authorize)
        app.router.add_post("/token", self._token)
        app.router.add_post("/realms/{realm}/protocol/openid-connect/token", self._token)
        return app

    async def _discovery(self, request: web.Request) -> web.Response:
        self._check_up()
        endpoints = {"token_endpoint": "token", "authorization_endpoint": "authorize", "jwks_uri": "keys"}
        found = {"issuer": self.url} | {
            name: f"{self.url}/{path}{self.query}" for name, path in endpoints.items()
        }
        return web.json_response(found | self.document)

    async def _keys(self, request: web.Request) -> web.Response:
        self.asked += 1
        self._check_up()
        self._check_query(request)
        return web.json_response({"keys": [key.as_dict(private=False) for key in self.keys.values()]})

    def code(self, asked: dict[str, str], name: str) -> str:
        """Return a code for a page's request, with which `name` signs in."""
        made = secrets.token_urlsafe()
        self.codes[made] = (asked, name)
        return made

    async def _authorize(self, request: web.Request) -> web.Response:
        """Answer with a page that has a link back for each user, and one that refuses."""
        asked = dict(request.query)
        assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
        answers = {
            f"Sign in as {name}": {"code": self.code(asked, name), "iss": self.url} for name in self.users
        }
        answers["Refuse"] = {"error": "access_denied"}
        links = []
        for text, answer in answers.items():
            url = f"{asked['redirect_uri']}?{urlencode(answer | {'state': asked['state']})}"
            links.append(f'<a href="{html.escape(url)}">{text}</a>')
        return web.Response(
            text=f"<!doctype html><title>issuer</title>{' '.join(links)}", content_type="text/html"
        )

    def _exchange(self, form: dict[str, str]) -> web.Response:
        """Answer with tokens for a code, which is used up (RFC 6749, section 4.1.3; RFC 7636, section 4.6)."""
        asked, name = self.codes.pop(form.get("code", ""), ({}, ""))
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if (asked.get("code_challenge"), asked.get("client_id"), asked.get("redirect_uri")) != (
            challenge,
            form.get("client_id"),
            form.get("redirect_uri"),
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        changed = {"aud": asked["client_id"], "nonce": asked.get("nonce")} | self.changed
        return web.json_response(
            {
                "access_token": "opaque" if self.opaque else self.token(name),
                "id_token": self.token(name, **changed),
                "token_type": "Bearer",
                "expires_in": LIFETIME,
            }
        )

    async def _token(self, request: web.Request) -> web.Response:
        self._check_query(request)
        form = {key: str(value) for key, value in (await request.post()).items()}
        if form.get("grant_type") == "authorization_code":
            self._check_up()
            return self._exchange(form)
        names = {"client_credentials": ("client_id", "client_secret"), "password": ("username", "password")}
        fields = names.get(str(form.get("grant_type")))
        if fields is None:
            raise web.HTTPBadRequest(text='{"error": "unsupported_grant_type"}')
        name, secret = (str(form.get(one)) for one in fields)
        if self.users.get(name) != secret:
            raise web.HTTPUnauthorized(text='{"error": "invalid_grant"}')
        answer = {"access_token": self.token(name), "token_type": "Bearer", "expires_in": LIFETIME}
        return web.json_response(answer)

    def _check_up(self) -> None:
        if self.down:
            raise web.HTTPServiceUnavailable

    def _check_query(self, request: web.Request) -> None:
        if request.query_string != self.query.removeprefix("?"):
            raise web.HTTPNotFound


@asynccontextmanager
async def serving(issuer: TokenIssuer) -> AsyncIterator[TokenIssuer]:
    """Serve an issuer on the running loop while the context lasts."""
    runner = web.AppRunner(issuer.app(), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        issuer.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield issuer
    finally:
        await runner.cleanup()


@contextmanager
def serving_in_thread(issuer: TokenIssuer) -> Iterator[TokenIssuer]:
    """Serve an issuer on a loop in a thread of its own while the context lasts."""
    ready, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with serving(issuer):
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        if not ready.wait(20):
            raise RuntimeError("The issuer did not start.")
        yield issuer
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
