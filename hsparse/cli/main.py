"""The `hsparse` command, and the table of the modules that it imports on demand.

`COMMANDS` names modules as strings, because a command takes up to a second to import and may need an extra that is
not installed.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hsparse import __version__
from hsparse.cli.terminal_text import terminal_text
from hsparse.errors import HsparseError
from hsparse.optional_module import OptionalModule


@dataclass(frozen=True, slots=True)
class Command(OptionalModule):
    """A command: its module has `add_arguments(parser, command)`, and the parsed arguments have `run`.

    `parts` are modules that the command loads by name: `args.load_part(name)`.
    """

    help: str = ""
    parts: Mapping[str, OptionalModule] = field(default_factory=dict)

    def load_part(self, name: str) -> Any:
        """Import the part of that name, like `load`."""
        return self.parts[name].load()


ENVIRONMENT = OptionalModule("hsparse.cli.environment")
COMMANDS = {
    "serve": Command("hsparse.cli.serve", "server", "run a whole server"),
    "sn": Command("hsparse.cli.serve", "server", "run a service node on its own"),
    "dn": Command("hsparse.cli.data_node", "server", "run a data node on its own"),
    "nodes": Command("hsparse.cli.nodes", "server", "list the data nodes of a cluster"),
    "sweep": Command("hsparse.cli.sweep", "server", "remove from a store what no domain can reach"),
    "user": Command(
        "hsparse.cli.user",
        help="add, change, list and remove the users of a password file",
        parts={"accounts": OptionalModule("hsparse.cli.accounts", "server")},
    ),
    "key": Command(
        "hsparse.api_keys.command",
        help="add, list and revoke API keys",
        parts={"keys": OptionalModule("hsparse.api_keys.key_commands", "server")},
    ),
    "export": Command(
        "hsparse.hdf5.exporter.command",
        help="write a domain of a running server as an HDF5 file",
        parts={"s3": OptionalModule("hsparse.hdf5.exporter.s3_export", "s3")},
    ),
    "map": Command(
        "hsparse.hdf5.maps.command",
        help="write where the chunks of a domain are",
        parts={"parquet": OptionalModule("hsparse.hdf5.maps.parquet_references", "parquet")},
    ),
    "import": Command(
        "hsparse.hdf5.importer.command",
        help="import an HDF5 file or a sparse matrix into a domain",
        parts={"s3": OptionalModule("hsparse.hdf5.importer.s3_source", "s3")},
    ),
    "ls": Command("hsparse.cli.tree.ls", help="list folders, domains, and the objects in domains"),
    "info": Command("hsparse.cli.tree.info", help="tell what a server, a folder, a domain or an object is"),
    "mkdir": Command("hsparse.cli.tree.mkdir", help="create folders"),
    "cp": Command("hsparse.hdf5.copy_command", help="copy domains and folders"),
    "mv": Command("hsparse.cli.tree.mv", help="move domains and folders"),
    "acl": Command("hsparse.cli.tree.acl", help="show and set who may do what with a domain or folder"),
    "du": Command("hsparse.cli.tree.du", help="tell how many bytes domains and folders take"),
    "quota": Command("hsparse.quotas.command", help="show and set how much a folder may take"),
    "rm": Command("hsparse.cli.tree.rm", help="delete domains and folders"),
    "job": Command("hsparse.hdf5.jobs.command", help="have a server import or export a file by itself"),
}


def make_parser(command: str | None = None) -> argparse.ArgumentParser:
    """Return the parser that knows all commands by name, and the arguments of `command`."""
    parser = argparse.ArgumentParser(
        prog="hsparse",
        description="Sparse HDF5 over HTTP: serve a directory or a bucket to HDF REST clients.",
        epilog="Flags of servers, and those for the server and who signs in, are variables too: --some-name is "
        "HSPARSE_SOME_NAME. A help shows them in brackets.",
    )
    parser.add_argument("--version", action="version", version=f"hsparse {__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, one in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=one.help)
        if name == command:
            one.load().add_arguments(subparser, name)
            subparser.set_defaults(load_part=one.load_part)
    return parser


def parse_arguments(given: list[str]) -> argparse.Namespace:
    """Return the parsed arguments of a command line, which begins with the name of a command."""
    return make_parser(given[0] if given and given[0] in COMMANDS else None).parse_args(given)


def _parse_own_arguments() -> argparse.Namespace:
    """Parse the command line of this process, and have the collector skip what that imports, now and later.

    It stays to the end. Looking through it again and again took half the time in which a server starts and ends.
    """
    gc.disable()
    args = parse_arguments(sys.argv[1:])
    gc.freeze()
    gc.enable()
    return args


def main(arguments: list[str] | None = None) -> int:
    """Run a command, by default this process's; an error is one sentence on standard error, and status 2."""
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
