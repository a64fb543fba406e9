"""How HSDS 1.0.2 behaves, as rows: what is asked, what it answers, and what hsparse answers where that differs.

A row plays in a new domain whose root group is `<g0>`; other variables (`<d1>`, `<number2>`) are bound by the first
answer that has them. Of an answer only what a row names is compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.sn.recording import CUT

PATH = "/home/test_user1/f.h5"
DOMAIN = f"?domain={PATH}"


@dataclass(frozen=True, slots=True)
class Ask:
    """A request and the answer of HSDS; `ours` is the status of hsparse where it is another."""

    method: str
    path: str
    body: Any = None
    status: int = 200
    reply: Any = None
    rels: str | None = None
    """The `rel` of each of the reply's links in order, `none` without the key."""
    ours: int | None = None
    params: dict[str, Any] = field(default_factory=dict)
    sent: dict[str, str] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)
    """Headers of the request and of the answer."""
    domain: str | None = PATH
    user: str = "test_user1"
    data: bytes | None = None
    """The bytes of a binary answer."""


@dataclass(frozen=True, slots=True)
class Row:
    """A behaviour: `why` is the reason of a difference, or of the behaviour where no request shows it."""

    name: str
    asks: tuple[Ask, ...] = ()
    why: str = ""
    differs: bool = False


def same(name: str, *asks: Ask, why: str = "") -> Row:
    """Return a behaviour that hsparse has, too."""
    return Row(name, asks, why)


def differs(name: str, why: str, *asks: Ask) -> Row:
    """Return a behaviour that hsparse does not have, and why."""
    return Row(name, asks, why, differs=True)


def part(**keys: Any) -> dict[str, Any]:
    """Return the part of a JSON object that is compared."""
    return keys | {CUT: None}


def ask(
    method: str, path: str, body: Any = None, status: int = 200, reply: Any = None, **options: Any
) -> Ask:
    """Return a request; options that are no field of `Ask` are parameters."""
    known = {key: options.pop(key) for key in list(options) if key in Ask.__slots__}
    return Ask(method, path, body, status, reply, params=options, **known)


def make(collection: str, id: str, **body: Any) -> Ask:
    """Return the creation of an object that is `id` from then on."""
    return ask("POST", f"/{collection}", body, 201, part(id=id))


def links(*pairs: str) -> list[dict[str, str]]:
    """Return links in the form of answers: `rel path` each, the domain as a parameter."""
    named = [pair.split(" ") for pair in pairs]
    return [{"rel": rel, "href": f"http://HOST{path}{DOMAIN}"} for rel, path in named]
