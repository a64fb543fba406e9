"""Handlers of `/snapshots`: a domain's snapshots are taken, listed and deleted."""

from __future__ import annotations

from aiohttp import web

from hsparse.clock import Clock
from hsparse.config import Settings
from hsparse.errors import BadRequest, Forbidden
from hsparse.model.acl import Right
from hsparse.model.ids import collection_of, moved_id
from hsparse.sn.app import Parts
from hsparse.sn.http.request import read_json_object
from hsparse.sn.http.response import hrefs
from hsparse.sn.request import Request, respond
from hsparse.sn.route import Route
from hsparse.versions.clone_handlers import post_clone, post_materialize
from hsparse.versions.differences import by_object
from hsparse.versions.snapshot_requests import ask, find_snapshot, take_snapshot, tell
from hsparse.wire.message import Record
from hsparse.wire.record_message import Forget

MAX_MESSAGE = 4096
"""Characters of a snapshot's message."""


async def post_snapshot(request: Request) -> web.StreamResponse:
    """Take a snapshot of the domain as it is now."""
    body = await read_json_object(request)
    message = body.get("message", "")
    if not isinstance(message, str) or len(message) > MAX_MESSAGE:
        raise BadRequest(f"message must be a text of at most {MAX_MESSAGE} characters.")
    return respond(await take_snapshot(request, _head(request), message), status=201)


async def get_snapshots(request: Request) -> web.StreamResponse:
    """List the domain's snapshots, the oldest first, and the clones that need one."""
    found = await ask(request, "list", _head(request))
    return respond(found | {"hrefs": hrefs(request, self="/snapshots", home="/")})


async def get_snapshot(request: Request) -> web.StreamResponse:
    """Answer with one snapshot."""
    return respond(await find_snapshot(request, _head(request), _number(request)))


async def delete_snapshot(request: Request) -> web.StreamResponse:
    """Delete a snapshot, and what is kept for it alone."""
    owners, root, number = request.service.owners, _head(request), _number(request)
    gone = await ask(request, "remove", root, number=number)
    await tell(request, root)
    await owners.ask_all(Forget(gone["root"]))
    await ask(request, "collect", root)
    return respond({})


async def post_restore(request: Request) -> web.StreamResponse:
    """Bring the domain back to what it was at a snapshot."""
    root, number = _head(request), _number(request)
    await find_snapshot(request, root, number)
    try:
        reply = await ask(request, "restore", root, number=number)
    finally:  # whatever was changed, by the store itself
        await tell(request, root, renews=True)
    return respond({"snapshot": number, "changed": reply["changed"]})


async def get_diff(request: Request) -> web.StreamResponse:
    """Say what is different between a snapshot and another one (`to`), or the domain as it is now."""
    root, number, to = _head(request), _number(request), request.number("to")
    reply = await ask(request, "changes", root, number=number, to=to)
    found = by_object(reply["changes"])
    before = (await find_snapshot(request, root, number))["root"]
    after = root if to is None else (await find_snapshot(request, root, to))["root"]
    paths = {**await _paths(request, before, root), **await _paths(request, after, root)}
    shown: dict[str, list[Record]] = {"datasets": [], "groups": [], "datatypes": []}
    for id in sorted(found, key=lambda id: (paths.get(id, ""), id)):
        one = {"path": paths.get(id), "id": id, "change": found[id]["change"]}
        more = {"chunks": found[id]["chunks"]} if id.startswith("d-") else {}
        shown[collection_of(id)].append(one | more)
    return respond({"from": number, "to": to, **shown})


async def _paths(request: Request, root: str, head: str) -> dict[str, str]:
    """Return the first path to each object of a tree, by the ids that they have in the domain of `head`."""
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
    """Return the root group's id of the request's domain; `Forbidden` of a snapshot."""
    if "snapshot" in request.domain.record:
        raise Forbidden(
            f"{request.domain.path} is a snapshot, which has none of its own: name the domain itself."
        )
    return request.domain.root_group


def _number(request: Request) -> int:
    text = request.params["number"]
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
    Route("POST", "/clones", post_clone, None),
    Route("POST", "/clones/materialize", post_materialize, Right.UPDATE, adds=False),
)


def parts(settings: Settings, clock: Clock) -> Parts:
    """Return the routes of snapshots."""
    return Parts(ROUTES)
