"""Handler of `/domains`, and the listing of folders: their domains and folders, page by page.

A listing can be filtered by a query over the root groups' attributes, such as `a > 7 AND b != 'x'`. A query has
comparisons (`==`, `=`, `!=`, `<`, `<=`, `>`, `>=`) of an attribute's name with a number or a quoted text. They are
joined by `AND` (`&`), `OR` (`|`, lower precedence) and parentheses. Only scalar numbers and strings are compared; a
comparison with an attribute that does not exist, or has another type, is false.
"""

from __future__ import annotations

import asyncio
import operator
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from hsparse.concurrency.gathering import YIELD_EVERY, gather_all, with_pauses
from hsparse.errors import MISSING_KINDS, UNREADABLE_KINDS, BadRequest, ErrorKind, HsparseError
from hsparse.model.acl import Right
from hsparse.model.file_backed import SERVED
from hsparse.sn.http.response import Href, encode_json, href, hrefs
from hsparse.sn.http.stream import NO_HEADERS
from hsparse.sn.records.listing import name_matcher
from hsparse.sn.records.object_path import read_each, read_records
from hsparse.sn.records.second_names import with_first_names
from hsparse.sn.records.streamed_records import respond_parts, wrap_items
from hsparse.sn.request import Domain, Request
from hsparse.sn.statistics import statistics_json
from hsparse.wire.message import Record
from hsparse.wire.record_message import ListKeys

MAX_QUERY = 4096
MAX_COMPARISONS = 64
"""The maximum number of comparisons of a query, because they are made for every domain in a folder."""
MAX_DEPTH = 32
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>b?'[^']*'|b?"[^"]*")|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)
    |(?P<name>[^\W\d][\w.\-]*)|(?P<op>==|!=|<=|>=|=|<|>)|(?P<sign>[()&|]))""",
    re.VERBOSE,
)
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
Attributes = dict[str, Any]
AttributeTest = Callable[[Attributes], bool]


@dataclass(frozen=True, slots=True)
class AttributeQuery:
    """A parsed query over attributes."""

    test: AttributeTest

    def matches(self, attributes: Attributes) -> bool:
        """Return whether an object with these stored attributes matches the query."""
        return self.test(attributes)


def parse_attribute_query(text: str) -> AttributeQuery:
    """Parse a query; raise `BadRequest` if its syntax is wrong."""
    if len(text) > MAX_QUERY:
        raise BadRequest(f"The query has {len(text)} characters; the limit is {MAX_QUERY}: shorten it.")
    parser = _FilterParser(_tokens(text))
    test = parser.either(0)
    parser.expect_end()
    return AttributeQuery(test)


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    place, text = 0, text.rstrip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise BadRequest(f"The query has a syntax error at {text[place : place + 20]!r}.")
        kind = str(match.lastgroup)
        tokens.append((kind, match.group(kind)))
        place = match.end()
    return tokens


class _FilterParser:
    """A recursive descent parser over (kind, text) tokens."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._place = 0
        self._comparisons = 0

    def either(self, depth: int) -> AttributeTest:
        tests = [self._both(depth)]
        while self._take("|", "OR"):
            tests.append(self._both(depth))
        return tests[0] if len(tests) == 1 else lambda attributes: any(test(attributes) for test in tests)

    def expect_end(self) -> None:
        if self._place < len(self._tokens):
            raise BadRequest(
                f"The query has {self._tokens[self._place][1]!r} where AND, OR or the end must follow."
            )

    def _both(self, depth: int) -> AttributeTest:
        tests = [self._one(depth)]
        while self._take("&", "AND"):
            tests.append(self._one(depth))
        return tests[0] if len(tests) == 1 else lambda attributes: all(test(attributes) for test in tests)

    def _one(self, depth: int) -> AttributeTest:
        if depth > MAX_DEPTH:
            raise BadRequest(f"The query has more than {MAX_DEPTH} nested parentheses.")
        if self._take("("):
            test = self.either(depth + 1)
            if not self._take(")"):
                raise BadRequest("The query has an opening parenthesis that is never closed: close it.")
            return test
        self._comparisons += 1
        if self._comparisons > MAX_COMPARISONS:
            raise BadRequest(f"The query has more than {MAX_COMPARISONS} comparisons.")
        name = self._next("name", "an attribute's name")
        compare = _OPERATORS[self._next("op", "a comparison")]
        value = self._value()
        return lambda attributes: _compare(compare, attributes.get(name), value)

    def _value(self) -> Any:
        kind, text = self._tokens[self._place] if self._place < len(self._tokens) else ("", "")
        self._place += 1
        if kind == "text":
            return text.removeprefix("b")[1:-1]
        if kind == "number":
            return float(text) if any(c in text for c in ".eE") else int(text)
        raise BadRequest(f"The query needs a number or a quoted text, not {text!r}.")

    def _next(self, wanted: str, meaning: str) -> str:
        kind, text = self._tokens[self._place] if self._place < len(self._tokens) else ("", "")
        self._place += 1
        if kind != wanted:
            raise BadRequest(f"The query needs {meaning}, not {text!r}.")
        return text

    def _take(self, *texts: str) -> bool:
        if self._place < len(self._tokens):
            kind, text = self._tokens[self._place]
            if kind in ("sign", "name") and text.upper() in texts:
                self._place += 1
                return True
        return False


