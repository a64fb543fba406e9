"""What `hsparse user` does with a password file; it requires packages of the server."""

from __future__ import annotations

import argparse
import getpass
import sys
from dataclasses import replace

from hsparse.errors import BadRequest, HsparseError
from hsparse.sn.auth.password_file import PasswordFile, PasswordHash, User


def run(args: argparse.Namespace) -> int:
    """Run the command; return 0, or 2 after one sentence on standard error."""
    file = PasswordFile(args.password_file)
    try:
        match args.user_command:
            case "add":
                _add(file, args)
            case "password":
                file.require(args.name)
                encoded = PasswordHash().hash(_read_password())
                file.change(args.name, lambda user: replace(user, hash=encoded))
                print(f"Changed the password of user {args.name}.")
            case "role":
                _set_role(file, args)
            case "remove":
                file.remove(args.name)
                print(f"Removed user {args.name}.")
            case _:
                _list(file)
    except HsparseError as error:
        print(error.message, file=sys.stderr)
        return 2
    return 0


def _add(file: PasswordFile, args: argparse.Namespace) -> None:
    file.refuse_existing(args.name)
    encoded = PasswordHash().hash(_read_password())
    file.add(User(args.name, encoded, args.admin, _groups(args)))
    print(f"Added user {args.name}.")


def _set_role(file: PasswordFile, args: argparse.Namespace) -> None:
    file.change(args.name, lambda user: replace(user, admin=args.admin, groups=_groups(args)))
    groups = ",".join(_groups(args)) or "none"
    print(f"User {args.name} has the role {'admin' if args.admin else 'user'}; groups: {groups}.")


def _groups(args: argparse.Namespace) -> tuple[str, ...]:
    return tuple(dict.fromkeys(args.group))


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
