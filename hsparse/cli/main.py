"""The `hsparse` command."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import Any

from hsparse import __version__
from hsparse.config import load_settings
from hsparse.errors import HsparseError

MODULES = {
    "serve": "serve",
    "sn": "serve",
    "dn": "serve",
    "user": "user",
    "key": "key",
    "export": "exporter.command",
    "map": "domain_map",
    "import": "importer.command",
    "job": "job",
    "demo": "demo",
}
"""The module of each command, in `hsparse.cli`. It is loaded when the command is given: a server's takes a second."""


def make_parser(command: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of one command, or of all; the parsed arguments carry `run`."""
    parser = argparse.ArgumentParser(
        prog="hsparse",
        description="Sparse HDF5 over HTTP: serve a directory or a bucket to HDF REST clients.",
        epilog="Every flag is also a variable: --some-name is HSPARSE_SOME_NAME.",
    )
    parser.add_argument("--version", action="version", version=f"hsparse {__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    settings = load_settings()
    passwords, keys = (
        str(one) if one else None for one in (settings.sign_in.password_file, settings.sign_in.key_file)
    )
    s3 = (settings.store.s3_endpoint, settings.store.s3_region)
    defaults: dict[str, tuple[Any, ...]] = {
        "user": (passwords,),
        "key": (keys, passwords),
        "exporter.command": s3,
        "importer.command": s3,
    }
    for name in dict.fromkeys(module for one, module in MODULES.items() if command in (None, one)):
        import_module(f"hsparse.cli.{name}").add_parser(subparsers, *defaults.get(name, ()))
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run a command; what stops it is one sentence on standard error and status 2."""
    given = sys.argv[1:] if arguments is None else arguments
    command = given[0] if given and given[0] in MODULES else None
    try:
        args = make_parser(command).parse_args(given)
        status: int = args.run(args)
    except HsparseError as error:
        print(f"hsparse: {error.message}", file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
