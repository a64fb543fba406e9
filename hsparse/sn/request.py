"""The request object: parameters, principal, domain, body and deadline of one request.

`hsparse.sn.app` makes the object, the policies (`hsparse.sn.policies`) fill it in, and handlers pass it on. No
other object carries the state of a request, except the trace for its log lines.
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
from hsparse.errors import BadRequest, Conflict, Forbidden, TooLarge, Unsupported
from hsparse.model.acl import ANONYMOUS, Principal, Right, is_granted
from hsparse.model.file_backed import SERVED
from hsparse.model.ids import ID_DOMAIN, check_id, heads_of, moved_id
from hsparse.model.schema import VIRTUAL_DATA
from hsparse.sn.body_memory import FIRST_STEP_BYTES, BodyMemory
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
"""A body may lag `BODY_PATIENCE` seconds behind a rate of `BODY_RATE` bytes a second, and must not pause that long."""
MAX_WAIT = 60
"""The maximum number of seconds of the `wait` parameter: how long a request may wait for an object or event."""
MAX_DIGITS = 19
"""The maximum number of digits of a number in a query parameter: 2^63-1 has 19."""
TRUE = frozenset({"1", "t", "true", "yes", "on"})
FALSE = frozenset({"", "0", "f", "false", "no", "off"})
OBJECT_BYTES = 4096
"""The fewest bytes that an object takes of a quota: file systems allocate whole blocks even for small objects."""
UNKEPT = "private, no-store"
"""Cache-Control of answers without an etag to requests with credentials."""
ASK_AGAIN = "private, no-cache"
"""Cache-Control of answers with an etag: a private cache may store the answer and must revalidate it (RFC 9111)."""
FIXED_HEADERS = {
    "Server": SERVER_NAME,
    "X-XSS-Protection": "1; mode=block",
    "X-Content-Type-Options": "nosniff",  # values must not be sniffed as pages or scripts
    "Cross-Origin-Resource-Policy": "same-origin",  # and not be embedded in other sites' pages
}


def respond(value: Any, status: int = 200) -> web.Response:
    """Answer with JSON; numpy scalars and arrays are allowed in `value`."""
    body = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    return web.Response(body=body, status=status, headers=JSON_HEADERS)


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain or folder: its absolute path and its stored record, which must not be modified."""

    path: str
    record: dict[str, Any]
    first: Domain | None = None
    """If this domain is a second name of its objects: their first name, whose ACLs apply as well."""

    @property
    def root(self) -> str | None:
        """The id of the root group, or None if this is a folder."""
        root = self.record.get("root")
        return root if isinstance(root, str) else None

    @property
    def root_group(self) -> str:
        """The root group's id; raises `BadRequest` for a folder."""
        if self.root is None:
            raise BadRequest(f"{self.path} is a folder, which has no objects: name a domain in it.")
        return self.root

    def member(self, id: str, collection: str | None = None) -> str:
        """Return `id`, translated if this domain is a copy; raise `BadRequest` or `Conflict` for other domains' ids."""
        check_id(id, collection)
        if id[ID_DOMAIN] != self.root_group[ID_DOMAIN]:
            return self._own_id(id)
        return id

    def _own_id(self, id: str) -> str:
        """Translate an id of the domain that this domain was copied from, because stored references have such ids."""
        for head in heads_of(self.record):
            if id[ID_DOMAIN] == head[ID_DOMAIN]:
                return moved_id(id, head, self.root_group)
        if self.record.get(SERVED):
            raise Conflict(f"{id} is not in the domain {self.path}: its file has changed; open it again.")
        raise BadRequest(f"{id} is not in the domain {self.path}: name the domain that has it.")

    @property
    def identity(self) -> dict[str, Any]:
        """The creation time and root id, which distinguish this domain from earlier and later domains at its path."""
        return {name: self.record.get(name) for name in ("created", "root")}

    def allows(self, principal: Principal, right: Right) -> bool:
        """Return whether `principal` has `right` in this domain and, if it is a second name, in its first name."""
        if principal.admin:
            return True
        own = is_granted(self.record.get("acls") or {}, principal, right)
        return own and (self.first is None or self.first.allows(principal, right))

    def require(self, principal: Principal, right: Right) -> None:
        """Raise `Forbidden` if `principal` does not have `right`."""
        if not self.allows(principal, right):
            raise self._refusal(principal, right)

    def _refusal(self, principal: Principal, right: Right) -> Forbidden:
        """Return the error for a missing right. If the right to read is missing too, the error names that right."""
        lacking = right if self.allows(principal, Right.READ) else Right.READ
        if replace(self, first=None).allows(principal, lacking):
            return Forbidden(
                f"{self.path} is a second name of another domain's objects, in which {principal.name} does not have "
                f"the right {lacking.value}: a second name grants no more than the first."
            )
        return without_right(principal, lacking, self.path)


