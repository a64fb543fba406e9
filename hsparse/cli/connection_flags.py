"""The flags by which a client command gets its server and its credential: none, a password, a token, or a job's.

A server that starts a command as a job (`--piped`) writes the `Authorization` header of the request (empty without
authentication) as the first line of the command's standard input: arguments and variables could be read by others. The
end of the input interrupts the command like Ctrl-C: the server has canceled the job, or has exited.

If HSPARSE_ENDPOINT is set, a credential in environment variables is sent only to the server in HSPARSE_ENDPOINT.
"""

from __future__ import annotations

import argparse
import getpass
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from hsparse.cli import connection_flags
from hsparse.cli.environment import CLIENT_SETTINGS, client_default
from hsparse.client.connection import Connection
from hsparse.client.http.sign_in import SignIn
from hsparse.errors import BadRequest, Unauthenticated
from hsparse.sn.auth.line_file import basic_credential

STANDARD_INPUT = 0
UNDO_SECONDS = 20.0
"""The time, in seconds, that an interrupted command has to undo its changes."""
MAX_HEADER_BYTES = 1 << 16
"""The maximum length of an `Authorization` header in bytes; servers accept only shorter headers."""
INTERRUPTED = 130
NOT_SENT = "hsparse: the credential in HSPARSE_... is for {} and is not sent to {}; sign in there by a flag."


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential of a connection: a user and a password, or a token; all fields are None without a credential."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)


def add_sign_in_flags(parser: argparse.ArgumentParser, *, piped: bool = False) -> None:
    """Add the flags for the credential; `piped` also adds `--piped`, for commands that servers start as jobs."""
    parser.set_defaults(piped=False)
    parser.add_argument(
        "--user",
        metavar="NAME",
        help="user to sign in as; the password is in HSPARSE_PASSWORD, asked for, or read as a line [HSPARSE_USER]",
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="PATH",
        help="file with an API key or token to sign in with [HSPARSE_TOKEN_FILE, or the token in HSPARSE_TOKEN]",
    )
    if piped:
        parser.add_argument(
            "--piped",
            action="store_true",
            help="sign in with the Authorization header in the first line of standard input, and stop when the "
            "input ends",
        )


def read_credential(args: argparse.Namespace) -> Credential:
    """Return the credential from the arguments or, if no argument gives a credential, from environment variables.

    Variables are ignored if they are for another server. Raises `BadRequest` if the credential cannot be read, or if
    several are given.
    """
    if (args.user is not None) + (args.token_file is not None) + args.piped > 1:
        raise BadRequest("Sign in with only one of --user, --token-file and --piped.")
    if args.piped:
        return _piped()
    if args.token_file is not None:
        return Credential(token=_token(args.token_file))
    if args.user is not None:
        return Credential(args.user, _password(args.user, args.endpoint))
    return _credential_of_variables(args.endpoint)


def _credential_of_variables(endpoint: str) -> Credential:
    user, token, token_file = map(client_default, ("user", "token", "token_file"))
    if sum(one is not None for one in (user, token, token_file)) > 1:
        raise BadRequest(
            "Set only one of HSPARSE_USER, HSPARSE_TOKEN and HSPARSE_TOKEN_FILE; unset the others."
        )
    set_up = SignIn(client_default("endpoint"), user, token=token or token_file)
    given = set_up.for_server(endpoint)
    if given.user is None and given.token is None:
        if set_up.user is not None or set_up.token is not None:
            print(NOT_SENT.format(set_up.endpoint, endpoint), file=sys.stderr)
        return Credential()
    if token_file is not None:
        return Credential(token=_token(Path(token_file)))
    return Credential(token=token) if user is None else Credential(user, _password(user, endpoint))


def parse_header(header: str) -> Credential:
    """Return the credential in an `Authorization` header; raise `Unauthenticated` for an unknown scheme."""
    if not header:
        return Credential()
    scheme, _, rest = header.partition(" ")
    if scheme.lower() == "bearer":
        return Credential(token=rest.strip())
    if scheme.lower() == "basic":
        return Credential(*basic_credential(rest.strip()))
    raise Unauthenticated("A job signs in with Basic or Bearer credentials.")


def _password(user: str, endpoint: str) -> str:
    """Return HSPARSE_PASSWORD if the variable is for this user and server, or a password from standard input."""
    password = client_default("password")
    is_here = SignIn(client_default("endpoint")).is_for(endpoint)
    if password is not None and is_here and client_default("user") in (None, user):
        return password
    try:
        return getpass.getpass("Password: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    except EOFError:
        raise BadRequest("No password was typed, so nothing was done; run the command again.") from None
    except UnicodeDecodeError:
        # No cause, because it would contain the password.
        raise BadRequest("The password is not valid Unicode; type it in UTF-8.") from None


def _token(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        raise BadRequest(f"The token file {path} cannot be read: name a readable text file.") from None


def _piped() -> Credential:
    """Read the credential from standard input; from then on, the end of the input interrupts the main thread."""
    # SIGINT may be ignored, as for a shell's background jobs.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    line = b""
    # Not sys.stdin: a thread that waits in it would block the exit of the process.
    while not line.endswith(b"\n") and len(line) < MAX_HEADER_BYTES and (byte := os.read(STANDARD_INPUT, 1)):
        line += byte
    threading.Thread(target=_watch, name="pipe", daemon=True).start()
    return parse_header(line.decode(errors="replace").strip())


def _watch() -> None:
    """At the end of the input, interrupt the main thread; exit if the process still runs `UNDO_SECONDS` later."""
    while os.read(STANDARD_INPUT, 1):
        continue
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)  # sent to the main thread, to interrupt its system call
    threading.Event().wait(UNDO_SECONDS)
    os._exit(INTERRUPTED)


ENDPOINT: str = CLIENT_SETTINGS["endpoint"].default
ANSWER_SECONDS = 300.0
"""The maximum time, in seconds, until the server begins to answer."""


def add_server_flags(parser: argparse.ArgumentParser, *, piped: bool = False) -> None:
    """Add the flags that `connector` reads; `piped` also adds `--piped`, for commands that servers start as jobs."""
    parser.add_argument(
        "--endpoint",
        default=client_default("endpoint") or ENDPOINT,
        metavar="URL",
        help=f"URL of the server [HSPARSE_ENDPOINT, default {ENDPOINT}]",
    )
    parser.add_argument(
        "--ca-file",
        metavar="PATH",
        help="PEM file of authorities to trust beside the system's [HSPARSE_CA_FILE]",
    )
    connection_flags.add_sign_in_flags(parser, piped=piped)


def connector(args: argparse.Namespace, domain: str | None = None) -> Callable[[], Connection]:
    """Return a function that opens connections to `domain` with the server and credential that the flags give."""
    return partial(domain_connector(args), domain)


def domain_connector(args: argparse.Namespace) -> Callable[..., Connection]:
    """Return a function that opens a connection to a domain, or to no domain if its argument is None.

    The flags give the server and the credential. The optional argument `retry` lets the connection retry requests.
    """
    who = read_credential(args)
    return lambda domain, retry=None: Connection(
        args.endpoint,
        domain,
        user=who.user,
        password=who.password,
        token=who.token,
        timeout=ANSWER_SECONDS,
        ca_file=args.ca_file,
        retry=retry,
    )