def _compare(compare: Callable[[Any, Any], bool], stored: Any, value: Any) -> bool:
    if not isinstance(stored, dict) or stored.get("shape", {}).get("class") != "H5S_SCALAR":
        return False
    there = stored.get("value")
    if isinstance(value, str):
        return isinstance(there, str) and compare(there, value)
    return isinstance(there, int | float) and compare(there, value)


KEYS_AT_ONCE = 1000
MATCHED_AT_ONCE = 50
"""The number of domains after which matching a query pauses, so that other requests run."""
ENTRY_KEYS = ("owner", "created", "lastModified", "error", "reason")
"""The keys of a domain's record that are copied to its entry in a listing.

`error` and `reason` say that the domain cannot be read.
"""
UNREADABLE = (
    *UNREADABLE_KINDS,
    *MISSING_KINDS,
    ErrorKind.BAD_REQUEST,
    ErrorKind.CONFLICT,
    ErrorKind.STORE_FAILED,
)
"""The kinds of errors of one domain that are reported in its entry instead of failing the whole listing."""
OBJECTS = "db/"
"""The prefix of object keys in the store, which must not be listed as a folder."""


async def get_domains(request: Request) -> web.StreamResponse:
    """List the domains and folders in a folder, which the principal must be allowed to read."""
    path = request.domain_path or "/"
    await request.find(path, Right.READ)
    return await respond_folder(request, path, hrefs(request, self="/domains"))


async def respond_folder(
    request: Request, path: str, links: list[Href], headers: Mapping[str, str] = NO_HEADERS
) -> web.StreamResponse:
    """Answer with the content of a folder of any size."""

    async def items() -> AsyncGenerator[bytes, None]:
        pages = _pages(request, path)
        async with aclosing(pages):
            async for page in pages:
                for entry in page:
                    yield encode_json(entry)

    parts = wrap_items("domains", items(), {"hrefs": links}, b"[]")
    return await respond_parts(request, parts, headers=headers)


async def _pages(request: Request, path: str) -> AsyncGenerator[list[Record], None]:
    """Yield pages of the direct members of folder `path` that the request's parameters select, sorted by name.

    `Marker` is a path or a name in the folder. The listing continues after this name, even if no member has it.
    """
    query = parse_attribute_query(text) if (text := request.arg("query")) is not None else None
    matches = name_matcher(request.arg("pattern"))
    limit = request.number("Limit")
    folder = path.rstrip("/") + "/"
    marker = request.arg("Marker") or ""
    if marker and not marker.startswith("/"):
        marker = folder + marker
    count = 0
    after = f"{marker[1:]}/" if marker else ""
    while True:
        listing = await request.service.owners.ask_any(
            ListKeys(folder[1:], delimiter=True, start_after=after, limit=KEYS_AT_ONCE)
        )
        paths = [f"/{prefix[:-1]}" for prefix in listing.prefixes if prefix != OBJECTS and prefix > after]
        paths = [one async for one in with_pauses(paths, YIELD_EVERY) if matches(one.rpartition("/")[2])]
        page = await _matching_domains(request, paths, query, limit - count if limit else None)
        count += len(page)
        yield page
        after = max((*listing.prefixes, *listing.keys), default="")
        if (limit and count >= limit) or not listing.more or not after:
            return


