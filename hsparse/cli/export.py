"""`hsparse export`: a domain of a running server, written as an HDF5 file."""

from __future__ import annotations

import argparse
from pathlib import Path

from hsparse.cli import credential, progress
from hsparse.cli.credential import credential_of
from hsparse.cli.progress import reporting, tell
from hsparse.client.connection import Connection
from hsparse.client.domain_file import DomainFile
from hsparse.errors import BadRequest
from hsparse.format.hdf5.file_layout import FileLayout

ENDPOINT = "http://127.0.0.1:5101"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `export`; the parsed arguments carry `run`."""
    parser = subparsers.add_parser(
        "export",
        help="write a domain of a running server as an HDF5 file",
        description="Write a domain of a running server as an HDF5 file. Until it is whole it has another name; run "
        "again, the command goes on where it stopped, unless the domain was changed. A password is asked for, or read "
        "as one line when standard input is not a terminal.",
    )
    parser.add_argument("domain", metavar="DOMAIN", help="its path, as /home/user/file.h5")
    parser.add_argument("file", type=Path, metavar="FILE", help="the file to be made")
    parser.add_argument(
        "--endpoint", default=ENDPOINT, metavar="URL", help=f"the server (default: {ENDPOINT})"
    )
    credential.add_flags(parser)
    parser.add_argument(
        "--layout",
        choices=[layout.value for layout in FileLayout],
        default=FileLayout.STOCK.value,
        help="sparse datasets as any HDF5 library reads them (default), or as structured chunks",
    )
    parser.add_argument("--force", action="store_true", help="replace FILE where there is one")
    progress.add_flag(parser)
    parser.set_defaults(run=reporting(run))


def run(args: argparse.Namespace) -> int:
    """Write the file; raises what stops it."""
    if args.file.exists() and not args.force:
        raise BadRequest(f"{args.file} exists; add --force to replace it.")
    if not args.file.absolute().parent.is_dir():
        raise BadRequest(f"There is no directory {args.file.absolute().parent} to write to.")
    who = credential_of(args)
    with (
        Connection(args.endpoint, user=who.user, password=who.password, token=who.token) as connection,
        progress.progress(args.progress, args.domain) as shown,
    ):
        size = DomainFile(connection, args.domain, args.layout).fetch(args.file, shown.update)
    tell(args.progress, f"{args.file}: {size} bytes")
    return 0
