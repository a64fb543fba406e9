"""A running HTTP peer."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from benchmarks.child import Child, ChildFailed
from benchmarks.report import OLDER, OURS
from benchmarks.rest import Rest

CHUNK_NAME = re.compile(r"\d+(_\d+)*")


@dataclass(slots=True)
class Server:
    """A server that answers at `base`; `durable` tells whether a write is stored when it is answered.

    `store` is the directory of its objects, None if nothing is stored.
    """

    name: str
    base: str
    durable: bool
    children: list[Child]
    store: Path | None = None
    auth: tuple[str, str] | None = None
    runs: int = 0
    sessions: list[Rest] = field(default_factory=list)

    @property
    def is_hsparse(self) -> bool:
        """Whether the server is hsparse, in any revision, and so stores sparse datasets."""
        return self.name in (OURS, OLDER)

    def rest(self) -> Rest:
        """Return a new session."""
        self.sessions.append(Rest(self.name, self.base, self.auth))
        return self.sessions[-1]

    def new_domain(self) -> str:
        """Return the path of a domain that does not exist yet."""
        self.runs += 1
        return f"/home/bench/run{self.runs}"

    async def wait_ready(self, timeout: float = 90.0) -> None:
        """Wait until `GET /about` answers READY; raise `ChildFailed` if it does not within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        async with aiohttp.ClientSession(self.base) as session:
            while time.monotonic() < deadline:
                for child in self.children:
                    child.check()
                if await self._ready(session):
                    return
                await asyncio.sleep(0.2)
        raise ChildFailed(f"{self.name} was not ready after {timeout:.0f} s: {self.children[0].tail()}")

    async def _ready(self, session: aiohttp.ClientSession) -> bool:
        try:
            async with session.get("/about") as answer:
                return answer.status == 200 and (await answer.json(content_type=None)).get("state") == "READY"
        except aiohttp.ClientConnectionError:
            return False

    async def stop(self) -> None:
        """Stop every process of the peer."""
        await asyncio.gather(*(child.stop() for child in self.children))

    def stored(self, dataset: str) -> int:
        """Return the bytes of a dataset's chunk objects."""
        if self.store is None:
            raise ValueError(f"{self.name} stores nothing.")
        digits = dataset.replace("-", "")[1:]
        key = f"db/{digits[:8]}-{digits[8:16]}/d/{digits[16:20]}-{digits[20:26]}-{digits[26:32]}"
        folders = [path for path in self.store.glob(f"*/{key}") if path.is_dir()]
        folders += [self.store / key] if (self.store / key).is_dir() else []
        return sum(
            path.stat().st_size
            for folder in folders
            for path in folder.rglob("*")
            if CHUNK_NAME.fullmatch(path.name)
        )
