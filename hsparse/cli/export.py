"""`hsparse export`: a domain of a running server, written as an HDF5 file."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bars

from hsparse.cli.exporter.domain_source import DomainSource
from hsparse.cli.exporter.filter_choice import FilterChoice
from hsparse.cli.exporter.filtered_export import export_filtered
from hsparse.client.connection import Connection
from hsparse.client.domain_file import DomainFile, Progress
from hsparse.errors import BadRequest
from hsparse.format.hdf5.file_layout import FileLayout
from hsparse.format.hdf5.matrix_encoding import MatrixEncoding

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
    parser.add_argument("--user", metavar="NAME", help="sign in as this user, with a password")
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="sign in with the API key, or token, that is in FILE"
    )
    parser.add_argument(
        "--layout",
        choices=[layout.value for layout in FileLayout],
        default=FileLayout.STOCK.value,
        help="sparse datasets as any HDF5 library reads them (default), or as structured chunks",
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
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the file; raises what stops it."""
    if args.file.exists() and not args.force:
        raise BadRequest(f"{args.file} exists; add --force to replace it.")
    if not args.file.absolute().parent.is_dir():
        raise BadRequest(f"There is no directory {args.file.absolute().parent} to write to.")
    choice = None if args.filter is None else FilterChoice.parse(args.filter)
    password = _password() if args.user is not None else None
    token = _token(args.token_file) if args.token_file is not None else None

    def connect() -> Connection:
        return Connection(args.endpoint, user=args.user, password=password, token=token)

    def file_of(connection: Connection) -> DomainFile:
        return DomainFile(connection, args.domain, args.layout, matrices=args.matrices)

    with _shown(args.domain) as progress:
        if choice is None:
            with connect() as connection:
                size = file_of(connection).fetch(args.file, progress)
        else:
            with DomainSource(args.domain, connect, file_of) as source:
                size = export_filtered(source, choice, args.file, progress)
    print(f"{args.file}: {size} bytes")
    return 0


@contextmanager
def _shown(domain: str) -> Iterator[Progress]:
    """Show progress on standard error, if that is a terminal."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Bars(*columns, console=console, disable=not console.is_terminal) as bars:
        task = bars.add_task(domain, total=None)

        def show(have: int, size: int) -> None:
            bars.update(task, completed=have, total=size)

        yield show


def _password() -> str:
    """Return the password as typed, or as standard input's first line."""
    try:
        return getpass.getpass("Password: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    except EOFError:
        raise BadRequest("No password was typed; nothing was written.") from None
    except UnicodeDecodeError:
        # The cause would carry the password.
        raise BadRequest("The password is not valid Unicode; type it in UTF-8.") from None


def _token(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        raise BadRequest(f"The token in {path} cannot be read.") from None
