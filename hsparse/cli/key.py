"""`hsparse key`: API keys for programs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hsparse.clock import Clock, SystemClock
from hsparse.config import load_settings
from hsparse.errors import BadRequest, HsparseError
from hsparse.sn.auth.api_key import ApiKey, KeyFile, Role, new_key, written_time
from hsparse.sn.auth.password_file import PasswordFile

DAY = 24 * 60 * 60
DAYS = 365
MAX_DAYS = 36500
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
    settings = load_settings().sign_in
    key_file, password_file = settings.key_file, settings.password_file
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
        default=password_file,
        metavar="FILE",
        help="the password file that has the user (default: $HSPARSE_PASSWORD_FILE)",
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
            default=key_file,
            required=key_file is None,
            metavar="FILE",
            help="the key file (default: $HSPARSE_KEY_FILE)",
        )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, clock: Clock | None = None) -> int:
    """Run the command; return 0, or 2 after one sentence on standard error."""
    clock = clock or SystemClock()
    file = KeyFile(Path(args.key_file))
    try:
        if args.key_command == "add":
            _add(file, args, clock)
        elif args.key_command == "revoke":
            _revoke(file, args, clock)
        else:
            _list(file, clock)
    except HsparseError as error:
        print(error.message, file=sys.stderr)
        return 2
    return 0


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str, description: str
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name, help=text, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def _add(file: KeyFile, args: argparse.Namespace, clock: Clock) -> None:
    if not 0 <= args.days <= MAX_DAYS:
        raise BadRequest(f"--days must be 0 to {MAX_DAYS}, not {args.days}.")
    expires = int(clock.now()) + args.days * DAY if args.days else None
    groups = tuple(dict.fromkeys(args.group))
    text, key = new_key(clock, args.name, args.of, _role(args), groups, expires)
    file.add(key)
    until = f"until {written_time(expires)}" if expires is not None else "until it is revoked"
    print(text)
    print(f"Added key {key.name} of {key.user}, valid {until}. It is not shown again.", file=sys.stderr)


def _role(args: argparse.Namespace) -> Role:
    if args.password_file is None or args.service:
        return Role.ADMIN if args.admin else Role.USER
    if args.admin or args.group:
        raise BadRequest(
            "Role and groups of a user are in the password file: set them by 'hsparse user add', or give the "
            "key its own with --service."
        )
    if args.of not in PasswordFile(Path(args.password_file)).users():
        raise BadRequest(
            f"There is no user {args.of!r} in {args.password_file}; add the user first, or give the key a role "
            "and groups of its own with --service."
        )
    return Role.ACCOUNT


def _revoke(file: KeyFile, args: argparse.Namespace, clock: Clock) -> None:
    if sum((args.name is not None, args.of is not None, args.expired)) != 1:
        raise BadRequest("Say which keys to revoke: a name or id, or --of USER, or --expired.")

    def picks(key: ApiKey) -> bool:
        if args.expired:
            return _has_expired(key, clock)
        return key.user == args.of if args.of is not None else args.name in (key.name, key.id)

    for key in file.revoke(picks):
        print(f"Revoked key {key.name} ({key.id}) of {key.user}.")


def _list(file: KeyFile, clock: Clock) -> None:
    rows = [("id", "name", "user", "role", "groups", "created", "expires")]
    for key in sorted(file.keys().values(), key=lambda key: (key.user, key.name)):
        times = [written_time(key.created), written_time(key.expires)]
        expired = " (expired)" if _has_expired(key, clock) else ""
        groups = ",".join(key.groups) or "-"
        rows.append((key.id, key.name, key.user, key.role.value, groups, times[0], times[1] + expired))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _has_expired(key: ApiKey, clock: Clock) -> bool:
    return key.expires is not None and clock.now() >= key.expires
