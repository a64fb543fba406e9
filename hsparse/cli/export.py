"""`hsparse export`: a domain of a running server, written as an HDF5 file."""

from __future__ import annotations

import argparse
from pathlib import Path

from hsparse.cli import progress
from hsparse.cli.exporter.domain_source import DomainSource
from hsparse.cli.exporter.filter_choice import FilterChoice
from hsparse.cli.exporter.filtered_export import export_filtered
from hsparse.cli.progress import reporting, tell
from hsparse.cli.server_flags import add_server_flags, connecting
from hsparse.client.connection import Connection
from hsparse.client.domain_file import DomainFile
from hsparse.errors import BadRequest
from hsparse.format.hdf5.file_form import FileForm
from hsparse.format.hdf5.file_layout import FileLayout
from hsparse.format.hdf5.format_revision import NEWEST, FormatRevision
from hsparse.format.hdf5.matrix_encoding import MatrixEncoding


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
    add_server_flags(parser, piped=True)
    parser.add_argument(
        "--layout",
        choices=[layout.value for layout in FileLayout],
        default=FileLayout.STOCK.value,
        help="sparse datasets as any HDF5 library reads them (default), or as structured chunks",
    )
    parser.add_argument(
        "--revision",
        choices=[revision.value for revision in FormatRevision],
        help=f"with --layout structured: the revision of the format (default: {NEWEST.value})",
    )
    parser.add_argument(
        "--matrices",
        choices=[encoding.value for encoding in MatrixEncoding],
        help="sparse datasets of two dimensions as groups that AnnData, or Binsparse, reads (with the layout stock)",
    )
    parser.add_argument(
        "--filter",
        action="append",
        metavar="NAME[=LEVEL]",
        help="write chunks with this filter: gzip[=LEVEL], shuffle, lzf, fletcher32, others that a plugin reads, or "
        "none. Repeated, or with + between, they are applied one after the other: shuffle+gzip=4. All chunks get them, "
        "whatever filters they had; data in one piece of more than 64 KiB becomes chunks of 1 MiB, what is smaller and "
        "has a part of variable length stays as it is. Structured chunks get them in all their sections. Such an "
        "export is not continued, but begins again",
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
    form = FileForm.parse(args.layout, args.revision, args.matrices)
    choice = None if args.filter is None else FilterChoice.parse(args.filter)
    connect = connecting(args)

    def file_of(connection: Connection) -> DomainFile:
        return DomainFile(connection, args.domain, form)

    with progress.progress(args.progress, args.domain) as shown:
        if choice is None:
            with connect() as connection:
                size = file_of(connection).fetch(args.file, shown.update)
        else:
            with DomainSource(args.domain, connect, file_of) as source:
                size = export_filtered(source, choice, args.file, shown.update)
    tell(args.progress, f"{args.file}: {size} bytes")
    return 0
