"""A request: what it is, who sends it, which domain it names, and how long anybody waits for its answer.

It is made once, in `hsparse.sn.app`, filled in by the policies on its way (`hsparse.sn.policies`), and handed down by
argument. Nothing else carries the state of a request but the trace for its log lines.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import orjson
from aiohttp import hdrs, web

from hsparse import __version__
from hsparse.concurrency.admission import Place
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.concurrency.request_trace import RequestTrace
from hsparse.errors import BadRequest, Forbidden, TooLarge, Unsupported
from hsparse.model.acl import ANONYMOUS, Principal, Right, is_granted
from hsparse.model.ids import ID_DOMAIN, check_id, heads_of, moved_id
from hsparse.model.schema import VIRTUAL_DATA
from hsparse.sn.body_memory import FIRST, BodyMemory
from hsparse.sn.coding import Coding
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.route import Route
from hsparse.sn.service import Component, Service
from hsparse.wire.message import Record

JSON_HEADER = "application/json; charset=utf-8"
JSON_HEADERS = {"Content-Type": JSON_HEADER}
SERVER_NAME = f"hsparse/{__version__}"
"""The header `Server` of every answer (RFC 9110, section 10.2.4)."""
BODY_PATIENCE = 30.0
BODY_RATE = 64 * 1024
"""After `BODY_PATIENCE` seconds a body must have come at this many bytes a second; and it never rests so long."""
MAX_WAIT = 60
"""The most seconds that a request waits for what it names."""
MAX_DIGITS = 19
"""The most digits of a number in a query: those of 2^63-1."""
TRUE = frozenset({"1", "t", "true", "yes", "on"})
FALSE = frozenset({"", "0", "f", "false", "no", "off"})
OBJECT_BYTES = 4096
"""What an object counts at least: a file system gives it whole blocks, so that many small objects fill it, too."""
UNKEPT = "private, no-store"
ASK_AGAIN = "private, no-cache"
"""For answers with an etag: the user's own cache may keep them, and asks whether they are still valid (RFC 9111)."""
FIXED_HEADERS = {
    "Server": SERVER_NAME,
    "X-XSS-Protection": "1; mode=block",
    "X-Content-Type-Options": "nosniff",  # values are never a page or a script, whatever their bytes look like
    "Cross-Origin-Resource-Policy": "same-origin",  # nor are they embedded in another site's page
}


def respond(value: Any, status: int = 200) -> web.Response:
    """Answer with JSON; numpy scalars and arrays are allowed in `value`."""
    body = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    return web.Response(body=body, status=status, headers=JSON_HEADERS)


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain or folder: its absolute path and its stored record, which must not be modified.

    A folder has no `root`.
    """

    path: str
    record: dict[str, Any]
    first: Domain | None = None
    """Of a second name the first one, whose rights count too."""

    @property
    def root(self) -> str | None:
        root = self.record.get("root")
        return root if isinstance(root, str) else None

    @property
    def root_group(self) -> str:
        """The root group's id; `BadRequest` of a folder."""
        if self.root is None:
            raise BadRequest(f"{self.path} is a folder: it has no objects.")
        return self.root

    def member(self, id: str, collection: str | None = None) -> str:
        """Return `id` if it is well formed, in `collection` and in this domain; `BadRequest` otherwise."""
        check_id(id, collection)
        if id[ID_DOMAIN] != self.root_group[ID_DOMAIN]:
            return self._own_id(id)
        return id

    def _own_id(self, id: str) -> str:
        """Return the id here of an object of a domain that this one began as, as references are."""
        for head in heads_of(self.record):
            if id[ID_DOMAIN] == head[ID_DOMAIN]:
                return moved_id(id, head, self.root_group)
        raise BadRequest(f"{id} is not in the domain {self.path}.")

    @property
    def identity(self) -> dict[str, Any]:
        """What tells this domain from others that were or will be at its path."""
        return {name: self.record.get(name) for name in ("created", "root")}

    def allows(self, principal: Principal, right: Right) -> bool:
        """Say whether `principal` has `right` in this domain, and by the first name of its objects."""
        if principal.admin:
            return True
        own = is_granted(self.record.get("acls") or {}, principal, right)
        return own and (self.first is None or self.first.allows(principal, right))

    def require(self, principal: Principal, right: Right) -> None:
        """Raise `Forbidden` if `principal` does not have `right`."""
        if not self.allows(principal, right):
            raise self._refusal(principal, right)

    def _refusal(self, principal: Principal, right: Right) -> Forbidden:
        """Return the error; without the right to read, that of a name that is not there."""
        lacking = right if self.allows(principal, Right.READ) else Right.READ
        if replace(self, first=None).allows(principal, lacking):
            return Forbidden(
                f"{self.path} is a second name of another domain's objects, in which {principal.name} does not have "
                f"the right {lacking.value}: it opens no more than that one."
            )
        return without_right(principal, lacking, self.path)


