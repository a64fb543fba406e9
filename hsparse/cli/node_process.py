"""What `hsparse serve`, `sn` and `dn` have in common: flags, logs, memory, a listener and an end.

Their flags come from the settings, so that a flag, its environment variable and its help are written once.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any

import numpy as np
import uvloop
from aiohttp import web

from hsparse.cli.node_log import configure_log
from hsparse.concurrency.collector import collect_seldom
from hsparse.concurrency.request_trace import Tracer
from hsparse.config import SETTINGS, Settings, load_settings
from hsparse.errors import Misconfigured
from hsparse.extension import extensions
from hsparse.sections import ServerSettings
from hsparse.setting import declared_settings

FIRST = ("root", "bucket", "host", "port", "password_file")
"""Settings whose flags most servers need, and no others: help has them before all."""
BACKLOG = 4096
"""Connections that wait to be accepted: one that finds no room there tries again after seconds, and is told nothing."""


def add_node_arguments(
    parser: argparse.ArgumentParser,
    command: str,
    sections: tuple[type, ...],
    serving: Callable[[Settings], Awaitable[None]],
) -> None:
    """Add the flags of these sections that the command has; the parsed arguments have `run`, which runs `serving`."""
    names = [
        name
        for section in (ServerSettings, *sections)
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
    collect_seldom()
    np.unique(())  # its first call imports numpy.ma: 10 ms that no request is to wait for
    uvloop.run(args.serving(settings))
    return 0


@asynccontextmanager
async def listening(runner: web.BaseRunner, settings: Settings) -> AsyncIterator[str]:
    """Listen while the context lasts, and yield the URL. Leaving waits for requests in flight."""
    server = settings.server
    await runner.setup()
    try:
        site = web.TCPSite(runner, server.host, server.port, backlog=BACKLOG)
        try:
            await site.start()
        except OSError as error:
            raise Misconfigured(
                f"Cannot listen on {server.host}:{server.port}: {error.strerror}; choose another --port."
            ) from error
        host, port = runner.addresses[0][:2]
        yield f"http://{f'[{host}]' if ':' in host else host}:{port}"
    finally:
        await runner.cleanup()


def stop_signal() -> asyncio.Event:
    """Return an event that each Ctrl-C or SIGTERM sets."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


def say_ready(line: str) -> None:
    """Print that a node takes requests. The collector skips what it has by now, which took 35 to 90 ms each time."""
    gc.freeze()
    print(line, flush=True)


def add_setting_flags(parser: argparse.ArgumentParser, *names: str, first: tuple[str, ...] = ()) -> None:
    """Add the flags of these settings to a command's parser, in groups with the titles of the settings' groups.

    Those of `first` are in a group before the others.
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


def node_tracer(service: str) -> AbstractContextManager[Tracer | None]:
    """Return a context of the tracer of a process, None if it exports no spans."""
    found: AbstractContextManager[Tracer | None] = nullcontext()
    for one in (one.tracer for one in extensions() if one.tracer is not None):
        found = one.load().node_tracer(service)
    return found
