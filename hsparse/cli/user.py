"""`hsparse user`: the users of a password file."""

from __future__ import annotations

import argparse
import getpass
import sys
from pathlib import Path

from hsparse.config import load_settings
from hsparse.errors import BadRequest, HsparseError
from hsparse.sn.auth.password_file import PasswordFile, PasswordHash, User


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add `add`, `list` and `remove`; the parsed arguments have `run`."""
    parser.description = "Add, list and remove the users of a password file."
    password_file = load_settings().sign_in.password_file
    commands = parser.add_subparsers(dest="user_command", required=True, metavar="COMMAND")
    add = commands.add_parser(
        "add",
        help="add a user, or replace the one of that name",
        description="Add a user, or replace the one of that name. The password is asked for twice, "
        "or read as one line when standard input is not a terminal.",
    )
    add.add_argument("name", metavar="NAME")
    add.add_argument("--admin", action="store_true", help="grant every right in every domain")
    add.add_argument("--group", action="append", default=[], metavar="G", help="a group; repeatable")
    listing = commands.add_parser("list", help="list users: name, role, groups")
    remove = commands.add_parser("remove", help="remove a user")
    remove.add_argument("name", metavar="NAME")
    for one in (add, listing, remove):
        one.add_argument(
            "--password-file",
            type=Path,
            default=password_file,
            required=password_file is None,
            metavar="FILE",
            help="the password file (default: $HSPARSE_PASSWORD_FILE)",
        )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; return 0, or 2 after one sentence on standard error."""
    file = PasswordFile(args.password_file)
    try:
        if args.user_command == "add":
            _add(file, args.name, args.admin, args.group)
        elif args.user_command == "remove":
            file.remove(args.name)
            print(f"Removed user {args.name}.")
        else:
            _list(file)
    except HsparseError as error:
        print(error.message, file=sys.stderr)
        return 2
    return 0


def _add(file: PasswordFile, name: str, admin: bool, groups: list[str]) -> None:
    password = _read_password()
    user = User(name, PasswordHash().hash(password), admin, tuple(dict.fromkeys(groups)))
    replaced = file.put(user)
    print(f"{'Replaced' if replaced else 'Added'} user {name}.")


def _list(file: PasswordFile) -> None:
    users = file.users()
    width = max(map(len, users), default=0)
    for name in sorted(users):
        role = "admin" if users[name].admin else "user"
        print(f"{name:{width}}  {role:5}  {','.join(users[name].groups)}".rstrip())


def _read_password() -> str:
    """Return the password as typed twice, or as standard input's first line."""
    if not sys.stdin.isatty():
        try:
            return sys.stdin.readline().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            # The cause would carry the password.
            raise BadRequest("The password is not valid Unicode; type it in UTF-8.") from None
    try:
        password = getpass.getpass("Password: ")
        again = getpass.getpass("Again: ")
    except EOFError:
        raise BadRequest("No password was typed; nothing was changed.") from None
    if password != again:
        raise BadRequest("The two passwords differ; nothing was changed.")
    return password
