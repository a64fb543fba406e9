"""`hsparse map`: the map of a domain's chunks, written as a file that other programs open."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPResponse
from pathlib import Path
from tempfile import TemporaryDirectory

from hsparse.cli.connection_flags import add_server_flags, connector
from hsparse.cli.file_arguments import check_target
from hsparse.cli.file_copy import check_copy
from hsparse.cli.terminal_text import terminal_text
from hsparse.client.connection import Connection
from hsparse.client.files.domain_file import DomainFile, check_domain
from hsparse.format.format_revision import FormatRevision
from hsparse.format.hdf5.plan.file_form import FileForm, FileLayout

PARQUET = "kerchunk-parquet"
FORMATS = ("json", "kerchunk", PARQUET, "dmrpp")
PART = 1 << 20


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments of `map`; the parsed ones carry `run`."""
    parser.description = (
        "Write where the chunks of a domain are, in a form that other programs read them by: hsparse's "
        "own JSON, kerchunk references in JSON, as a directory of Parquet files, or DMR++. What a form does not have "
        "is left out and named. A password is asked for, or read as one line when standard input is not a terminal."
    )
    parser.add_argument("domain", metavar="DOMAIN", help="its path, as /home/user/file.h5")
    parser.add_argument(
        "out", type=Path, metavar="OUT", help=f"the file to be made, of {PARQUET} a directory"
    )
    parser.add_argument("--format", choices=FORMATS, default="json", help="the form (default: json)")
    parser.add_argument(
        "--addresses",
        choices=["objects", "file"],
        default="objects",
        help="where chunks are: in the store's objects (default), or in the domain's HDF5 file",
    )
    parser.add_argument(
        "--layout",
        choices=[layout.value for layout in FileLayout],
        help="layout of that file (default: stock)",
    )
    parser.add_argument(
        "--revision",
        choices=[revision.value for revision in FormatRevision],
        help="with --layout structured: the revision of the format",
    )
    parser.add_argument(
        "--base",
        metavar="URL",
        help="what URLs begin with: the store's directory or bucket, or a copy of the file (export --layout stock)",
    )
    parser.add_argument(
        "--urls", type=int, metavar="SECONDS", help="presigned URLs of the objects, good for so long; S3 only"
    )
    add_server_flags(parser)
    parser.add_argument("--force", action="store_true", help="replace OUT where there is one")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the map; raise the error that stops it."""
    check_domain(args.domain)
    parquet = args.format == PARQUET
    if not (parquet and args.force and _is_ours(args.out)):
        check_target(args.out, replace=args.force)
    write = partial(_write_parquet, args.load_part("parquet").write_references) if parquet else _write
    params = {name: getattr(args, name) for name in ("addresses", "layout", "revision", "base", "urls")}
    params["format"] = "kerchunk" if parquet else args.format
    connect = connector(args, args.domain)
    if args.base and args.addresses == "file":
        _check_base(args, connect)
    with (
        connect() as connection,
        connection.response("GET", "/map", **params) as answer,
        TemporaryDirectory(".part", f"{args.out.name}.", args.out.absolute().parent) as directory,
    ):
        part = Path(directory, args.out.name)
        write(answer, part)
        if args.out.is_dir():
            shutil.rmtree(args.out)
        part.replace(args.out)
    print(args.out)
    return 0


def _check_base(args: argparse.Namespace, connect: Callable[[], Connection]) -> None:
    """Raise `Conflict` if the copy that the map is to lead to is another file."""
    form = FileForm.parse(args.layout or FileLayout.STOCK.value, args.revision)
    flags = " ".join(f"--{name} {value}" for name, value in form.params.items())
    with connect() as connection:
        file = DomainFile(connection.for_domain(None), args.domain, form)
        check_copy(args.base, file, f"Copy it there by hsparse export {args.domain} FILE {flags}.")


def _write(answer: HTTPResponse, path: Path) -> None:
    with path.open("xb") as file:
        for data in _parts(answer):
            file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _write_parquet(
    write: Callable[[Path, Iterator[bytes]], dict[str, str]], answer: HTTPResponse, path: Path
) -> None:
    for name, reason in write(path, _parts(answer)).items():
        print(terminal_text(f"left out: {name}: {reason}", sys.stderr), file=sys.stderr)


def _parts(answer: HTTPResponse) -> Iterator[bytes]:
    while data := answer.read(PART):
        yield data


def _is_ours(path: Path) -> bool:
    """Say whether a directory has references only, so that nothing else is lost."""
    return (path / ".zmetadata").is_file()
