"""Functions that make the parts of a service node from its settings: owners (data nodes), service and application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from hsparse.cli.node_log import write_line
from hsparse.cli.sign_in import make_authenticator
from hsparse.cli.store_watch import StoreWatch
from hsparse.cli.stores import ONLY_READS, are_buckets, root_of
from hsparse.clock import Clock, SystemClock
from hsparse.cluster.membership_object import MembershipObject
from hsparse.concurrency.request_trace import Tracer
from hsparse.config import Settings
from hsparse.dn.membership.member_node import MemberNode
from hsparse.extension import extensions
from hsparse.sections import LogFormat, ServerSettings
from hsparse.sn.app import Application, Parts, create_app
from hsparse.sn.data_nodes.cluster_nodes import ClusterNodes
from hsparse.sn.data_nodes.owners import FixedNodes, Owners
from hsparse.sn.metrics import Metrics
from hsparse.sn.policies.cors import Cors
from hsparse.sn.policies.log import RequestLog, access_json, access_text
from hsparse.sn.policies.read_only import ReadOnly
from hsparse.sn.service import Service
from hsparse.storage.object_store import ObjectStore
from hsparse.wire.codec import MESSAGE_VERSION
from hsparse.wire.message import DataNode
from hsparse.wire.remote_node import RemoteNode

LOCAL = "dn-001"
"""The name of the data node that runs in the process of a server."""


@asynccontextmanager
async def cluster_owners(stores: list[ObjectStore], token: str, watch: StoreWatch) -> AsyncIterator[Owners]:
    """Yield the data nodes of a cluster that serves these stores; the first store has the list of members."""
    stored = MembershipObject(stores[0], token, [store.name for store in stores[1:]], MESSAGE_VERSION)
    nodes = ClusterNodes(stored, SystemClock(), lambda url: RemoteNode(url, token))
    try:
        yield Owners(nodes, trouble=watch.error)
    finally:
        await nodes.close()


def local_owners(node: DataNode, watch: StoreWatch | None = None) -> Owners:
    """Return owners that consist of the data node of this process; `watch` reports stores that fail."""
    refused = (lambda: node.refused) if isinstance(node, MemberNode) else (lambda: None)
    return Owners(FixedNodes({LOCAL: node}, refused), trouble=None if watch is None else watch.error)


def make_service(
    settings: Settings,
    owners: Owners,
    buckets: tuple[str, ...],
    parts: Sequence[Parts] = (),
    clock: Clock | None = None,
) -> Service:
    """Make the service of a service node over `owners`, which serve these buckets; `parts` add sign-in schemes."""
    clock = clock or SystemClock()
    origins = settings.service.cors_origins
    chosen = replace(
        settings.service,
        bucket=buckets[0],
        other_buckets=buckets[1:],
        directory=_directory(settings),
        single_user=None if settings.signs_in else settings.sign_in.user,
        cors_origins=() if origins == ("none",) else origins,
        read_only=settings.store.read_only,
    )
    schemes = [scheme for one in parts for scheme in one.schemes]
    authenticator = make_authenticator(settings.sign_in, schemes, clock)
    return Service(chosen, owners, clock, authenticator, Metrics(), clock.now(), settings.added)


def service_parts(settings: Settings, clock: Clock | None = None) -> tuple[Parts, ...]:
    """Return the parts that extensions add to a service node; a read-only store adds a part that rejects changes."""
    clock = clock or SystemClock()
    modules = [one.service.load() for one in extensions() if one.service is not None]
    reading = Parts(policies=((Cors, ReadOnly(ONLY_READS)),), about={"read_only": True})
    own = (reading,) if settings.store.read_only else ()
    return (*own, *(module.parts(settings, clock) for module in modules))


def _directory(settings: Settings) -> str:
    """Return the path of the directory of the first store, or "" if the stores are buckets."""
    return "" if are_buckets(settings.store) else str(root_of(settings.store))


def make_app(
    service: Service, settings: ServerSettings, parts: Sequence[Parts], tracer: Tracer | None = None
) -> Application:
    """Make the application of a service node, with its request log; `tracer` starts the spans of requests."""
    log = RequestLog(
        service.clock,
        service.metrics,
        write=write_line if settings.access_log else None,
        form=access_json if settings.log_format is LogFormat.JSON else access_text,
        slow=settings.slow_request,
        tracer=tracer,
    )
    return create_app(service, log=log, parts=parts)


@asynccontextmanager
async def running(parts: Sequence[Parts], service: Service, url: str) -> AsyncIterator[None]:
    """Run the background work of `parts` while the context lasts, in which the node serves requests at `url`."""
    async with AsyncExitStack() as stack:
        for one in parts:
            if one.running is not None:
                await stack.enter_async_context(one.running(service, url))
        yield
