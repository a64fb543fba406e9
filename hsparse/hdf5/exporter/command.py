"""`hsparse export`: write a domain of a running server as an HDF5 file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from hsparse.cli import file_arguments, progress
from hsparse.cli.connection_flags import add_server_flags, domain_connector
from hsparse.cli.file_arguments import SCHEME, check_target
from hsparse.cli.progress import interruptible, print_message, reports_failure
from hsparse.client.connection import Connection
from hsparse.client.http.retrying_client import RetryingClient
from hsparse.errors import BadRequest
from hsparse.format.dataspace_message import NEWEST_REVISION, FormatRevision
from hsparse.hdf5.domain_file import DomainFile
from hsparse.hdf5.exporter.domain_source import DomainSource
from hsparse.hdf5.exporter.many_domains import export_each, is_for_folder
from hsparse.hdf5.exporter.refiltered_dataset import FilterChoice
from hsparse.hdf5.exporter.refiltered_file import export_filtered
from hsparse.hdf5.format.plan.file_form import FileForm, FileLayout
from hsparse.hdf5.format.plan.file_plan import EXPORTED
from hsparse.hdf5.format.plan.matrix_encoding import MatrixEncoding

ANNOUNCED_BYTES = 64 * 1024 * 1024
"""The size of a file is printed before the download if the file has at least this many bytes."""


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments of `hsparse export`; the parsed arguments have the function `run`."""
    parser.description = (
        "Write a domain of a running server as an HDF5 file. The file has another name until it is complete. An "
        "interrupted command continues when it is run again, unless the domain was changed; an interrupted export to "
        "s3://bucket/key leaves nothing. A password is asked for, or read as one line if standard input is "
        "not a terminal."
    )
    parser.add_argument(
        "domain",
        metavar="DOMAIN",
        help="path of the domain, such as /home/user/file.h5, a folder, or a pattern: '/home/user/run*.h5'",
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        help="the file to write, or the object s3://bucket/key; "
        "a directory, or a name that ends with /, gets a file for each domain",
    )
    add_server_flags(parser, piped=True)
    parser.add_argument(
        "--layout",
        choices=[layout.value for layout in FileLayout],
        help="write sparse datasets as any HDF5 library reads them (stock) or as structured chunks; the default (auto) "
        "writes matrices that were imported from AnnData or Binsparse as such, others as stock, but deflated",
    )
    parser.add_argument(
        "--revision",
        choices=[revision.value for revision in FormatRevision],
        help=f"with --layout structured: the revision of the format (default: {NEWEST_REVISION.value})",
    )
    parser.add_argument(
        "--matrices",
        choices=[encoding.value for encoding in MatrixEncoding],
        help="write all two-dimensional sparse datasets as groups that AnnData or Binsparse reads (with layout stock)",
    )
    parser.add_argument(
        "--filter",
        action="append",
        metavar="NAME[=LEVEL]",
        help="write chunks with this filter: gzip[=LEVEL], shuffle, lzf, fletcher32, others that a plugin reads, or "
        "none. Several filters, repeated or joined by +, apply in order: shuffle+gzip=4. They replace the filters "
        "of all chunks, in all sections of structured chunks. Contiguous data of more than 64 KiB becomes chunks of "
        "1 MiB, unless it has references or elements of variable length. Such an export cannot be continued",
    )
    parser.add_argument(
        "--virtual",
        choices=[form.value for form in EXPORTED],
        help="write virtual datasets with their values (copied), or dense ones as HDF5 virtual datasets, which name "
        "files (kept); by default, dense ones whose sources have relative paths are kept",
    )
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    file_arguments.add_s3_flags(parser)
    progress.add_progress_flag(parser)
    parser.set_defaults(run=reports_failure(run))


def run(args: argparse.Namespace) -> int:
    """Export one domain, or all domains of a folder or pattern; return the exit status."""
    connections = domain_connector(args)
    run_domain = partial(_run_domain, connections)
    return export_each(args, connections, run_domain) if is_for_folder(args) else run_domain(args)


def _run_domain(connections: Callable[[str | None], Connection], args: argparse.Namespace) -> int:
    """Export one domain; return the exit status."""
    form = FileForm.parse(args.layout, args.revision, args.matrices, args.virtual)
    choice = None if args.filter is None else FilterChoice.parse(args.filter)
    if args.file.startswith(SCHEME):
        if choice is not None:
            raise BadRequest(
                "--filter needs a file as the target: leave it out, or export to a file and copy the file."
            )
        status: int = args.load_part("s3").run(args, form, partial(connections, args.domain))
        return status
    path = Path(args.file)
    check_target(path, replace=args.force)
    connect = partial(connections, args.domain)

    def file_of(connection: Connection) -> DomainFile:
        return DomainFile(connection, args.domain, form)

    try:
        with interruptible(), progress.show_progress(args.progress, args.domain) as shown:
            if choice is None:
                server = RetryingClient(connect)
                try:
                    planned, _ = server.ask(lambda one: file_of(one).state())
                    if planned >= ANNOUNCED_BYTES:
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
        print("Stopped: the same command continues it." if choice is None else "Stopped.", file=sys.stderr)
        return 130
    print_message(args.progress, f"{path}: {size} bytes")
    return 0