def without_right(principal: Principal, right: Right, path: str) -> Forbidden:
    """Return the error for a right that a principal lacks at a path."""
    return Forbidden(f"{principal.name} does not have the right {right.value} in {path}.")


class FileRights(Protocol):
    """The rights of a principal to files of the store, and to domains."""

    @property
    def beside(self) -> str:
        """The path of the domain that the request names."""
        ...

    @property
    def owners(self) -> Owners:
        """The owners of the objects of the request's bucket."""
        ...

    def owners_of(self, uri: str) -> tuple[Owners, str, str]:
        """Return the owners, the bucket and the key of a file; `Forbidden` for a bucket that is not served."""
        ...

    async def require(self, *uris: str) -> None:
        """Raise `Forbidden` for a file in a folder where the principal may not read."""
        ...

    async def domain(self, name: str, beside: str) -> tuple[Service, Domain]:
        """Return the domain that `name` names in the domain at `beside`, see `external_domain`, and its service.

        `Forbidden` if the principal may not read it, `NotFound` or `Gone` without one.
        """
        ...


class Access(Protocol):
    """Says what a principal may do in domains, and with files."""

    async def find(
        self, service: Service, path: str, principal: Principal, right: Right, *, dangling: bool = False
    ) -> Domain:
        """Return the domain or folder at `path`, in which `principal` has `right`; `NotFound`, `Gone` or `Forbidden`.

        With `dangling`, as the name itself is asked for, it is enough to have the right there, without the first
        name's.
        """
        ...

    def files(self, service: Service, principal: Principal, beside: str) -> FileRights:
        """Return the rights of `principal` to files of a bucket, and of others that are served."""
        ...


class Extents(Component, Protocol):
    """Knows extents that follow from those of other datasets; an extension's."""

    async def current(self, request: Request, record: Record) -> Record:
        """Return the record of a virtual dataset with the extent that its sources give it now."""
        ...


class Room(Protocol):
    """What a request may add to its domain."""

    async def take(self, nbytes: int) -> None:
        """Let the request add `nbytes` in all; `OverQuota` or `Busy` without room."""
        ...


