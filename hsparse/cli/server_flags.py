"""The flags by which commands reach a running server and sign in."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from hsparse.cli import credential
from hsparse.cli.credential import credential_of
from hsparse.client.connection import Connection

ENDPOINT = "http://127.0.0.1:5101"
TIMEOUT = 300.0
"""Seconds that an answer may take to begin."""


def add_server_flags(parser: argparse.ArgumentParser, *, piped: bool = False) -> None:
    """Add the flags that `connecting` takes; with `piped` for commands that servers start as jobs."""
    parser.add_argument(
        "--endpoint", default=ENDPOINT, metavar="URL", help=f"URL of the server (default: {ENDPOINT})"
    )
    credential.add_flags(parser, piped=piped)


def connecting(args: argparse.Namespace, domain: str | None = None) -> Callable[[], Connection]:
    """Return what opens connections as the flags tell; asks for a password, once, where they name a user."""
    who = credential_of(args)
    return lambda: Connection(
        args.endpoint, domain, user=who.user, password=who.password, token=who.token, timeout=TIMEOUT
    )
