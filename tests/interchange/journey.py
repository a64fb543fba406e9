"""Domains that one server writes, the other reads and changes, and the first reads again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.interchange.content import CHAPTERS
from tests.interchange.place import HOME, Json, Peer, Place
from tests.interchange.snapshot import folder_snapshot, snapshot

Seen = Json | Exception


@dataclass(slots=True)
class Leg:
    """What was seen of a chapter: by who wrote it, by the other, by the other after its changes, by the first."""

    seen: list[Seen] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    def check(self) -> None:
        """Raise what failed, or what differs where it should not."""
        for failure in [*self.failures, *(one for one in self.seen if isinstance(one, Exception))]:
            raise failure
        written, read, changed, read_again = self.seen
        lines = differences(written, read) + differences(changed, read_again)
        if lines or written == changed:
            raise AssertionError("\n".join(lines[:20]) or "Nothing was changed.")


async def journey(
    place: Place, first: str, second: str, chapters: Iterable[str] = CHAPTERS, *, by_h5pyd: bool = True
) -> dict[str, Leg]:
    """Let the server `first` write, `second` change, and both tell what they see; the legs by chapter.

    `by_h5pyd`: they are seen by h5pyd too, not by REST alone.
    """
    legs = {chapter: Leg() for chapter in chapters}

    def each(work: Callable[[str, Leg], None]) -> None:
        for chapter, leg in legs.items():
            try:
                work(chapter, leg)
            except Exception as error:  # noqa: BLE001 - a chapter that fails must not end the others
                leg.failures.append(error)

    async with place.serve(first) as peer:
        await asyncio.to_thread(make_home, peer)
        await asyncio.to_thread(each, lambda chapter, leg: write(peer, chapter, 0))
        await asyncio.to_thread(
            each, lambda chapter, leg: leg.seen.append(see(peer, chapter, by_h5pyd=by_h5pyd))
        )
    async with place.serve(second) as peer:
        await asyncio.to_thread(
            each, lambda chapter, leg: leg.seen.append(see(peer, chapter, by_h5pyd=by_h5pyd))
        )
        await asyncio.to_thread(each, lambda chapter, leg: write(peer, chapter, 1))
        await asyncio.to_thread(
            each, lambda chapter, leg: leg.seen.append(see(peer, chapter, by_h5pyd=by_h5pyd))
        )
    async with place.serve(first) as peer:
        await asyncio.to_thread(
            each, lambda chapter, leg: leg.seen.append(see(peer, chapter, by_h5pyd=by_h5pyd))
        )
    return legs


def make_home(peer: Peer) -> None:
    for folder in ("/home", HOME.rstrip("/")):
        peer.send("PUT", "/", folder, {"folder": True}, allow=(409,))


def write(peer: Peer, chapter: str, step: int) -> None:
    """Write (`step` 0) or change (1) a chapter; returns when it is stored."""
    CHAPTERS[chapter][step](peer, chapter)
    if chapter != "folders":
        peer.flush(chapter)


def see(peer: Peer, chapter: str, *, by_h5pyd: bool = True) -> Seen:
    try:
        if chapter == "folders":
            return folder_snapshot(peer, chapter)
        return snapshot(peer, chapter, by_h5pyd=by_h5pyd)
    except Exception as error:  # noqa: BLE001 - told by `Leg.check`
        return error


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Return what differs, a line each."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return [] if one == other else [f"{where}: {one!r:.200} is {other!r:.200}"]
    lines = [f"{where}/{key} is not in both" for key in one.keys() ^ other.keys()]
    for key in one.keys() & other.keys():
        lines += differences(one[key], other[key], f"{where}/{key}")
    return lines
