"""The common parts of `hsparse serve`, `sn` and `dn`: flags, log, memory, listener and shutdown.

Flags are generated from the settings, so that a flag, its variable and its help are defined once.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import errno
import gc
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any

import numpy as np
import uvloop
from aiohttp import web

from hsparse.cli.node_log import configure_log
from hsparse.clock import SystemClock
from hsparse.concurrency.collector import collect_seldom
from hsparse.concurrency.request_trace import Tracer
from hsparse.config import SETTINGS, Settings, load_settings
from hsparse.errors import Misconfigured
from hsparse.extension import extension_sections, extensions
from hsparse.sections import ServerSettings
from hsparse.setting import declared_settings

FIRST = ("root", "bucket", "host", "port", "password_file")
"""Settings whose flags most servers need; the help lists them first."""
BACKLOG = 4096
"""The maximum number of connections that wait to be accepted; others are dropped silently, and retry after seconds."""


def add_node_arguments(
    parser: argparse.ArgumentParser,
    command: str,
    sections: tuple[type, ...],
    serving: Callable[[Settings], Awaitable[None]],
) -> None:
    """Add the flags of these and of extensions' sections, if for the command, and set `run` to run `serving`."""
    names = [
        name
        for section in (ServerSettings, *sections, *extension_sections())
        for name, one in declared_settings(section).items()
        if one.commands is None or command in one.commands
    ]
    add_setting_flags(parser, *names, first=FIRST)
    parser.set_defaults(run=run, serving=serving)


def run(args: argparse.Namespace) -> int:
    """Run the command until a signal stops it."""
    settings = settings_of(args)
    configure_log(settings.server)
    limit_arenas()
    collect_seldom(SystemClock().monotonic)
    np.unique(())  # its first call imports numpy.ma, 10 ms that would delay a request
    uvloop.run(args.serving(settings))
    return 0


@asynccontextmanager
async def listening(runner: web.BaseRunner, settings: Settings) -> AsyncIterator[str]:
    """Listen while the context lasts, and yield the URL; on exit, wait for requests in flight."""
    server = settings.server
    await runner.setup()
    try:
        site = web.TCPSite(runner, server.host, server.port, backlog=BACKLOG)
        try:
            await site.start()
        except OSError as error:
            raise Misconfigured(
                f"Cannot listen on {server.host}:{server.port}: {error.strerror or error}; {_listen_remedy(error)}."
            ) from error
        host, port = runner.addresses[0][:2]
        yield f"http://{f'[{host}]' if ':' in host else host}:{port}"
    finally:
        await runner.cleanup()


def _listen_remedy(error: OSError) -> str:
    # Recent versions of asyncio set no errno if none of the host's addresses belongs to this machine.
    if isinstance(error, socket.gaierror) or error.errno in (None, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
        return "choose a --host that is an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all of them"
    if error.errno == errno.EACCES:
        return "choose a --port from 1024 on, which needs no rights of the administrator"
    return "choose another --port"


def stop_signal() -> asyncio.Event:
    """Return an event that each Ctrl-C or SIGTERM sets."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


def say_ready(line: str) -> None:
    """Print that a node is ready, and exempt current objects from garbage collection (35 to 90 ms each time)."""
    gc.freeze()
    print(line, flush=True)


def add_setting_flags(parser: argparse.ArgumentParser, *names: str, first: tuple[str, ...] = ()) -> None:
    """Add the flags of these settings to a command's parser, grouped by the settings' groups.

    The settings in `first` form a group before the others.
    """
    names = (*(name for name in first if name in names), *(name for name in names if name not in first))
    titles = {name: "What most servers need" if name in first else SETTINGS[name].group for name in names}
    groups = {title: parser.add_argument_group(title) for title in dict.fromkeys(titles.values())}
    for name in names:
        one = SETTINGS[name]
        suffix = f", default {one.default_text}" if one.default_text else ""
        kind: dict[str, Any] = {"metavar": name.rpartition("_")[2].upper(), "default": None}
        if one.annotation is bool:
            kind = {"action": argparse.BooleanOptionalAction, "default": None}
        elif isinstance(one.default, tuple):
            kind["action"] = "append"
        groups[titles[name]].add_argument(one.flag, help=f"{one.description} [{one.env_var}{suffix}]", **kind)


def settings_of(args: argparse.Namespace) -> Settings:
    """Return the settings from a command's flags and the environment."""
    return load_settings(**{name: value for name, value in vars(args).items() if name in SETTINGS})


M_ARENA_MAX = -8
"""The parameter's number in glibc's `malloc.h`."""
ARENAS = 2


def limit_arenas() -> None:
    """Limit all threads to two of glibc's malloc arenas; other C libraries are left alone.

    Otherwise each thread of the store and the codecs keeps its own arena, which retains freed buffers of megabytes. On
    a read of 2 GiB with default settings, 588 to 677 MiB were resident without the limit and 351 to 387 MiB with it;
    mapping each buffer on its own took 256 MiB, at half the speed.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, ARENAS)


def node_tracer(service: str) -> AbstractContextManager[Tracer | None]:
    """Return a context that yields the process's tracer, or None if it exports no spans."""
    found: AbstractContextManager[Tracer | None] = nullcontext()
    for one in (one.tracer for one in extensions() if one.tracer is not None):
        found = one.load().node_tracer(service)
    return found
