"""The flags by which commands reach a running server and sign in."""

from __future__ import annotations

import argparse
import getpass
import sys
from pathlib import Path

from hsparse.client.connection import Connection
from hsparse.errors import BadRequest

ENDPOINT = "http://127.0.0.1:5101"


def add_server_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that `connecting` takes."""
    parser.add_argument(
        "--endpoint", default=ENDPOINT, metavar="URL", help=f"the server (default: {ENDPOINT})"
    )
    parser.add_argument("--user", metavar="NAME", help="sign in as this user, with a password")
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="sign in with the API key, or token, that is in FILE"
    )


def connecting(args: argparse.Namespace, domain: str | None = None) -> Connection:
    """Return a connection as the flags tell; asks for a password where they name a user."""
    password = _password() if args.user is not None else None
    token = _token(args.token_file) if args.token_file is not None else None
    return Connection(args.endpoint, domain, user=args.user, password=password, token=token)


def _password() -> str:
    """Return the password as typed, or as standard input's first line."""
    try:
        return getpass.getpass("Password: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    except EOFError:
        raise BadRequest("No password was typed; nothing was written.") from None
    except UnicodeDecodeError:
        # The cause would carry the password.
        raise BadRequest("The password is not valid Unicode; type it in UTF-8.") from None


def _token(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        raise BadRequest(f"The token in {path} cannot be read.") from None
