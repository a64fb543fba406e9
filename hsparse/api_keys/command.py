"""`hsparse key`: API keys for programs."""

from __future__ import annotations

import argparse
from pathlib import Path

from hsparse.cli.environment import server_default
from hsparse.clock import Clock

DAYS = 365
ADD = """\
Make an API key and print it. It is shown this once: only its SHA-256 is kept.

A key acts as its user: with --password-file, that user of the file, with the rights and groups the file gives
at the time of each request, and no longer than the user is in it. Otherwise, or with --service, the key has a
role and groups of its own (--admin, --group).

Clients send it as `Authorization: Bearer hsk_...`, h5pyd as api_key (or HS_API_KEY); clients that only know
names and passwords send it as the password of its user.

  hsparse key add beamline-7 --of ann --days 90 --key-file keys --password-file passwords
  hsparse key add backup --of backup --service --group staff --key-file keys
"""
REVOKE = """\
Revoke API keys: they are refused at once, by running servers too.

  hsparse key revoke beamline-7 --key-file keys      by name, or by id
  hsparse key revoke --of ann --key-file keys        all keys of a user
  hsparse key revoke --expired --key-file keys       all that have expired
"""


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add `add`, `list` and `revoke`; the parsed arguments have `run`."""
    parser.description = "Add, list and revoke API keys."
    key_file, password_file = map(server_default, ("key_file", "password_file"))
    commands = parser.add_subparsers(dest="key_command", required=True, metavar="COMMAND")
    add = _command(commands, "add", "make an API key and print it", ADD)
    add.add_argument("name", metavar="NAME", help="what to call it; one key has a name")
    add.add_argument("--of", required=True, metavar="USER", help="whom the key acts as")
    add.add_argument(
        "--days",
        type=int,
        default=DAYS,
        metavar="N",
        help=f"for how many days it is valid; 0: until it is revoked (default: {DAYS})",
    )
    add.add_argument("--service", action="store_true", help="the user is in no password file")
    add.add_argument("--admin", action="store_true", help="grant every right in every domain")
    add.add_argument("--group", action="append", default=[], metavar="G", help="a group; repeatable")
    add.add_argument(
        "--password-file",
        type=Path,
        default=None if password_file is None else Path(password_file),
        metavar="FILE",
        help="the password file that has the user [HSPARSE_PASSWORD_FILE]",
    )
    text = "list keys: id, name, user, role, groups, time of creation and of expiry"
    listing = _command(commands, "list", text, f"{text[0].upper()}{text[1:]}.")
    revoke = _command(commands, "revoke", "revoke keys, at once", REVOKE)
    revoke.add_argument("name", nargs="?", metavar="NAME", help="the key's name or id")
    revoke.add_argument("--of", metavar="USER", help="all keys of this user")
    revoke.add_argument("--expired", action="store_true", help="all keys that have expired")
    for one in (add, listing, revoke):
        one.add_argument(
            "--key-file",
            type=Path,
            default=None if key_file is None else Path(key_file),
            required=key_file is None,
            metavar="FILE",
            help="the key file [HSPARSE_KEY_FILE]",
        )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, clock: Clock | None = None) -> int:
    """Run the command; return 0, or 2 after one sentence on standard error."""
    status: int = args.load_part("keys").run(args, clock)
    return status


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str, description: str
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name, help=text, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
