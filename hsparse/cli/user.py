"""`hsparse user`: manages the users of a password file."""

from __future__ import annotations

import argparse
from pathlib import Path

from hsparse.cli.environment import server_default

TYPED = "The password is asked for twice, or read as one line when standard input is not a terminal."


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the subcommands, from `add` to `remove`, and set `run` in the parsed arguments."""
    parser.description = "Add, change, list and remove the users of a password file."
    commands = parser.add_subparsers(dest="user_command", required=True, metavar="COMMAND")
    add = commands.add_parser("add", help="add a user", description=f"Add a user. {TYPED}")
    imported = commands.add_parser(
        "import",
        help="add the users of a password file of HSDS",
        description="Add the users of a password file of HSDS, lines name:password, with hashes of their passwords. "
        "If one user cannot be added, or has a name that is taken, none is added.",
    )
    imported.add_argument("file", type=Path, metavar="FILE", help="the file of HSDS, such as passwd.txt")
    imported.add_argument(
        "--admin", action="append", default=[], metavar="NAME", help="this user is an admin; repeatable"
    )
    password = commands.add_parser(
        "password",
        help="change a user's password",
        description=f"Change a user's password; role and groups stay. {TYPED}",
    )
    role = commands.add_parser(
        "role",
        help="change a user's role and groups",
        description="Set role and groups of a user to those given; the password stays.",
    )
    listing = commands.add_parser("list", help="list users: name, role, groups")
    remove = commands.add_parser("remove", help="remove a user")
    for one in (add, password, role, remove):
        one.add_argument("name", metavar="NAME")
    for one in (add, role):
        one.add_argument("--admin", action="store_true", help="grant every right in every domain")
        one.add_argument("--group", action="append", default=[], metavar="G", help="a group; repeatable")
    default = server_default("password_file")
    for one in (add, imported, password, role, listing, remove):
        one.add_argument(
            "--password-file",
            type=Path,
            default=None if default is None else Path(default),
            required=default is None,
            metavar="FILE",
            help="the password file [HSPARSE_PASSWORD_FILE]",
        )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; return 0, or print an error to standard error and return 2."""
    return int(args.load_part("accounts").run(args))
