"""The implementation of `hsparse user` on a password file; needs the server's packages."""

from __future__ import annotations

import argparse
import getpass
import sys
from dataclasses import replace

from hsparse.errors import BadRequest, HsparseError
from hsparse.sn.auth.password_file import PasswordFile, User, read_hsds_users
from hsparse.sn.auth.password_hash import PasswordHash

HSDS_ADMIN = "admin"
"""HSDS's default name of the admin (`admin_user`)."""


def run(args: argparse.Namespace) -> int:
    """Run the command; return 0, or print an error to standard error and return 2."""
    file = PasswordFile(args.password_file)
    try:
        match args.user_command:
            case "add":
                _add(file, args)
            case "import":
                _import(file, args)
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


def _import(file: PasswordFile, args: argparse.Namespace) -> None:
    """Add the users of an HSDS password file; the user `admin` becomes an admin, as in HSDS."""
    found = read_hsds_users(args.file)
    admins = {HSDS_ADMIN, *args.admin}
    if missing := [name for name in args.admin if name not in found]:
        raise BadRequest(f"{args.file} has no user {missing[0]!r}; nobody was added.")
    for name in found:
        file.refuse_existing(name)
    hashes = PasswordHash()
    file.add(*(User(name, hashes.hash(password), name in admins) for name, password in found.items()))
    told = ", ".join(name for name in found if name in admins) or "none"
    print(f"Added {len(found)} users; admins: {told}. {args.file} has their passwords as text: delete it.")


def _set_role(file: PasswordFile, args: argparse.Namespace) -> None:
    file.change(args.name, lambda user: replace(user, admin=args.admin, groups=_groups(args)))
    groups = ",".join(_groups(args)) or "none"
    print(f"User {args.name} has the role {'admin' if args.admin else 'user'}; groups: {groups}.")


def _groups(args: argparse.Namespace) -> tuple[str, ...]:
    return tuple(dict.fromkeys(args.group))


def _list(file: PasswordFile) -> None:
    users = file.entries()
    width = max(map(len, users), default=0)
    for name in sorted(users):
        role = "admin" if users[name].admin else "user"
        print(f"{name:{width}}  {role:5}  {','.join(users[name].groups)}".rstrip())


def _read_password() -> str:
    """Ask for the password twice on a terminal, or read the first line of standard input; return the password."""
    if not sys.stdin.isatty():
        try:
            return sys.stdin.readline().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            # No cause, because it would contain the password.
            raise BadRequest("The password is not valid Unicode; type it in UTF-8.") from None
    try:
        password = getpass.getpass("Password: ")
        again = getpass.getpass("Again: ")
    except EOFError:
        raise BadRequest("No password was typed, so nothing was changed; run the command again.") from None
    if password != again:
        raise BadRequest("The two typed passwords differ, so nothing was changed; run the command again.")
    return password
