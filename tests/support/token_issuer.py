"""An OpenID Connect issuer on this machine: discovery, keys that rotate, and tokens by two grants.

For tests of whatever trusts an issuer. It knows the users and clients it is told, and signs what it is asked to.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from joserfc import jwk, jws, jwt

AUDIENCE = "hsparse"
LIFETIME = 300


@dataclass(slots=True)
class TokenIssuer:
    """An issuer with one key of each kind; `users` are name -> password, `groups` name -> groups.

    `asked` counts the requests for its keys; while `down` it answers nothing but 503.
    """

    users: dict[str, str] = field(default_factory=dict)
    groups: dict[str, list[str]] = field(default_factory=dict)
    url: str = ""
    keys: dict[str, jwk.Key] = field(default_factory=dict)
    serial: int = 0
    asked: int = 0
    down: bool = False
    document: dict[str, Any] = field(default_factory=dict)

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
        app.router.add_post("/token", self._token)
        app.router.add_post("/realms/{realm}/protocol/openid-connect/token", self._token)
        return app

    async def _discovery(self, request: web.Request) -> web.Response:
        self._check_up()
        found = {"issuer": self.url, "jwks_uri": f"{self.url}/keys", "token_endpoint": f"{self.url}/token"}
        return web.json_response(found | self.document)

    async def _keys(self, request: web.Request) -> web.Response:
        self.asked += 1
        self._check_up()
        return web.json_response({"keys": [key.as_dict(private=False) for key in self.keys.values()]})

    async def _token(self, request: web.Request) -> web.Response:
        form = await request.post()
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
