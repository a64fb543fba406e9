"""The `hsparse` command, and the table of its subcommands with their modules.

The module of a subcommand is named by a string and imported when the subcommand runs, because the import may take a
second or need an extra that is not installed.
"""

from __future__ import annotations

import argparse
import gc
import sys
from contextlib import suppress
from functools import partial

from hsparse import __version__
from hsparse.cli.command_parser import CommandParser, did_you_mean
from hsparse.cli.terminal_text import terminal_text
from hsparse.errors import HsparseError, Misconfigured
from hsparse.extension import Command, built_in, extensions
from hsparse.optional_module import OptionalModule

ENVIRONMENT = OptionalModule("hsparse.cli.environment")
CORE = {
    "serve": Command("hsparse.cli.serve", "server", "run a whole server"),
    "sn": Command("hsparse.cli.serve", "server", "run a service node on its own"),
    "dn": Command("hsparse.cli.data_node", "server", "run a data node on its own"),
    "nodes": Command("hsparse.cli.nodes", "server", "list the data nodes of a cluster"),
    "sweep": Command("hsparse.cli.sweep", "server", "remove unreachable objects from a store"),
    "user": Command(
        "hsparse.cli.user",
        help="add, change, list and remove the users of a password file",
        parts={"accounts": OptionalModule("hsparse.cli.accounts", "server")},
    ),
    "ls": Command("hsparse.cli.tree.ls", help="list folders, domains, and the objects in domains"),
    "info": Command("hsparse.cli.tree.info", help="describe a server, a folder, a domain or an object"),
    "mkdir": Command("hsparse.cli.tree.mkdir", help="create folders"),
    "mv": Command("hsparse.cli.tree.mv", help="move domains and folders"),
    "acl": Command("hsparse.cli.tree.acl", help="show and set the access control list of a domain or folder"),
    "du": Command("hsparse.cli.tree.du", help="show the size of domains and folders in the store"),
    "rm": Command("hsparse.cli.tree.rm", help="delete domains and folders"),
    "completion": Command("hsparse.cli.completion", help="print completions for bash, zsh or fish"),
}
COMMANDS: dict[str, Command] = CORE | {
    name: command for one in built_in() for name, command in one.commands.items()
}
"""Maps the name of each command of this package to the command."""


def all_commands() -> dict[str, Command]:
    """Return all commands by name, also the commands of other packages, which the first call takes a while to find."""
    return COMMANDS | {name: command for one in extensions() for name, command in one.commands.items()}


def make_parser(command: str | None = None, *, whole: bool = False) -> argparse.ArgumentParser:
    """Return a parser that has the names of all commands but only the arguments of `command`.

    A `whole` parser has the arguments of every command whose extras are installed.
    """
    parser = CommandParser(
        prog="hsparse",
        description="Sparse HDF5 over HTTP: serve a directory or a bucket to HDF REST clients.",
        epilog="Flags of servers, of the connection and of sign-in can be set by variables too: --some-name is "
        "HSPARSE_SOME_NAME. The help of a command shows them in brackets.",
    )
    parser.add_argument("--version", action="version", version=f"hsparse {__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    commands = COMMANDS if command in COMMANDS and not whole else all_commands()
    parser.commands = commands
    for name, one in commands.items():
        subparser = subparsers.add_parser(name, help=one.help)
        if name == command:
            one.load().add_arguments(subparser, name)
            subparser.set_defaults(
                load_part=one.load_part, make_whole_parser=partial(make_parser, whole=True)
            )
        elif whole:
            with suppress(Misconfigured):
                one.load().add_arguments(subparser, name)
    return parser


def parse_arguments(given: list[str]) -> argparse.Namespace:
    """Parse a command line without the program's name, such as `["ls", "/"]`; print an error and exit if invalid."""
    name = given[0] if given else ""
    known = name in COMMANDS or name in all_commands()
    if name and not known and not name.startswith("-"):
        meant = did_you_mean([name], all_commands())
        make_parser().error(f"there is no command {name!r}{meant or ';'} hsparse --help lists all commands.")
    return make_parser(name if known else None).parse_args(given)


def _parse_own_arguments() -> argparse.Namespace:
    """Parse the command line of this process, and exempt all modules imported so far from garbage collection.

    These modules are never freed; to scan them again and again took half of the start and exit time of a server.
    """
    gc.disable()
    args = parse_arguments(sys.argv[1:])
    gc.freeze()
    gc.enable()
    return args


def main(arguments: list[str] | None = None) -> int:
    """Run a command, by default that of this process; return its status, or print an error message and return 2."""
    try:
        args = _parse_own_arguments() if arguments is None else parse_arguments(arguments)
        ENVIRONMENT.load().check_environment()
        status: int = args.run(args)
    except HsparseError as error:
        print(f"hsparse: {terminal_text(error.message, sys.stderr)}", file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