def without_right(principal: Principal, right: Right, path: str) -> Forbidden:
    """Return the error for a right that a principal lacks at a path."""
    return Forbidden(f"{principal.name} does not have the right {right.value} in {path}.")


class FileRights(Protocol):
    """The rights of a principal to files of the store and to external domains."""

    @property
    def beside(self) -> str:
        """The path of the domain that the request names, to which relative names of external domains refer."""
        ...

    @property
    def owners(self) -> Owners:
        """The `Owners` of the objects in the request's bucket."""
        ...

    def owners_of(self, uri: str) -> tuple[Owners, str, str]:
        """Return a file's (`Owners`, bucket, key); raise `Forbidden` if no service has the file's bucket."""
        ...

    async def require(self, *uris: str) -> None:
        """Raise `Forbidden` if one of the files is in a folder where the principal may not read."""
        ...

    async def domain(self, name: str, beside: str) -> tuple[Service, Domain]:
        """Resolve `name` relative to the domain at `beside` (see `external_domain`); return a pair: service, domain.

        Raises `Forbidden` if the principal may not read the domain, `NotFound` or `Gone` if it does not exist.
        """
        ...


class AccessControl(Protocol):
    """Access control: what a principal may do in domains and with files."""

    async def find(
        self, service: Service, path: str, principal: Principal, right: Right, *, dangling: bool = False
    ) -> Domain:
        """Return the domain or folder at `path`; raise `NotFound` or `Gone`, or `Forbidden` if `right` is missing.

        If `path` is a second name of another domain's objects, the first name must exist and grant the right too. The
        first name is not checked with `dangling`, for requests about the second name itself.
        """
        ...

    def files(self, service: Service, principal: Principal, beside: str) -> FileRights:
        """Return the rights of `principal` to files of the service's bucket and of other served buckets."""
        ...


class Extents(Component, Protocol):
    """An extension's component that computes the extents of virtual datasets from their source datasets."""

    async def current(self, request: Request, record: Record) -> Record:
        """Return the record of a virtual dataset with the extent that follows from its sources' current extents."""
        ...


class Room(Protocol):
    """The bytes that a request may add to its domain by the quotas that apply there."""

    async def take(self, nbytes: int) -> None:
        """Reserve `nbytes`, the request's total so far, in the quotas; raise `OverQuota` or `Busy` without room."""
        ...


