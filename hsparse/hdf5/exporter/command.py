"""`hsparse export`: write a domain of a running server as an HDF5 file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hsparse.cli import file_arguments, progress
from hsparse.cli.connection_flags import add_server_flags, connector
from hsparse.cli.file_arguments import SCHEME, check_target
from hsparse.cli.progress import interruptible, print_message, reports_failure
from hsparse.client.connection import Connection
from hsparse.client.http.retrying_client import RetryingClient
from hsparse.errors import BadRequest
from hsparse.format.dataspace_message import NEWEST_REVISION, FormatRevision
from hsparse.hdf5.domain_file import DomainFile
from hsparse.hdf5.exporter.domain_source import DomainSource
from hsparse.hdf5.exporter.refiltered_dataset import FilterChoice
from hsparse.hdf5.exporter.refiltered_file import export_filtered
from hsparse.hdf5.format.plan.file_plan import EXPORTED, FileForm, FileLayout
from hsparse.hdf5.format.plan.matrix_encoding import MatrixEncoding

LARGE = 64 * 1024 * 1024
"""Bytes of a file from which on its size is said before it is fetched."""


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments of `export`; the parsed ones have `run`."""
    parser.description = (
        "Write a domain of a running server as an HDF5 file. Until it is whole it has another name; run "
        "again, the command goes on where it stopped, unless the domain was changed. To s3://bucket/key large chunks "
        "are copied by the store, where it can read those of the server; an export that is stopped leaves nothing, "
        "unless --resume is given. A password is asked for, or read "
        "as one line when standard input is not a terminal."
    )
    parser.add_argument("domain", metavar="DOMAIN", help="its path, as /home/user/file.h5")
    parser.add_argument("file", metavar="FILE", help="the file to be made, or the object, s3://bucket/key")
    add_server_flags(parser, piped=True)
    parser.add_argument(
        "--layout",
        choices=[layout.value for layout in FileLayout],
        help="sparse datasets as any HDF5 library reads them (stock), or as structured chunks; by default (auto) as "
        "the matrices of AnnData or Binsparse that they were imported from, and others as stock, but deflated",
    )
    parser.add_argument(
        "--revision",
        choices=[revision.value for revision in FormatRevision],
        help=f"with --layout structured: the revision of the format (default: {NEWEST_REVISION.value})",
    )
    parser.add_argument(
        "--matrices",
        choices=[encoding.value for encoding in MatrixEncoding],
        help="all sparse datasets of two dimensions as groups that AnnData, or Binsparse, reads (with the "
        "layout stock)",
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
    parser.add_argument(
        "--virtual",
        choices=[form.value for form in EXPORTED],
        help="virtual datasets with their values (copied), or dense ones as HDF5's own, which name files (kept); by "
        "default kept are those whose sources are all beside the domain",
    )
    parser.add_argument("--force", action="store_true", help="replace FILE where there is one")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="resume an interrupted S3 export; keep the uploaded parts if interrupted again",
    )
    file_arguments.add_s3_flags(parser)
    progress.add_progress_flag(parser)
    parser.set_defaults(run=reports_failure(run))


def run(args: argparse.Namespace) -> int:
    """Write the file; raise the error that stops it."""
    form = FileForm.parse(args.layout, args.revision, args.matrices, args.virtual)
    choice = None if args.filter is None else FilterChoice.parse(args.filter)
    if args.file.startswith(SCHEME):
        if choice is not None:
            raise BadRequest(
                "Filters are applied to a file: leave out --filter, or export to a file and copy that."
            )
        status: int = args.load_part("s3").run(args, form)
        return status
    path = Path(args.file)
    check_target(path, replace=args.force)
    connect = connector(args)

    def file_of(connection: Connection) -> DomainFile:
        return DomainFile(connection, args.domain, form)

    try:
        with interruptible(), progress.show_progress(args.progress, args.domain) as shown:
            if choice is None:
                server = RetryingClient(connect)
                try:
                    planned, _ = server.ask(lambda one: file_of(one).state())
                    if planned >= LARGE:
                        text = (
                            f"The file will have {planned} bytes; --filter shuffle+gzip=4 makes it smaller."
                        )
                        print_message(args.progress, text, sys.stderr)
                    size = server.ask(lambda one: file_of(one).fetch(path, shown.update, replace=args.force))
                finally:
                    server.close()
            else:
                with DomainSource(args.domain, connect, file_of) as source:
                    size = export_filtered(source, choice, path, shown.update, replace=args.force)
    except KeyboardInterrupt:
        print("Stopped: the same command goes on with it." if choice is None else "Stopped.", file=sys.stderr)
        return 130
    print_message(args.progress, f"{path}: {size} bytes")
    return 0
