"""Clients for the REST API: of a service node and its data node in this process, and of a server elsewhere."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import hdrs, web
from aiohttp.test_utils import BaseTestServer, TestClient

from hsparse.cli.service_node import service_parts
from hsparse.clock import Clock, SystemClock
from hsparse.config import SECTIONS, Settings
from hsparse.errors import Unauthenticated
from hsparse.model.acl import ANONYMOUS, Principal
from hsparse.sn import routes as core
from hsparse.sn.app import Application, create_app
from hsparse.sn.data_nodes.owners import FixedNodes, Owners
from hsparse.sn.metrics import Metrics
from hsparse.sn.policies.log import RequestLog
from hsparse.sn.route import Route
from hsparse.sn.server import AppRunner
from hsparse.sn.service import Service
from hsparse.sn.service_settings import ServiceSettings
from hsparse.wire.message import DataNode
from tests.support.driver import NotDone
from tests.support.memory_node import MemoryNode

BINARY = "application/octet-stream"
PARTS = service_parts(Settings(**{name: section() for name, section in SECTIONS.items()}))
"""What extensions add, by the settings that nobody changed."""
ROUTES = (*core.ROUTES, *(route for one in PARTS for route in one.routes))
"""All routes of a server."""


class AppServer(BaseTestServer):
    """A server of an application, as `hsparse serve` runs it, for `TestClient`."""

    def __init__(self, app: Application) -> None:
        super().__init__()
        self.app = app

    async def _make_runner(self, **kwargs: Any) -> web.BaseRunner:
        return AppRunner(self.app)


class NamedUser:
    """An `Authenticator` that believes every name: `Authorization: test_user1`."""

    only = None
    challenges = ('Basic realm="hsparse", charset="UTF-8"',)

    def __init__(self, *users: Principal) -> None:
        self._users = {user.name: user for user in users}

    async def principal(self, authorization: str | None) -> Principal:
        if authorization is None:
            return ANONYMOUS
        if authorization not in self._users:
            raise Unauthenticated(f"There is no user {authorization!r}.")
        return self._users[authorization]

    def users(self) -> list[Principal]:
        return list(self._users.values())


@dataclass(frozen=True, slots=True)
class Reply:
    """A status, a body (JSON's value, or bytes), and the headers."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Any:
        return self.body[key]

    @property
    def facts(self) -> dict[str, Any]:
        """The body without its links."""
        return {key: value for key, value in self.body.items() if key != "hrefs"}


async def answered(asked: Awaitable[Reply], status: int = 200) -> Reply:
    """Return the answer of a request, which has this status."""
    reply = await asked
    assert reply.status == status, reply.body
    return reply


async def refuses(asked: Awaitable[Reply], status: int, reason: str) -> None:
    """Require that a request is refused with this status, by a message that has this reason."""
    reply = await answered(asked, status)
    assert reason in reply["error"]["message"]


def named_service(
    node: DataNode | dict[str, DataNode],
    clock: Clock,
    *users: Principal,
    settings: ServiceSettings | None = None,
    added: Sequence[Any] = (),
) -> Service:
    """Return a service node that believes every name of a user, over one data node or several by id.

    `added` are settings of extensions.
    """
    nodes = node if isinstance(node, dict) else {"dn-001": node}
    owners = Owners(FixedNodes(nodes))
    authenticator = NamedUser(*users)
    chosen = settings or ServiceSettings(single_user=None)
    sections = {type(one): one for one in added}
    return Service(chosen, owners, clock, authenticator, Metrics(), clock.now(), sections)


def route_client(
    *routes: Route, settings: ServiceSettings | None = None, service: Service | None = None
) -> TestClient[Any, Any]:
    """Return a client of a service node that has these routes alone."""
    clock = SystemClock()
    service = service or named_service(MemoryNode(clock), clock, settings=settings)
    return TestClient(AppServer(create_app(service, routes)))


class RestClient:
    """Requests as `user` about `domain`; `node` answers, through a service node that runs in this process.

    Several data nodes are given by id.
    """

    def __init__(
        self,
        node: DataNode | dict[str, DataNode],
        clock: Clock,
        *users: Principal,
        settings: ServiceSettings | None = None,
        added: Sequence[Any] = (),
        log: Callable[[Metrics], RequestLog] | None = None,
    ) -> None:
        self.nodes = node if isinstance(node, dict) else {"dn-001": node}
        self.service = named_service(node, clock, *users, settings=settings, added=added)
        app = create_app(self.service, log=None if log is None else log(self.service.metrics), parts=PARTS)
        self._client = TestClient(AppServer(app))
        self.user: str | None = users[0].name if users else None
        self.domain: str | None = None

    async def open(self) -> RestClient:
        await self._client.start_server()
        return self

    async def close(self) -> None:
        await self._client.close()

    async def __aenter__(self) -> RestClient:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        """Close the client and its data nodes."""
        await self.close()
        for node in self.nodes.values():
            await node.close()

    async def __call__(self, method: str, path: str, body: Any = None, **options: Any) -> Reply:
        """Send a request; `options` are parameters, but for `user`, `domain`, `accept` and `headers`.

        `body` is a value to be sent as JSON, bytes, or an iterator of bytes that are sent as they come.
        """
        user = options.pop("user", self.user)
        domain = options.pop("domain", self.domain)
        headers = dict(options.pop("headers", {}))
        if user is not None:
            headers[hdrs.AUTHORIZATION] = user
        if "accept" in options:
            headers[hdrs.ACCEPT] = options.pop("accept")
        if isinstance(body, bytes | AsyncIterator):
            headers.setdefault(hdrs.CONTENT_TYPE, BINARY)
        elif body is not None:
            body = json.dumps(body).encode()
            headers.setdefault(hdrs.CONTENT_TYPE, "application/json")
        params = {key: str(value) for key, value in options.items()}
        if domain is not None:
            params["domain"] = domain
        async with self._client.request(method, path, data=body, params=params, headers=headers) as response:
            data = await response.read()
            is_json = response.content_type == "application/json"
            return Reply(response.status, json.loads(data) if is_json and data else data, response.headers)

    @property
    def url(self) -> str:
        """Return where the server answers, without a slash at the end."""
        return str(self._client.make_url("/")).removesuffix("/")


class RemoteRest:
    """Requests about `domain` to the server at `url`, as whoever needs no credentials there."""

    def __init__(self, url: str) -> None:
        self.domain: str | None = None
        timeout = aiohttp.ClientTimeout(total=60)
        self._session = aiohttp.ClientSession(url, timeout=timeout, connector=aiohttp.TCPConnector(limit=0))

    async def close(self) -> None:
        await self._session.close()

    async def __call__(self, method: str, path: str, body: Any = None, **options: Any) -> Reply:
        """Send a request; `options` are parameters, but for `accept` and `headers`.

        `NotDone` when the connection ended before the answer did.
        """
        headers = dict(options.pop("headers", {}))
        if "accept" in options:
            headers["Accept"] = options.pop("accept")
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        if data is not None:
            headers.setdefault("Content-Type", BINARY if data is body else "application/json")
        params = {key: str(value) for key, value in options.items()}
        params |= {} if self.domain is None else {"domain": self.domain}
        try:
            async with self._session.request(
                method, path, data=data, params=params, headers=headers
            ) as response:
                answer = await response.read()
                is_json = response.content_type == "application/json"
                return Reply(response.status, json.loads(answer) if is_json else answer, response.headers)
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
            raise NotDone(f"{method} {path} was not answered: {error!r}") from error