class Request:
    """A request to a service node, the one argument of policies and handlers."""

    service: Service
    """The node's service; once the request's bucket is known, the service of that bucket."""
    params: dict[str, str]
    """The values of the placeholders in the route's path, by name."""
    principal: Principal
    """The principal. Before authentication it is anonymous, unless the server has a single user."""
    access: AccessControl
    """The access control; set on authenticated routes."""
    domain_path: str | None = None
    """The normalised path of the domain that the request names, or None if it names no domain."""
    found: Domain | None = None
    """The domain, or None on routes without a right. It is loaded again after the request has waited for its body."""
    limit: int
    """The maximum number of bytes that the body may have."""
    memory: BodyMemory | None = None
    """The memory taken for the body, released at the end of the request, or None if none was taken."""
    small: bytearray | None = None
    """A small body that was received before the request waited for admission, or None if there is no such body."""
    room: Room | None = None
    """The room that the request may use in the domain's quotas, or None if no quota applies."""
    checks: list[Callable[[Request], Awaitable[None]]]
    """Checks to repeat after the request has waited for its body; each raises if the request may no longer proceed."""
    place: Place | None = None
    """The request's place in admission control, which limits concurrent requests; None before admission."""
    read_limit: asyncio.Timeout | None = None
    """The timeout of a request that only reads: it cancels the request if its answer does not begin in time."""
    headers: dict[str, str]
    """Headers to add to the answer, even if the answer is an error."""
    choose_coding: Callable[[Request, str, web.StreamResponse], Coding | None] | None = None
    """Chooses a streamed answer's coding by media type and sets the headers for it; None if nothing is compressed."""
    shared_memory: tuple[MemoryBudget, ...]
    """The budgets whose memory this request may hold until its answer is sent."""
    begun = False
    """Whether the answer has begun; see `begin`."""
    sent = 0
    """Bytes sent of a streamed answer's body."""

    def __init__(self, http: web.BaseRequest, service: Service, route: Route, params: dict[str, str]) -> None:
        self.http, self.service, self.route, self.params = http, service, route, params
        self.principal = service.authenticator.only or ANONYMOUS
        name = None if self.principal is ANONYMOUS else self.principal.name
        self.trace = RequestTrace("", name, queue_user=name or "")
        self.limit = service.settings.max_request_size
        self.checks, self.headers, self.shared_memory = [], dict(FIXED_HEADERS), (service.answers,)

    @property
    def domain(self) -> Domain:
        """The request's domain; only for routes with a right."""
        assert self.found is not None
        return self.found

    @property
    def collection(self) -> str:
        """The collection in the request's path: `groups`, `datasets` or `datatypes`."""
        return self.http.path.split("/", 2)[1]

    # --- named objects ---------------------------------------------------------------------------------

    def object_id(self, collection: str | None = None) -> str:
        """Return the id in the path, checked by `Domain.member`; `collection` defaults to the path's collection."""
        return self.domain.member(self.params["id"], collection or self.collection)

    async def record(self, collection: str | None = None) -> Record:
        """Return the record of the object whose id is in the path; the record of a virtual dataset is current."""
        id = self.domain.member(self.params["id"], collection or self.collection)
        record = await self.service.owners.record(id)
        return record if VIRTUAL_DATA not in record else await self.current(record)

    async def current(self, record: Record) -> Record:
        """Return `record`; if it is a virtual dataset's, with the extent that follows from the dataset's sources."""
        extents = self.service.provided(Extents) if VIRTUAL_DATA in record else None
        return record if extents is None else await extents.current(self, record)

    # --- rights ----------------------------------------------------------------------------------------

    async def find(
        self, path: str, right: Right, *, dangling: bool = False, service: Service | None = None
    ) -> Domain:
        """Return the domain or folder at `path` if the principal has `right`; see `AccessControl`."""
        return await self.access.find(service or self.service, path, self.principal, right, dangling=dangling)

    async def named_domain(self, right: Right, *, dangling: bool = False) -> Domain:
        """Return the domain that the request names, as `find` does; used by handlers of routes without a right."""
        if self.domain_path is None:
            raise BadRequest("No domain given: name it by ?domain= or the X-Hdf-domain header.")
        return await self.find(self.domain_path, right, dangling=dangling)

    def file_rights(self) -> FileRights:
        """Return the principal's rights to files of the store."""
        return self.access.files(self.service, self.principal, self.domain_path or "")

    # --- parameters -----------------------------------------------------------------------------------

    def arg(self, name: str) -> str | None:
        """Return a query parameter, or None if it is missing."""
        return self.http.query.get(name)

    def wait_seconds(self) -> int:
        """Return the `wait` parameter in seconds, or 0 if it is missing; raise `BadRequest` beyond `MAX_WAIT`."""
        seconds = self.number("wait") or 0
        if seconds > MAX_WAIT:
            raise BadRequest(f"wait must be at most {MAX_WAIT} seconds, not {seconds}: then ask again.")
        return seconds

    def flag(self, name: str) -> bool:
        """Return a query parameter as a boolean, or False if it is missing; raise `BadRequest` for any other text."""
        text = self.http.query.get(name, "").lower()
        if text in TRUE:
            return True
        if text in FALSE:
            return False
        raise BadRequest(f"{name} must be 0 or 1, not {text!r}.")

    def number(self, name: str) -> int | None:
        """Return a query parameter as an integer, or None if it is missing; raise `BadRequest` if it is invalid."""
        text = self.http.query.get(name)
        if text is None:
            return None
        if not text.isascii() or not text.isdigit() or len(text) > MAX_DIGITS:
            raise BadRequest(
                f"{name} must be a non-negative integer below 10^{MAX_DIGITS}, not {text[:40]!r}."
            )
        return int(text)

    def refuse(self, *names: str) -> None:
        """Raise `Unsupported` if one of the named parameters of HSDS's API is given."""
        for name in names:
            if self.http.query.get(name):
                raise Unsupported(f"The parameter {name} is not supported here yet; leave it out.")

    # --- admission and the answer -----------------------------------------------------------------------

    @property
    def is_gone(self) -> bool:
        """Whether the client has closed the connection."""
        return self.http.transport is None or self.http.transport.is_closing()

    @asynccontextmanager
    async def without_place(self) -> AsyncIterator[None]:
        """Give up the place in admission control while the request waits for its client or for another server."""
        self.leave_place()
        yield
        if self.place is not None:
            deadline = self.trace.deadline
            await self.place.regain(math.inf if deadline is None else deadline)

    def leave_place(self) -> None:
        """Give up the place in admission control for good."""
        if self.place is not None:
            self.place.leave()

    def begin(self, answer: web.StreamResponse) -> None:
        """Complete the answer's headers as it begins, cancel the deadline, and give up the place."""
        self.begun = True
        if self.read_limit is not None and not self.read_limit.expired():
            self.read_limit.reschedule(None)
        self.leave_place()
        self.trace.deadline = None
        if not self.service.ready:
            answer.force_close()
            answer.headers[hdrs.CONNECTION] = "close"
        answer.headers.update(self.headers)
        # A cache must not serve one origin's answer to another origin.
        answer.headers.add(hdrs.VARY, hdrs.ORIGIN)
        if hdrs.AUTHORIZATION in self.http.headers and hdrs.CACHE_CONTROL not in answer.headers:
            answer.headers[hdrs.CACHE_CONTROL] = ASK_AGAIN if hdrs.ETAG in answer.headers else UNKEPT

    # --- the body -------------------------------------------------------------------------------------

    async def make_room(self, nbytes: int) -> None:
        """Reserve `nbytes`, the request's total so far, in the domain's quotas; raise `OverQuota` or `Busy`."""
        if self.room is not None:
            await self.room.take(nbytes)

    def check_length(self) -> None:
        """Raise `TooLarge` if Content-Length exceeds the limit."""
        length = self.http.content_length
        if length is not None and length > self.limit:
            raise TooLarge(f"The body has {length} bytes; the limit is {self.limit} (max_request_size).")

    async def receive_small(self) -> None:
        """Receive a body of at most `FIRST_STEP_BYTES` before admission; larger bodies are received after admission."""
        length = self.http.content_length
        if length and length <= min(FIRST_STEP_BYTES, self.limit) and hdrs.EXPECT not in self.http.headers:
            with _receiving("nothing was applied"):
                async with asyncio.timeout(BODY_PATIENCE):
                    self.small = bytearray(await self.http.content.read())

    async def body(self) -> bytearray:
        """Return the whole body; raise `TooLarge` beyond the limit, `BadRequest` if it was cut short.

        On routes that grow the domain (`Route.grows`), the body's size is reserved in the quotas.
        """
        length, data = self.http.content_length, self.small
        if data is None:
            self.check_length()
            data = await self._late(None)
        if length is not None and len(data) != length:
            raise BadRequest(
                f"The body has {len(data)} of {length} announced bytes; nothing was applied: send it again."
            )
        if self.room is not None and self.route.grows:
            await self.room.take(max(len(data), OBJECT_BYTES))
        return data

    def body_memory(self) -> BodyMemory:
        """Return the request's `BodyMemory`; the first call makes it."""
        if self.memory is None:
            self.memory = BodyMemory(self.service.bodies)
        return self.memory

    async def part(self, nbytes: int) -> bytearray:
        """Return the next `nbytes` of a body that is read in parts; raise `BadRequest` if the body was cut short.

        Memory is taken for the largest part only, so the caller must drop each part before it requests the next.
        """
        data = await self._late(nbytes)
        if len(data) != nbytes:
            raise BadRequest("The body was cut short; what had arrived before was applied.")
        return data

    async def _late(self, part: int | None) -> bytearray:
        """Receive the body, or its next `part` bytes, without a place in admission control; then repeat `checks`."""
        async with self.without_place():
            if self.http.headers.get(hdrs.EXPECT) and not self.is_gone:
                assert self.http.transport is not None
                self.http.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            data = await self._received(part)
        for check in self.checks:
            await check(self)
        return data

    async def _received(self, part: int | None) -> bytearray:
        """Receive the body, or its next `part` bytes, into memory; raise if the client is too slow."""
        data, content, memory = bytearray(), self.http.content, self.body_memory()
        most = min(self.http.content_length or self.limit, self.limit) if part is None else part
        clock = asyncio.get_running_loop().time
        late = clock() + BODY_PATIENCE
        applied = "nothing was applied" if part is None else "what had arrived before was applied"
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
    """Turn timeouts and connection errors into `BadRequest`, whose message ends with the text `applied`."""
    try:
        yield
    except TimeoutError as error:
        raise BadRequest(f"The body came too slowly, or not at all; {applied}.") from error
    except (web.RequestPayloadError, ConnectionError) as error:
        raise BadRequest(f"The body was cut short; {applied}.") from error
