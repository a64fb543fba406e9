"""The trial `metadata`: the small requests of a client's session, from 1 and 16 clients."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from benchmarks.bench import Bench, Measurement
from benchmarks.load import Load, drive
from benchmarks.peers.server import Server
from benchmarks.report import MeasuredMetric
from benchmarks.rest import Rest, encode
from benchmarks.trials.check import WrongAnswer
from benchmarks.workloads.metadata import MetadataCase

NO_GROUP = "g-00000000-00000000-0000-000000-000000"
OBJECTS = 100
"""Number of datasets among which attributes are distributed."""
OPEN = {"getdnids": "1", "getobjs": "T", "include_attrs": "T"}
SCANS = 10
ANSWERS = {"attribute PUT": 2, "dataset GET": 800, "dataset POST + link": 600}
"""Approximate bytes of the servers' answers by kind; the bare handler answers as many."""
MEMBER = 536
"""Bytes per object in the answer that opens a domain."""


@dataclass(frozen=True, slots=True)
class MetadataTrial:
    """Measures the metadata case on the servers and the bare handler."""

    bench: Bench
    case: MetadataCase

    async def run(self) -> None:
        """Take all samples."""
        async with self.bench.sides("metadata", "hsparse", "older", "hsds", "bare") as sides:
            turns: dict[str, Measurement] = {
                server.name: partial(self.server, server) for server in sides.servers()
            }
            if (bound := sides.bare) is not None:
                turns["bare"] = partial(self.bare, bound)
            await self.bench.in_turn("metadata", turns)

    def add(self, side: str, kind: str, clients: int, load: Load) -> None:
        """Add a sample of requests per second."""
        name = f"{kind}, {clients} client{'s' * (clients > 1)}"
        self.bench.report.add(MeasuredMetric("metadata", name, "requests/s", higher=True), side, load.rate)

    def count(self, kind: str) -> int:
        """Return the number of requests that make up one sample of a kind of request."""
        if kind == "open a domain":
            return self.case.opens
        return self.case.requests // (4 if kind == "dataset POST + link" else 1)

    async def server(self, server: Server) -> None:
        """Take one sample of every kind, in a new domain."""
        async with server.rest() as rest:
            await rest.domain(server.new_domain())
            datasets = [await rest.dataset(self.case.dataset(rest.root, f"d{i}")) for i in range(OBJECTS)]
            for clients in self.case.clients:
                await self.attributes(server.name, rest, datasets, clients)
                load = await drive(
                    lambda i: rest.send("GET", f"/datasets/{datasets[i % OBJECTS]}"),
                    self.case.requests,
                    clients,
                )
                self.add(server.name, "dataset GET", clients, load)
                await self.create(server.name, rest, clients)
            await self.open(server, rest)

    async def attributes(self, side: str, rest: Rest, datasets: list[str], clients: int) -> None:
        """Put new attributes, distributed among the datasets."""
        bodies = [encode(self.case.attribute(i)) for i in range(self.case.requests)]

        async def put(i: int) -> None:
            await rest.send("PUT", f"/datasets/{datasets[i % OBJECTS]}/attributes/a{clients}_{i}", bodies[i])

        self.add(side, "attribute PUT", clients, await drive(put, len(bodies), clients))

    async def create(self, side: str, rest: Rest, clients: int) -> None:
        """Create linked datasets in a new group, with one request each."""
        link = {"link": {"id": rest.root, "name": f"g{clients}"}}
        group = (await rest.json("POST", "/groups", link))["id"]
        bodies = [encode(self.case.dataset(group, f"d{i}")) for i in range(self.count("dataset POST + link"))]
        load = await drive(lambda i: rest.send("POST", "/datasets", bodies[i]), len(bodies), clients)
        self.add(side, "dataset POST + link", clients, load)

    async def open(self, server: Server, rest: Rest) -> None:
        """Open a domain of many datasets, each with an attribute, as h5pyd does: all in one request."""
        await rest.domain(server.new_domain())

        async def make(i: int) -> None:
            dataset = await rest.dataset(self.case.dataset(rest.root, f"d{i}"))
            await rest.json("PUT", f"/datasets/{dataset}/attributes/a", self.case.attribute(i))

        await drive(make, self.case.objects - 1, 16)
        await rest.flush()
        found = await self.members(rest)
        if not server.durable:
            self.bench.report.remark(
                "HSDS opens a domain from the summary of its last scan, made before the clock started; "
                "hsparse answers the current state."
            )
            for _ in range(SCANS):  # the first scans may miss the last objects
                if found == self.case.objects:
                    break
                await rest.json("PUT", "/", rescan="1")
                found = await self.members(rest)
        if found != self.case.objects:
            raise WrongAnswer(
                f"{server.name} opened a domain of {self.case.objects} objects with {found} of them."
            )
        for clients in self.case.clients:
            load = await drive(lambda _: rest.send("GET", "/", params=OPEN), self.case.opens, clients)
            self.add(server.name, "open a domain", clients, load)

    async def members(self, rest: Rest) -> int:
        """Open the domain; return the number of objects in the answer."""
        return len(json.loads(await rest.send("GET", "/", params=OPEN)).get("domain_objs", {}))

    async def bare(self, server: Server) -> None:
        """Send the same bodies to the bare handler, and receive about as many bytes."""
        bodies = {
            "attribute PUT": encode(self.case.attribute(0)),
            "dataset POST + link": encode(self.case.dataset(NO_GROUP, "d0")),
        }
        sizes = ANSWERS | {"open a domain": MEMBER * self.case.objects}
        async with server.rest() as rest:
            for clients in self.case.clients:
                for kind, size in sizes.items():
                    body = bodies.get(kind)
                    send = partial(
                        rest.send, "PUT" if body else "GET", "/x", body, params={"bytes": str(size)}
                    )
                    load = await self.repeat(send, self.count(kind), clients)
                    self.add("bare", kind, clients, load)

    async def repeat(self, send: Callable[[], Awaitable[object]], count: int, clients: int) -> Load:
        """Send the same request `count` times."""
        return await drive(lambda _: send(), count, clients)
