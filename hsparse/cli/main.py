"""The `hsparse` command."""

from __future__ import annotations

import argparse
import sys

from hsparse import __version__
from hsparse.cli import demo, domain_map, export, key, serve, user
from hsparse.cli.importer import command as importer
from hsparse.config import load_settings
from hsparse.errors import HsparseError


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; the parsed arguments carry `run`."""
    parser = argparse.ArgumentParser(
        prog="hsparse",
        description="Sparse HDF5 over HTTP: serve a directory or a bucket to HDF REST clients.",
        epilog="Every flag is also a variable: --some-name is HSPARSE_SOME_NAME.",
    )
    parser.add_argument("--version", action="version", version=f"hsparse {__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    serve.add_parsers(subparsers)
    settings = load_settings()
    passwords, keys = (str(one) if one else None for one in (settings.password_file, settings.key_file))
    user.add_parser(subparsers, passwords)
    key.add_parser(subparsers, keys, passwords)
    export.add_parser(subparsers)
    domain_map.add_parser(subparsers)
    importer.add_parser(subparsers, settings.s3_endpoint, settings.s3_region)
    demo.add_parser(subparsers)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run a command; what stops it is one sentence on standard error and status 2."""
    try:
        args = make_parser().parse_args(arguments)
        status: int = args.run(args)
    except HsparseError as error:
        print(f"hsparse: {error.message}", file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
