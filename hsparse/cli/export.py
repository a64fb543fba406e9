"""`hsparse export`: a domain of a running server, written as an HDF5 file."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bars

from hsparse.cli.server_flags import add_server_flags, connecting
from hsparse.client.domain_file import DomainFile, Progress
from hsparse.errors import BadRequest
from hsparse.format.hdf5.file_layout import FileLayout


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
    add_server_flags(parser)
    parser.add_argument(
        "--layout",
        choices=[layout.value for layout in FileLayout],
        default=FileLayout.STOCK.value,
        help="sparse datasets as any HDF5 library reads them (default), or as structured chunks",
    )
    parser.add_argument("--force", action="store_true", help="replace FILE where there is one")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the file; raises what stops it."""
    if args.file.exists() and not args.force:
        raise BadRequest(f"{args.file} exists; add --force to replace it.")
    if not args.file.absolute().parent.is_dir():
        raise BadRequest(f"There is no directory {args.file.absolute().parent} to write to.")
    with connecting(args) as connection, _shown(args.domain) as progress:
        size = DomainFile(connection, args.domain, args.layout).fetch(args.file, progress)
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
