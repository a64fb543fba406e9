"""The common parts of `hsparse serve`, `sn` and `dn`: flags, log, memory, listener and shutdown.

Flags are generated from the declarations of settings, so that a flag, its variable and its help are defined once.
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
"""The names of the settings that most servers need; the help lists the flags of these settings first."""
BACKLOG = 4096
"""The maximum number of connections that wait to be accepted; further attempts are ignored, and clients retry them."""


def add_node_arguments(
    parser: argparse.ArgumentParser,
    command: str,
    sections: tuple[type, ...],
    serving: Callable[[Settings], Awaitable[None]],
) -> None:
    """Add the flags of the settings classes `sections` and of extensions; the command then runs `serving`."""
    names = [
        name
        for section in (ServerSettings, *sections, *extension_sections())
        for name, one in declared_settings(section).items()
        if one.commands is None or command in one.commands
    ]
    add_setting_flags(parser, *names, first=FIRST)
    parser.set_defaults(run=run, serving=serving)


def run(args: argparse.Namespace) -> int:
    """Run the server of a command until a signal stops the server; return 0."""
    settings = settings_of(args)
    configure_log(settings.server)
    limit_arenas()
    collect_seldom(SystemClock().monotonic)
    np.unique(())  # its first call imports numpy.ma, 10 ms that would delay a request
    uvloop.run(args.serving(settings))
    return 0


@asynccontextmanager
async def listening(runner: web.BaseRunner, settings: Settings) -> AsyncIterator[str]:
    """Listen on the configured address while the context lasts; yield the URL. On exit, wait for requests in flight."""
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
        return "set --host to an address of this machine, such as 127.0.0.1, or to 0.0.0.0 for all addresses"
    if error.errno == errno.EACCES:
        return "set --port to 1024 or more; lower ports are for administrators"
    return "set --port to a port that no other process uses"


def stop_signal() -> asyncio.Event:
    """Return an event that is set whenever this process gets SIGINT (Ctrl-C) or SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


def say_ready(line: str) -> None:
    """Print that a node is ready, and exempt all objects so far from garbage collections, which saves 35 ms in each."""
    gc.freeze()
    print(line, flush=True)


def add_setting_flags(parser: argparse.ArgumentParser, *names: str, first: tuple[str, ...] = ()) -> None:
    """Add the flags of the settings with these names to a parser; the help has a title for each group of settings.

    The settings in `first` form a group before all other groups.
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
    """Return the settings that the parsed flags of a command and the environment give."""
    return load_settings(**{name: value for name, value in vars(args).items() if name in SETTINGS})


M_ARENA_MAX = -8
"""The number of the parameter "maximum number of arenas" in glibc's `malloc.h`."""
ARENAS = 2


def limit_arenas() -> None:
    """Let all threads share two of glibc's malloc arenas; with another C library, do nothing.

    Without the limit, each thread of stores and codecs has its own arena, which retains freed buffers of megabytes. A
    read of 2 GiB with default settings used 588 to 677 MiB of memory without the limit, and 351 to 387 MiB with the
    limit. A separate memory mapping for each buffer used 256 MiB, but halved the speed.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, ARENAS)


def node_tracer(service: str) -> AbstractContextManager[Tracer | None]:
    """Return a context that yields the tracer of this process, or None if the process exports no spans."""
    found: AbstractContextManager[Tracer | None] = nullcontext()
    for one in (one.tracer for one in extensions() if one.tracer is not None):
        found = one.load().node_tracer(service)
    return found