async def _matching_domains(
    request: Request, paths: list[str], query: AttributeQuery | None, limit: int | None
) -> list[Record]:
    """Return the entries of at most `limit` domains at `paths` that exist and match the query (None: no limit).

    Domains whose records are unreadable get an entry with an `error`, unless there is a query.
    """
    domains: list[Domain] = []
    unreadable: dict[str, str] = {}
    for path, outcome in zip(paths, await read_records(request.service.owners, paths), strict=True):
        if outcome.failure is not None and outcome.failure.kind in MISSING_KINDS:
            continue  # no domain: only a prefix of other keys
        if outcome.failure is not None and outcome.failure.kind in UNREADABLE_KINDS:
            unreadable[path] = outcome.failure.kind
            domains.append(Domain(path, {}))
        else:
            domains.append(Domain(path, outcome.unwrap()))
    domains = await with_first_names(request.service.owners, domains, (*MISSING_KINDS, *UNREADABLE_KINDS))
    if query is not None:
        domains = await _matching(request, domains, query)
    shown = domains[:limit]
    entries = await gather_all([_entry(request, domain) for domain in shown])
    for domain, entry in zip(shown, entries, strict=True):
        if domain.path in unreadable:
            # Clients of HSDS need an owner and a time.
            entry |= {"class": "domain", "owner": "", "lastModified": 0.0, "error": unreadable[domain.path]}
    return entries


async def _matching(request: Request, domains: list[Domain], query: AttributeQuery) -> list[Domain]:
    """Return the domains whose root group's attributes match the query; folders never match.

    Domains that the principal may not read never match, because queries would disclose their attributes one by one.
    """
    readable = [(domain, domain.root) for domain in domains if domain.root and _may_read(request, domain)]
    found: list[Domain] = []
    async with aclosing(read_each(request.service.owners, readable)) as roots:
        matched = 0
        async for domain, root in roots:
            if root.failure is None and query.matches(root.unwrap().get("attributes") or {}):
                found.append(domain)
            matched += 1
            if matched % MATCHED_AT_ONCE == 0:
                await asyncio.sleep(0)
    return found


def _may_read(request: Request, domain: Domain) -> bool:
    return domain.allows(request.principal, Right.READ)


async def _entry(request: Request, domain: Domain) -> Record:
    record = domain.record
    # A user who knows a root's id could name it as the root of another domain.
    entry: Record = {"root": domain.root} if domain.root is not None and _may_read(request, domain) else {}
    entry["class"] = "folder" if domain.root is None else "domain"
    entry |= {key: record[key] for key in ENTRY_KEYS if key in record}
    entry |= {"rights": usable_rights(request, domain)} if request.flag("include_rights") else {}
    if domain.root is not None and request.flag("verbose") and _may_read(request, domain):
        try:
            entry |= await statistics_json(request, domain, domain.root, lasting=False)
        except HsparseError as error:
            if error.kind not in UNREADABLE:
                raise
            entry |= {"error": error.kind, "reason": error.message}
    entry["name"] = domain.path
    entry["hrefs"] = [{"rel": "domain", "href": href(request, "/", domain=domain.path)}]
    return entry


def usable_rights(request: Request, domain: Domain) -> dict[str, bool]:
    """Return a dict that maps each right's name to whether the principal can use the right in `domain` at present."""
    record = domain.record
    is_fixed = request.service.settings.read_only or record.get(SERVED) is True or "snapshot" in record
    rights = (Right.READ, Right.READ_ACL) if is_fixed else Right
    return {right.value: right in rights and domain.allows(request.principal, right) for right in Right}
