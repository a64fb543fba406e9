"""`hsparse key`: API keys for programs."""

from __future__ import annotations

import argparse
from pathlib import Path

from hsparse.api import Clock, server_default

DAYS = 365
ADD = """\
Make an API key and print it. The key is shown only once, because only its SHA-256 is stored.

A key acts as its user. With --password-file, the user must be in that file, and the key has the user's current
role and groups until the user is removed. Otherwise, or with --service, the key has its own role and groups
(--admin, --group).

Clients send the key as `Authorization: Bearer hsk_...`, h5pyd as api_key (or HS_API_KEY); clients that only know
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
    """Add the subcommands `add`, `list` and `revoke`, and set `run` in the parsed arguments."""
    parser.description = "Add, list and revoke API keys."
    key_file, password_file = map(server_default, ("key_file", "password_file"))
    commands = parser.add_subparsers(dest="key_command", required=True, metavar="COMMAND")
    add = _command(commands, "add", "make an API key and print it", ADD)
    add.add_argument("name", metavar="NAME", help="name of the key, unique in the key file")
    add.add_argument("--of", required=True, metavar="USER", help="the user whom the key acts as")
    add.add_argument(
        "--days",
        type=int,
        default=DAYS,
        metavar="N",
        help=f"days for which the key is valid; 0: until it is revoked (default: {DAYS})",
    )
    add.add_argument("--service", action="store_true", help="the user is not in a password file")
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
    revoke = _command(commands, "revoke", "revoke keys with immediate effect", REVOKE)
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
    """Run the command; return 0, or print an error to standard error and return 2."""
    status: int = args.load_part("keys").run(args, clock)
    return status


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str, description: str
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name, help=text, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
