"""Requests and replies that were recorded from another server, played against this one, and rows of behaviours.

A recording is a list of pairs in JSON: what is sent (`method`, `path`, `params`, `headers`, `user`, `domain`, and
`request` or `bytes`) and what came back (`status`, `content_type`, and `reply` or `reply_bytes`). What differs
from server to server is a variable: `<g0>`, `<d1>` an id, `<time3>` a time, `<number>` any number, `HOST` the
server's address. A variable is bound where it is first met and must be the same from then on. A reply that was
recorded in part has a key or a last item `...`.

A row says how HSDS 1.0.2 behaves: what is asked, what it answers, and what hsparse answers where that differs. It plays
in a new domain whose root group is `<g0>`. Of an answer only what a row names is compared.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.rest_client import Reply, RestClient

FOLDER = Path(__file__).parent / "shapes"
CUT = "..."
VARIABLE = re.compile(r"<(?:[gdt]|time|start|number)\d*>")
Pair = dict[str, Any]


def recorded(version: str) -> list[Pair]:
    """Return the pairs that HSDS of `version` was asked and answered, in order."""
    pairs: list[Pair] = json.loads((FOLDER / f"hsds-{version}.json").read_text())
    return pairs


@dataclass(frozen=True, slots=True)
class Deviation:
    """Where an answer is not as recorded: `extra`, `missing` or `other`; list items are `[]` in `where`."""

    where: str
    how: str
    detail: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.where} {self.how} {self.detail}"


class Comparison:
    """Compares what came with what was recorded; knows what the variables are bound to."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.bound: dict[str, Any] = {}

    def filled(self, value: Any) -> Any:
        """Return a part of a request with the variables in it replaced; `KeyError` for one that is unbound."""
        if isinstance(value, dict):
            return {self.filled(key): self.filled(part) for key, part in value.items()}
        if isinstance(value, list):
            return [self.filled(part) for part in value]
        if not isinstance(value, str):
            return value
        return VARIABLE.sub(lambda match: str(self.bound[match.group()]), value)

    def reply(self, pair: Pair, got: Reply) -> list[Deviation]:
        """Return all deviations of an answer."""
        if got.status != pair["status"]:
            return [Deviation("status", "other", f"{got.status}, not {pair['status']}: {got.body!r}")]
        found = self._headers(pair, got)
        if "reply" in pair:
            found += self.value(pair["reply"], got.body, "reply")
        elif "reply_bytes" in pair and pair["reply_bytes"] != len(got.body):
            found.append(Deviation("reply", "other", f"{len(got.body)} bytes, not {pair['reply_bytes']}"))
        elif "error" in pair and set(got.body) != {"error"}:
            found.append(Deviation("reply", "other", f"is not an error: {got.body}"))
        return found

    def value(self, expected: Any, got: Any, where: str) -> list[Deviation]:
        """Return the deviations of a JSON value."""
        if isinstance(expected, dict) and isinstance(got, dict):
            return self._object(expected, got, where)
        if isinstance(expected, list) and isinstance(got, list):
            return self._list(expected, got, where)
        if isinstance(expected, str) and VARIABLE.fullmatch(expected):
            return self._variable(expected, got, where)
        if isinstance(expected, str) and isinstance(got, str):
            expected = VARIABLE.sub(lambda match: str(self.bound.get(match.group(), match.group())), expected)
            got = got.replace(self._url, "http://HOST")
        if type(expected) is type(got) and expected == got:
            return []
        return [Deviation(where, "other", f"{got!r}, not {expected!r}")]

    def _headers(self, pair: Pair, got: Reply) -> list[Deviation]:
        expected = {"X-XSS-Protection": "1; mode=block", "Content-Type": pair.get("content_type")}
        if "streamed" in pair:
            expected["Content-Length"] = None if pair["streamed"] else str(pair["reply_bytes"])
        found = [
            Deviation(f"header {name}", "other", f"{got.headers.get(name)!r}, not {text!r}")
            for name, text in expected.items()
            if got.headers.get(name) != text
        ]
        server = got.headers.get("Server", "")
        return found + (
            [] if server and "python" not in server.lower() else [Deviation("header Server", "other")]
        )

    def _object(self, expected: dict[str, Any], got: dict[str, Any], where: str) -> list[Deviation]:
        found = []
        names = {name: str(self.bound.get(name, name)) for name in expected if name != CUT}
        for name, ours in names.items():
            below = f"{where}.{'<id>' if VARIABLE.fullmatch(name) else name}"
            if ours not in got:
                found.append(Deviation(below, "missing", f"of {name}"))
            else:
                found += self.value(expected[name], got[ours], below)
        if CUT not in expected:
            extra = [name for name in got if name not in names.values()]
            found += [Deviation(f"{where}.{name}", "extra", repr(got[name])[:80]) for name in extra]
        return found

    def _list(self, expected: list[Any], got: list[Any], where: str) -> list[Deviation]:
        if expected and all(isinstance(one, str) and VARIABLE.fullmatch(one) for one in expected):
            return self._ids(expected, got, where)
        if expected and expected[-1] == CUT:
            expected, got = expected[:-1], got[: len(expected) - 1]
        if len(expected) != len(got):
            return [Deviation(where, "other", f"{len(got)} items, not {len(expected)}")]
        pairs = zip(expected, got, strict=True)
        return [found for one, other in pairs for found in self.value(one, other, f"{where}[]")]

    def _ids(self, expected: list[str], got: list[Any], where: str) -> list[Deviation]:
        """Compare lists of ids, whose order follows from the ids."""
        known = {self.bound[one] for one in expected if one in self.bound}
        new = [one for one in expected if one not in self.bound]
        rest = sorted(set(got) - known)
        if len(set(got)) != len(expected) or not known <= set(got):
            return [Deviation(where, "other", f"{got}, not {expected}")]
        self.bound |= dict(zip(new, rest, strict=True))
        return []

    def _variable(self, name: str, got: Any, where: str) -> list[Deviation]:
        kind = name[1] if name[1] in "gdt" and name[2].isdigit() else "number"
        fits = (
            isinstance(got, int | float)
            if kind == "number"
            else isinstance(got, str) and len(got) == 38 and got.startswith(f"{kind}-")
        )
        if not fits:
            return [Deviation(where, "other", f"{got!r}, not {name}")]
        if name == "<number>" or self.bound.setdefault(name, got) == got:
            return []
        return [Deviation(where, "other", f"{got!r}, but {name} was {self.bound[name]!r} before")]


async def play(pair: Pair, rest: RestClient, comparison: Comparison) -> list[Deviation]:
    """Send a pair's request and return how the answer deviates."""
    try:
        path, body = comparison.filled(pair["path"]), comparison.filled(pair.get("request"))
        params = comparison.filled(pair.get("params", {}))
    except KeyError as error:
        return [Deviation("request", "other", f"{error} is not known: an earlier answer lacked it")]
    if "bytes" in pair:
        values = pair["bytes"]["values"]
        values = np.arange(values["arange"]) if isinstance(values, dict) else values
        body = np.array(values, pair["bytes"]["dtype"]).tobytes()
    got = await rest(
        pair["method"],
        path,
        body,
        user=pair["user"],
        domain=pair.get("domain"),
        headers=pair.get("headers", {}),
        **params,
    )
    return comparison.reply(pair, got)


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
