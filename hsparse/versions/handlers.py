"""Handlers of `/snapshots` and `/changes`: take, list, compare, restore and delete snapshots of a domain."""

from __future__ import annotations

import asyncio

from aiohttp import web

from hsparse.clock import Clock
from hsparse.config import Settings
from hsparse.errors import BadRequest, Forbidden, NotFound
from hsparse.model.acl import Right
from hsparse.model.ids import collection_of, moved_id
from hsparse.sn.app import Parts
from hsparse.sn.domains.domain_deletion import Dependents
from hsparse.sn.http.request import read_json_object
from hsparse.sn.http.response import hrefs
from hsparse.sn.request import Request, respond
from hsparse.sn.route import Route
from hsparse.versions.clone_handlers import post_clone, post_materialize
from hsparse.versions.dependents import Clones
from hsparse.versions.restoring import Step
from hsparse.versions.snapshot_requests import ask, find_snapshot, remove_snapshot, take_snapshot, tell
from hsparse.wire.message import Record

MAX_CHANGES = 10_000
SNAPSHOT_CHECK_SECONDS = 1.0
"""Seconds between two checks for a new snapshot."""
MAX_MESSAGE = 4096
"""The most characters of a snapshot's message."""


async def post_snapshot(request: Request) -> web.StreamResponse:
    """`POST /snapshots`: take a snapshot of the domain's current state."""
    body = await read_json_object(request)
    message = body.get("message", "")
    if not isinstance(message, str) or len(message) > MAX_MESSAGE:
        raise BadRequest(f"message must be a text of at most {MAX_MESSAGE} characters.")
    return respond(await take_snapshot(request, _head(request), message), status=201)


async def get_snapshots(request: Request) -> web.StreamResponse:
    """List a domain's snapshots, oldest first, and its clones; clones that the user may not read are only counted."""
    root, clones = _head(request), request.service.component(Clones)
    found, pins = await ask(request, "list", root), (await ask(request, "pins", root))["pins"]
    named = await clones.allowed(pins, request.principal, Right.READ)
    found["clones"] = [{name: pin[name] for name in ("domain", "snapshot")} for pin in named]
    found["otherClones"] = len(pins) - len(named)
    if (base := found["base"]) is not None and not await clones.allowed(
        [base], request.principal, Right.READ
    ):
        base["domain"] = None
    if base is not None:
        del base["root"]
    return respond(found | {"hrefs": hrefs(request, self="/snapshots", home="/")})


async def get_snapshot(request: Request) -> web.StreamResponse:
    """Respond with one snapshot."""
    return respond(await find_snapshot(request, _head(request), _number(request)))


async def delete_snapshot(request: Request) -> web.StreamResponse:
    """Delete a snapshot, and the copies of objects that only this snapshot needs."""
    root, number = _head(request), _number(request)
    await request.service.component(Clones).release(root, request.principal, number)
    await remove_snapshot(request, root, number)
    return respond({})


async def post_restore(request: Request) -> web.StreamResponse:
    """Restore the domain to a snapshot, after taking a snapshot of its present state."""
    root, number = _head(request), _number(request)
    for right in (Right.CREATE, Right.DELETE):  # a restore changes objects, attributes and links
        request.domain.require(request.principal, right)
    await find_snapshot(request, root, number)
    await request.make_room((await ask(request, "restored_bytes", root, number=number))["bytes"])
    kept = (await take_snapshot(request, root, f"before snapshot {number} was restored"))["snapshot"]
    changed = 0
    for step in Step:
        try:
            reply = await ask(request, "restore", root, number=number, kept=kept, step=step.value)
        finally:  # the store itself has changed objects
            await tell(request, root, renews=True)
        changed += reply["changed"]
    return respond({"snapshot": kept, "restored": number, "changed": changed})


async def get_diff(request: Request) -> web.StreamResponse:
    """Respond with the differences between a snapshot and the snapshot `to` or the domain's current state."""
    root, number, to = _head(request), _number(request), request.number("to")
    found = await ask(request, "diff", root, number=number, to=to)
    before = (await find_snapshot(request, root, number))["root"]
    after = root if to is None else (await find_snapshot(request, root, to))["root"]
    paths = {**await _paths(request, before, root), **await _paths(request, after, root)}
    shown: dict[str, list[Record]] = {"datasets": [], "groups": [], "datatypes": []}
    for id in sorted(found, key=lambda id: (paths.get(id, ""), id)):
        one = {"path": paths.get(id), "id": id, "change": found[id]["change"]}
        more = {name: found[id][name] for name in ("chunks", "elements") if id.startswith("d-")}
        shown[collection_of(id)].append(one | more)
    return respond({"from": number, "to": to, **shown})


