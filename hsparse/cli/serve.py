"""`hsparse serve`, `hsparse sn` and `hsparse dn`: the long-running commands.

Their flags come from the settings, so that a flag, its environment variable and its help are written once.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvloop

from hsparse.cli.child_nodes import child_nodes
from hsparse.cli.compose import (
    DEFAULT_ROOT,
    listening,
    local_owners,
    make_service,
    make_service_app,
    open_data_node,
    open_store,
    remote_owners,
    running_jobs,
    stop_signal,
)
from hsparse.clock import SystemClock
from hsparse.cluster.membership import Membership
from hsparse.config import SETTINGS, ClusterSettings, ServerSettings, Settings, SignInSettings, load_settings
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.server import create_node_app
from hsparse.errors import Misconfigured
from hsparse.setting import declared_settings
from hsparse.sn.data_nodes import Owners
from hsparse.sn.service_settings import ServiceSettings
from hsparse.storage.store_settings import StoreSettings
from hsparse.wire.message import GetInfo

STANDARD_INPUT = 0


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the flags of `serve`, `sn` or `dn`; the parsed arguments have `run`."""
    parser.description, serving, sections = _COMMANDS[command]
    add_setting_flags(parser, *_flags_of(command, (ServerSettings, *sections)))
    parser.set_defaults(run=run, serving=serving)


def _flags_of(command: str, sections: tuple[type, ...]) -> list[str]:
    """Return the names of the settings in these sections that have a flag of the command."""
    return [
        name
        for section in sections
        for name, one in declared_settings(section).items()
        if one.commands is None or command in one.commands
    ]


def run(args: argparse.Namespace) -> int:
    """Run the command until a signal stops it."""
    settings = settings_of(args)
    level = settings.server.log_level.upper()
    if level not in logging.getLevelNamesMapping():
        raise Misconfigured(f"--log-level {settings.server.log_level} is not DEBUG, INFO, WARNING or ERROR.")
    logging.basicConfig(
        level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    limit_arenas()
    uvloop.run(args.serving(settings))
    return 0


async def serve(settings: Settings) -> None:
    """Serve clients, with a data node in this process, or with `--dn` processes of data nodes."""
    settings.check_exposure()
    if settings.cluster.dn and settings.store.single_writer:
        raise Misconfigured("--single-writer means one process: leave out --dn.")
    stop = stop_signal()
    async with _owners(settings) as owners:
        await _serve_clients(settings, owners, stop)


async def serve_service_node(settings: Settings) -> None:
    """Serve clients over data nodes that run elsewhere."""
    settings.check_exposure()
    if not settings.cluster.nodes:
        raise Misconfigured("Name the data nodes: --nodes http://host:port,http://host:port")
    stop = stop_signal()
    owners = remote_owners(settings.cluster.nodes, settings.cluster.node_token.get_secret_value())
    try:
        await _serve_clients(settings, owners, stop)
    finally:
        for node in owners.nodes.values():
            await node.close()


async def serve_data_node(settings: Settings) -> None:
    """Serve service nodes."""
    settings.check_node_exposure()
    cluster = settings.cluster
    stop = stop_signal()
    if cluster.listen_fd is not None:
        _stop_with_parent(stop)
    node = await open_data_node(settings)
    epoch = Membership.of_urls(cluster.nodes).epoch
    app = create_node_app(node, epoch, cluster.node_token.get_secret_value())
    async with listening(app, settings) as url:
        if cluster.listen_fd is None:
            print(f"hsparse data node {cluster.node_id} on {url}", flush=True)
        await stop.wait()
    await node.close()


@asynccontextmanager
async def _owners(settings: Settings) -> AsyncIterator[Owners]:
    if not settings.cluster.dn:
        node = await open_data_node(settings)
        try:
            yield local_owners(node)
        finally:
            await node.close()
        return
    # An unusable store fails here once, instead of in every child.
    await (await open_store(settings.store)).close()
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
    store = settings.store
    gc.freeze()  # objects that exist now stay, so the collector can skip them
    async with listening(make_service_app(service), settings) as url:
        where = f"bucket {store.bucket}" if store.bucket else str((store.root or DEFAULT_ROOT).resolve())
        async with running_jobs(service, settings, url):
            print(f"hsparse serves {where} on {url} (Ctrl-C stops)", flush=True)
            await stop.wait()
            print("hsparse is stopping", flush=True)


def _stop_with_parent(stop: asyncio.Event) -> None:
    """Stop at the end of standard input: the parent process has closed it, or has died."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        if not os.read(STANDARD_INPUT, 1):
            loop.remove_reader(STANDARD_INPUT)
            stop.set()

    loop.add_reader(STANDARD_INPUT, read)


def add_setting_flags(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add the flags of these settings to a command's parser."""
    for name in names:
        one = SETTINGS[name]
        default = ",".join(one.default) if isinstance(one.default, tuple) else one.default
        suffix = "" if default in (None, "", False) else f", default {default}"
        kind: dict[str, Any] = {"metavar": name.rpartition("_")[2].upper(), "default": None}
        if one.annotation is bool:
            kind = {"action": argparse.BooleanOptionalAction, "default": None}
        parser.add_argument(one.flag, help=f"{one.description} [{one.env_var}{suffix}]", **kind)


def settings_of(args: argparse.Namespace) -> Settings:
    """Return the settings from the flags of a command and the environment."""
    return load_settings(**{name: value for name, value in vars(args).items() if name in SETTINGS})


M_ARENA_MAX = -8
"""The parameter's number in glibc's `malloc.h`."""
ARENAS = 2


def limit_arenas() -> None:
    """Have all threads allocate from two of glibc's arenas; with another C library nothing is done.

    Each thread of the store and the codecs otherwise keeps an arena of its own, in which freed buffers
    of megabytes stay. Measured on a read of 2 GiB with default settings: 588 to 677 MiB resident without,
    351 to 387 MiB with it; mapping each buffer on its own instead took 256 MiB, at half the speed.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, ARENAS)


_SERVICE = (ClusterSettings, SignInSettings, ServiceSettings)
_COMMANDS: dict[str, tuple[str, Callable[[Settings], Awaitable[None]], tuple[type, ...]]] = {
    "serve": ("Run a whole server.", serve, (StoreSettings, *_SERVICE, DataSettings)),
    "sn": ("Run a service node on its own.", serve_service_node, _SERVICE),
    "dn": (
        "Run a data node on its own.",
        serve_data_node,
        (StoreSettings, ClusterSettings, DataSettings),
    ),
}
