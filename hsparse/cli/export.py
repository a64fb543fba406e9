"""`hsparse export`: a domain of a running server, written as an HDF5 file."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

from hsparse.cli import credential, progress, s3_url
from hsparse.cli.credential import credential_of
from hsparse.cli.progress import reporting, tell
from hsparse.cli.s3_url import SCHEME
from hsparse.client.connection import Connection
from hsparse.client.domain_file import DomainFile
from hsparse.errors import BadRequest
from hsparse.format.hdf5.file_layout import FileLayout

ENDPOINT = "http://127.0.0.1:5101"


def add_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
    s3_endpoint: str | None = None,
    s3_region: str | None = None,
) -> None:
    """Add `export`; the parsed arguments carry `run`. The others are defaults of the flags of their names."""
    parser = subparsers.add_parser(
        "export",
        help="write a domain of a running server as an HDF5 file",
        description="Write a domain of a running server as an HDF5 file. Until it is whole it has another name; run "
        "again, the command goes on where it stopped, unless the domain was changed. To s3://bucket/key large chunks "
        "are copied by the store, where it can read those of the server; an export that is stopped leaves nothing, "
        "unless --resume is given. A password is asked for, or read "
        "as one line when standard input is not a terminal.",
    )
    parser.add_argument("domain", metavar="DOMAIN", help="its path, as /home/user/file.h5")
    parser.add_argument("file", metavar="FILE", help="the file to be made, or the object, s3://bucket/key")
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
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with an export to S3 that was stopped, and leave what there is when this one is",
    )
    s3_url.add_flags(parser, s3_endpoint, s3_region)
    progress.add_flag(parser)
    parser.set_defaults(run=reporting(run))


def run(args: argparse.Namespace) -> int:
    """Write the file; raises what stops it."""
    if args.file.startswith(SCHEME):
        status: int = import_module("hsparse.cli.s3_export").run(
            args
        )  # loading it takes longer than a small file
        return status
    path = Path(args.file)
    if path.exists() and not args.force:
        raise BadRequest(f"{path} exists; add --force to replace it.")
    if not path.absolute().parent.is_dir():
        raise BadRequest(f"There is no directory {path.absolute().parent} to write to.")
    who = credential_of(args)
    with (
        Connection(args.endpoint, user=who.user, password=who.password, token=who.token) as connection,
        progress.progress(args.progress, args.domain) as shown,
    ):
        size = DomainFile(connection, args.domain, args.layout).fetch(path, shown.update)
    tell(args.progress, f"{path}: {size} bytes")
    return 0