async def get_changes(request: Request) -> web.StreamResponse:
    """List the changes between the snapshot `since` (0: the beginning) and the newest snapshot, in pages.

    `marker` is the marker of the previous page; `wait` is the time in seconds to wait for a snapshot after `since`.
    """
    root, since, until = _head(request), request.number("since"), 0
    if since is None:
        raise BadRequest("The parameter since must be the number of a snapshot, or 0 for all changes.")
    limit = request.number("limit") or MAX_CHANGES
    if limit > MAX_CHANGES:
        raise BadRequest(f"limit must be at most {MAX_CHANGES}.")
    last, _, marker = (request.arg("marker") or "").partition(":")
    if last:
        until = _parsed_number(last)
    else:
        until = await _newest(request, root, since, request.wait_seconds())
    reply: Record = {"changes": [], "marker": None}
    if until > since:
        reply = await ask(request, "changes", root, number=since, to=until, marker=marker, limit=limit)
    more = None if reply["marker"] is None else f"{until}:{reply['marker']}"
    changes = [{key: one[key] for key in ("id", "chunk", "change")} for one in reply["changes"]]
    return respond({"since": since, "until": until, "changes": changes, "marker": more})


async def _newest(request: Request, root: str, since: int, wait: int) -> int:
    """Return the newest snapshot's number, after waiting up to `wait` seconds for a snapshot later than `since`."""
    clock = request.service.clock
    end = clock.monotonic() + wait
    while True:
        snapshots = (await ask(request, "list", root))["snapshots"]
        numbers = [one["snapshot"] for one in snapshots]
        if since and since not in numbers:
            raise NotFound(
                f"{request.domain.path} has no snapshot {since} any more: begin again with since=0."
            )
        newest = max(numbers, default=0)
        left = end - clock.monotonic()
        if newest > since or left <= 0:
            return newest
        async with request.without_place():
            await asyncio.sleep(min(left, SNAPSHOT_CHECK_SECONDS))


async def _paths(request: Request, root: str, head: str) -> dict[str, str]:
    """Return a dict that maps the id, in the domain of `head`, of each object below `root` to a shortest path."""
    owners = request.service.owners
    found, groups = {moved_id(root, root, head): "/"}, {root: ""}
    while groups:
        ids, below = list(groups), dict[str, str]()
        for id, outcome in zip(ids, await owners.read(*ids), strict=True):
            links = {} if outcome.failure is not None else outcome.unwrap().get("links", {})
            for name in sorted(links):
                target = links[name].get("id")
                path = f"{groups[id]}/{name}"
                if target is not None and (known := moved_id(target, root, head)) not in found:
                    found[known] = path
                    if target.startswith("g-"):
                        below[target] = path
        groups = below
    return found


def _head(request: Request) -> str:
    """Return the root group's id of the request's domain; raise `Forbidden` for a snapshot."""
    if "snapshot" in request.domain.record:
        raise Forbidden(f"{request.domain.path} is a snapshot and has no snapshots: name its domain instead.")
    return request.domain.root_group


def _number(request: Request) -> int:
    return _parsed_number(request.params["number"])


def _parsed_number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise BadRequest(f"{text[:40]!r} is not the number of a snapshot.")
    return int(text)


ROUTES = (
    Route("POST", "/snapshots", post_snapshot, Right.UPDATE, adds=False),
    Route("GET", "/snapshots", get_snapshots, Right.READ),
    Route("GET", "/snapshots/{number}", get_snapshot, Right.READ),
    Route("DELETE", "/snapshots/{number}", delete_snapshot, Right.DELETE),
    Route("POST", "/snapshots/{number}/restore", post_restore, Right.UPDATE, adds=False),
    Route("GET", "/snapshots/{number}/diff", get_diff, Right.READ),
    Route("GET", "/changes", get_changes, Right.READ),
    Route("POST", "/clones", post_clone, None),
    Route("POST", "/clones/materialize", post_materialize, Right.UPDATE, adds=False),
)


def parts(settings: Settings, clock: Clock) -> Parts:
    """Return the routes of snapshots and clones, and the component that knows the clones."""
    return Parts(ROUTES, provides={Dependents: Clones})
