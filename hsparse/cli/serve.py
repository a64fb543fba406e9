"""`hsparse serve`, `hsparse sn` and `hsparse dn`: the long-running commands."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import uvloop

from hsparse.cli.allocator import share_arenas
from hsparse.cli.child_nodes import child_nodes
from hsparse.cli.compose import (
    DEFAULT_ROOT,
    listening,
    local_owners,
    make_service,
    make_service_app,
    membership_of,
    open_data_node,
    open_store,
    remote_owners,
    running_jobs,
    stop_signal,
)
from hsparse.cli.flags import add_flags, settings_of
from hsparse.clock import SystemClock
from hsparse.config import Settings
from hsparse.dn.server import create_node_app
from hsparse.errors import Misconfigured
from hsparse.sn.data_nodes import Owners
from hsparse.wire.message import GetInfo

STORE = ("root", "bucket", "s3_endpoint", "s3_region", "single_writer", "fsync", "put_log")
LISTEN = ("host", "port", "log_level")
LIMITS = ("cache_size", "pending_size")
STANDARD_INPUT = 0
SIGN_IN = (
    *("password_file", "key_file", "group_file", "admins", "user"),
    *("oidc_issuer", "oidc_audience", "oidc_user_claim", "oidc_group_claim", "oidc_leeway"),
)
DOOR = (
    *SIGN_IN,
    *("cors_origins", "compress", "rate_limit", "rate_burst"),
    *("max_request_size", "page_size", "request_memory", "answer_memory"),
    *("job_places", "jobs_at_once", "jobs_queued"),
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `serve`, `sn` and `dn`."""
    commands: list[tuple[str, Callable[[Settings], Awaitable[None]], str, tuple[str, ...]]] = [
        ("serve", serve, "run a whole server", (*LISTEN, *STORE, "dn", *DOOR, *LIMITS)),
        ("sn", serve_door, "run a service node on its own", (*LISTEN, "nodes", *DOOR)),
        (
            "dn",
            serve_data,
            "run a data node on its own",
            (*LISTEN, *STORE, "nodes", "node_id", "listen_fd", *LIMITS),
        ),
    ]
    for name, command, text, flags in commands:
        parser = subparsers.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        add_flags(parser, *flags)
        parser.set_defaults(run=run, command=command)


def run(args: argparse.Namespace) -> int:
    """Run the command until it is told to stop."""
    settings = settings_of(args)
    level = settings.log_level.upper()
    if level not in logging.getLevelNamesMapping():
        raise Misconfigured(f"--log-level {settings.log_level} is not DEBUG, INFO, WARNING or ERROR.")
    logging.basicConfig(
        level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    share_arenas()
    uvloop.run(args.command(settings))
    return 0


async def serve(settings: Settings) -> None:
    """Serve clients, with the data node inside or `--dn` of them beside."""
    settings.check_exposure()
    if settings.dn and settings.single_writer:
        raise Misconfigured("--single-writer means one process: leave out --dn.")
    stop = stop_signal()
    async with _owners(settings) as owners:
        await _serve_clients(settings, owners, stop)


async def serve_door(settings: Settings) -> None:
    """Serve clients over data nodes that run elsewhere."""
    settings.check_exposure()
    if not settings.nodes:
        raise Misconfigured("Name the data nodes: --nodes http://host:port,http://host:port")
    stop = stop_signal()
    owners = remote_owners(settings.nodes, settings.node_token.get_secret_value())
    try:
        await _serve_clients(settings, owners, stop)
    finally:
        for node in owners.nodes.values():
            await node.close()


async def serve_data(settings: Settings) -> None:
    """Serve service nodes."""
    settings.check_node_exposure()
    stop = stop_signal()
    if settings.listen_fd is not None:
        _stop_with_parent(stop)
    node = await open_data_node(settings)
    app = create_node_app(node, membership_of(settings.nodes).epoch, settings.node_token.get_secret_value())
    async with listening(app, settings) as url:
        if settings.listen_fd is None:
            print(f"hsparse data node {settings.node_id} on {url}", flush=True)
        await stop.wait()
    await node.close()


@asynccontextmanager
async def _owners(settings: Settings) -> AsyncIterator[Owners]:
    if not settings.dn:
        node = await open_data_node(settings)
        try:
            yield local_owners(node)
        finally:
            await node.close()
        return
    # Found here, once, what would else end every child: a store that cannot be used.
    await (await open_store(settings)).close()
    token = SystemClock().token(32).hex()
    async with child_nodes(settings, token) as nodes:
        owners = remote_owners(nodes.urls, token)
        try:
            yield owners
        finally:
            for node_ in owners.nodes.values():
                await node_.close()


async def _serve_clients(settings: Settings, owners: Owners, stop: asyncio.Event) -> None:
    bucket = (await owners.ask_all(GetInfo()))[0].bucket
    service = make_service(settings, owners, bucket)
    gc.freeze()  # what there is by now stays: the collector need not look at it again and again
    async with listening(make_service_app(service), settings) as url:
        where = (
            f"bucket {settings.bucket}" if settings.bucket else str((settings.root or DEFAULT_ROOT).resolve())
        )
        async with running_jobs(service, settings, url):
            print(f"hsparse serves {where} on {url} (Ctrl-C stops)", flush=True)
            await stop.wait()
            print("hsparse is stopping", flush=True)


def _stop_with_parent(stop: asyncio.Event) -> None:
    """Stop when standard input ends: the process that started us is gone, or wants us to go."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        if not os.read(STANDARD_INPUT, 1):
            loop.remove_reader(STANDARD_INPUT)
            stop.set()

    loop.add_reader(STANDARD_INPUT, read)