class Request:
    """A request to a service node, the one argument of policies and handlers."""

    __slots__ = (
        "access",
        "begun",
        "checks",
        "choose_coding",
        "domain_path",
        "found",
        "headers",
        "http",
        "limit",
        "memory",
        "params",
        "place",
        "principal",
        "read_limit",
        "room",
        "route",
        "sent",
        "service",
        "shared_memory",
        "small",
        "trace",
    )

    def __init__(self, http: web.BaseRequest, service: Service, route: Route, params: dict[str, str]) -> None:
        self.http = http
        self.service = service
        """The node's; that of the bucket which the request names, once this is known."""
        self.route = route
        self.params = params
        """What stands in the path for the names in braces of the route's."""
        only = service.authenticator.only
        name = None if only is None else only.name
        self.trace = RequestTrace("", name, queue_user=name or "")
        self.principal = only or ANONYMOUS
        """The only user, or who is found to send it."""
        self.access: Access
        """Set where the route asks who sends it."""
        self.domain_path: str | None = None
        """The normalised path of a domain that the request names, None without one."""
        self.found: Domain | None = None
        """The domain; None on routes without a right. Once a body has come late it is the domain as it is then."""
        self.limit = service.settings.max_request_size
        """The most bytes that the body may have."""
        self.memory: BodyMemory | None = None
        """What the body takes, None for nothing yet; given back at the end of the request."""
        self.small: bytearray | None = None
        """A body that was received before the request had its turn."""
        self.room: Room | None = None
        """What the request may add to the domain, None where no quota holds."""
        self.checks: list[Callable[[Request], Awaitable[None]]] = []
        """What is looked at again once a body has come late; each raises if the request may not go on."""
        self.place: Place | None = None
        self.read_limit: asyncio.Timeout | None = None
        """When a request that changes nothing is given up, unless its answer has begun."""
        self.headers: dict[str, str] = dict(FIXED_HEADERS)
        """Headers of the answer, whatever that is."""
        self.choose_coding: Callable[[Request, str, web.StreamResponse], Coding | None] | None = None
        """Returns the coding of a streamed answer of a media type, and adds its headers; None where none has any."""
        self.shared_memory: tuple[MemoryBudget, ...] = (service.answers,)
        """The budgets of which a request holds memory until its answer is sent."""
        self.begun = False
        """Whether the answer has begun."""
        self.sent = 0
        """Bytes of a streamed answer's body that were sent."""

    @property
    def domain(self) -> Domain:
        assert self.found is not None
        return self.found

    @property
    def collection(self) -> str:
        """The collection in the request's path: `groups`, `datasets` or `datatypes`."""
        return self.http.path.split("/", 2)[1]

    # --- what it names ---------------------------------------------------------------------------------

    def object_id(self, collection: str | None = None) -> str:
        """Return the checked id in the path; its collection is `collection` or, without one, that of the path."""
        return self.domain.member(self.params["id"], collection or self.collection)

    async def record(self, collection: str | None = None) -> Record:
        """Return the record of the object in the path."""
        id = self.domain.member(self.params["id"], collection or self.collection)
        record = await self.service.owners.record(id)
        return record if VIRTUAL_DATA not in record else await self.current(record)

    async def current(self, record: Record) -> Record:
        """Return a record with the extent that it has now, which of virtual datasets is that of others."""
        extents = self.service.provided(Extents) if VIRTUAL_DATA in record else None
        return record if extents is None else await extents.current(self, record)

    # --- what it may do --------------------------------------------------------------------------------

    async def find(
        self, path: str, right: Right, *, dangling: bool = False, service: Service | None = None
    ) -> Domain:
        """Return the domain or folder at `path` of the bucket, in which the principal has `right`; see `Access`."""
        return await self.access.find(service or self.service, path, self.principal, right, dangling=dangling)

    async def named_domain(self, right: Right, *, dangling: bool = False) -> Domain:
        """Return the domain that the request names, as `find`; for handlers whose route has no right."""
        if self.domain_path is None:
            raise BadRequest("No domain given: name it by ?domain= or the X-Hdf-domain header.")
        return await self.find(self.domain_path, right, dangling=dangling)

    def file_rights(self) -> FileRights:
        """Return the principal's rights to files of the store."""
        return self.access.files(self.service, self.principal, self.domain_path or "")

    # --- parameters -----------------------------------------------------------------------------------

    def arg(self, name: str) -> str | None:
        """Return a query parameter, None without one."""
        return self.http.query.get(name)

    def wait_seconds(self) -> int:
        """Return how many seconds the client waits for what it names, 0 for none; `BadRequest` for too many."""
        seconds = self.number("wait") or 0
        if seconds > MAX_WAIT:
            raise BadRequest(f"wait must be at most {MAX_WAIT} seconds, not {seconds}: ask again after it.")
        return seconds

    def flag(self, name: str) -> bool:
        """Return a query parameter as a truth value; `BadRequest` for any other text."""
        text = self.http.query.get(name, "").lower()
        if text in TRUE:
            return True
        if text in FALSE:
            return False
        raise BadRequest(f"{name} must be 0 or 1, not {text!r}.")

    def number(self, name: str) -> int | None:
        """Return a query parameter as a non-negative integer, None without one."""
        text = self.http.query.get(name)
        if text is None:
            return None
        if not text.isascii() or not text.isdigit() or len(text) > MAX_DIGITS:
            raise BadRequest(
                f"{name} must be a non-negative integer below 10^{MAX_DIGITS}, not {text[:40]!r}."
            )
        return int(text)

    def refuse(self, *names: str) -> None:
        """Raise `Unsupported` if one of these parameters, which the API knows, is given."""
        for name in names:
            if self.http.query.get(name):
                raise Unsupported(f"The parameter {name} is not supported here yet; leave it out.")

    # --- the turn -------------------------------------------------------------------------------------

    @property
    def is_gone(self) -> bool:
        """Whether the client has closed the connection."""
        return self.http.transport is None or self.http.transport.is_closing()

    @asynccontextmanager
    async def without_place(self) -> AsyncIterator[None]:
        """Let another request have this one's place, while it waits for its client or for what is not this server's."""
        self.leave_place()
        yield
        if self.place is not None:
            deadline = self.trace.deadline
            await self.place.regain(math.inf if deadline is None else deadline)

    def leave_place(self) -> None:
        """Let another request have this one's place, for good."""
        if self.place is not None:
            self.place.leave()

    def begin(self, answer: web.StreamResponse) -> None:
        """Note that the answer begins: it has all its headers, its deadline is met, and it takes no place any more."""
        self.begun = True
        if self.read_limit is not None and not self.read_limit.expired():
            self.read_limit.reschedule(None)
        self.leave_place()
        self.trace.deadline = None
        if not self.service.ready:
            answer.force_close()
            answer.headers[hdrs.CONNECTION] = "close"
        answer.headers.update(self.headers)
        # A cache must not give one origin what another was answered.
        answer.headers.add(hdrs.VARY, hdrs.ORIGIN)
        if hdrs.AUTHORIZATION in self.http.headers and hdrs.CACHE_CONTROL not in answer.headers:
            answer.headers[hdrs.CACHE_CONTROL] = ASK_AGAIN if hdrs.ETAG in answer.headers else UNKEPT

    # --- the body -------------------------------------------------------------------------------------

    async def make_room(self, nbytes: int) -> None:
        """Let the request add `nbytes` to the domain in all; `OverQuota` or `Busy` if a quota leaves no room."""
        if self.room is not None:
            await self.room.take(nbytes)

    def check_length(self) -> None:
        """Raise `TooLarge` if Content-Length exceeds the limit."""
        length = self.http.content_length
        if length is not None and length > self.limit:
            raise TooLarge(f"The body has {length} bytes; the limit is {self.limit} (max_request_size).")

    async def receive_small(self) -> None:
        """Receive a body that takes little memory: before the request has a place, or is looked at."""
        length = self.http.content_length
        if length and length <= min(FIRST, self.limit) and hdrs.EXPECT not in self.http.headers:
            with _receiving("nothing was applied"):
                async with asyncio.timeout(BODY_PATIENCE):
                    self.small = bytearray(await self.http.content.read())

    async def body(self) -> bytearray:
        """Return the whole body; `TooLarge` beyond the limit, `BadRequest` if it was cut short.

        There is room for it in the quotas if all that the request does may make the domain larger.
        """
        length, data = self.http.content_length, self.small
        if data is None:
            self.check_length()
            data = await self._late(None)
        if length is not None and len(data) != length:
            raise BadRequest(
                f"The body has {len(data)} bytes of the {length} announced; nothing was applied."
            )
        if self.room is not None and self.route.grows:
            await self.room.take(max(len(data), OBJECT_BYTES))
        return data

    def body_memory(self) -> BodyMemory:
        """Return the memory that the body takes; there is one for each request."""
        if self.memory is None:
            self.memory = BodyMemory(self.service.bodies)
        return self.memory

    async def part(self, nbytes: int) -> bytearray:
        """Return the next bytes of a body that is not read as a whole; `BadRequest` if it was cut short.

        Memory is taken for one part, the largest: the one before must be done with.
        """
        data = await self._late(nbytes)
        if len(data) != nbytes:
            raise BadRequest("The body was cut short; what had come before was applied.")
        return data

    async def _late(self, part: int | None) -> bytearray:
        """Receive what comes after the head, without a place; then see whether the request may still go on."""
        async with self.without_place():
            if self.http.headers.get(hdrs.EXPECT) and not self.is_gone:
                assert self.http.transport is not None
                self.http.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            data = await self._received(part)
        for check in self.checks:
            await check(self)
        return data

    async def _received(self, part: int | None) -> bytearray:
        """Receive the body, or the next `part` bytes of it, into memory; raise if the client is too slow."""
        data, content, memory = bytearray(), self.http.content, self.body_memory()
        most = min(self.http.content_length or self.limit, self.limit) if part is None else part
        clock = asyncio.get_running_loop().time
        late = clock() + BODY_PATIENCE
        applied = "nothing was applied" if part is None else "what had come before was applied"
        with _receiving(applied):
            while part is None or len(data) < part:
                async with asyncio.timeout_at(min(late + len(data) / BODY_RATE, clock() + BODY_PATIENCE)):
                    block = await (content.readany() if part is None else content.read(part - len(data)))
                if not block:
                    return data
                data += block
                if len(data) > self.limit:
                    raise TooLarge(
                        f"The body has more than {self.limit} bytes, the limit (max_request_size)."
                    )
                asked = clock()
                await memory.grow(len(data), most)
                late += clock() - asked  # the client could not send meanwhile
        return data


@contextmanager
def _receiving(applied: str) -> Iterator[None]:
    """Make `BadRequest` of what goes wrong while a body comes; it says what was applied."""
    try:
        yield
    except TimeoutError as error:
        raise BadRequest(f"The body came too slowly, or not at all; {applied}.") from error
    except (web.RequestPayloadError, ConnectionError) as error:
        raise BadRequest(f"The body was cut short; {applied}.") from error
