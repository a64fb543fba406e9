"""`hsparse map`: write the map of a domain's chunks to a file that other programs open."""

from __future__ import annotations

import argparse
import http.client
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.error import URLError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

from hsparse.cli.connection_flags import add_server_flags, connector
from hsparse.cli.file_arguments import check_target
from hsparse.cli.terminal_text import terminal_text
from hsparse.client.connection import JSON, Connection
from hsparse.client.http.address import check_domain
from hsparse.client.http.answers import check_type
from hsparse.client.http.retrying_client import RetryingClient
from hsparse.client.http.route import trusted_authorities
from hsparse.errors import Conflict
from hsparse.format.dataspace_message import FormatRevision
from hsparse.hdf5.domain_file import DomainFile
from hsparse.hdf5.format.plan.file_form import FileForm, FileLayout

PARQUET = "kerchunk-parquet"
FORMATS = {"json": JSON, "kerchunk": JSON, PARQUET: JSON}
"""The media type of the response by `--format`."""
PART_BYTES = 1 << 20
COMPARED_PARTS = 8
"""The number of parts, each of `COMPARED_BYTES` bytes, that are compared to check a copy of the file."""
COMPARED_BYTES = 16 << 10
READ_SECONDS = 30
"""The timeout in seconds for reading a part of a copy."""


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments of `hsparse map`; parsed arguments have `run`."""
    parser.description = (
        "Write the map of a domain's chunks, with which other programs read them: hsparse's own JSON, kerchunk "
        "references in JSON or as a directory of Parquet files. Objects that a format cannot describe are "
        "left out and named. A password is asked for, or read as one line if standard input is not a terminal."
    )
    parser.add_argument("domain", metavar="DOMAIN", help="path of the domain, such as /home/user/file.h5")
    parser.add_argument(
        "out", type=Path, metavar="OUT", help=f"the file to write; for {PARQUET}, a directory"
    )
    parser.add_argument("--format", choices=FORMATS, default="json", help="the format (default: json)")
    parser.add_argument(
        "--addresses",
        choices=["objects", "file"],
        default="objects",
        help="locations of chunks: in the store's objects (default), or in the domain's HDF5 file",
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
        help="prefix of URLs: the store's directory or bucket, or a copy of the file (export --layout stock)",
    )
    parser.add_argument(
        "--urls", type=int, metavar="SECONDS", help="presigned URLs of objects, valid for SECONDS; S3 only"
    )
    add_server_flags(parser)
    parser.add_argument("--force", action="store_true", help="replace OUT if it exists")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the map; raises the error that stops it."""
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
    server = RetryingClient(connect)
    try:
        server.ask(lambda one: _save(one, params, write, args.out))
    finally:
        server.close()
    print(args.out)
    return 0


def _save(
    connection: Connection,
    params: dict[str, Any],
    write: Callable[[http.client.HTTPResponse, Path], None],
    out: Path,
) -> None:
    """Write the response of `GET /map` to `out`; the file or directory `out` appears only when it is complete."""
    with (
        connection.response("GET", "/map", **params) as answer,
        TemporaryDirectory(".part", f"{out.name}.", out.absolute().parent) as directory,
    ):
        check_type(connection.url, "GET /map", answer, FORMATS[params["format"]])
        part = Path(directory, out.name)
        write(answer, part)
        if out.is_dir():
            shutil.rmtree(out)
        part.replace(out)


def _check_base(args: argparse.Namespace, connect: Callable[[], Connection]) -> None:
    """Raise `Conflict` if the file at `--base`, to which the map will refer, differs from the domain's file."""
    form = FileForm.parse(args.layout or FileLayout.STOCK.value, args.revision)
    flags = " ".join(f"--{name} {value}" for name, value in form.params.items())
    with connect() as connection:
        file = DomainFile(connection.for_domain(None), args.domain, form)
        check_copy(args.base, file, f"Export the file to it: hsparse export {args.domain} FILE {flags}.")


def _write(answer: http.client.HTTPResponse, path: Path) -> None:
    with path.open("xb") as file:
        for data in _parts(answer):
            file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _write_parquet(
    write: Callable[[Path, Iterator[bytes]], dict[str, str]], answer: http.client.HTTPResponse, path: Path
) -> None:
    for name, reason in write(path, _parts(answer)).items():
        print(terminal_text(f"left out: {name}: {reason}", sys.stderr), file=sys.stderr)


def _parts(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    while data := answer.read(PART_BYTES):
        yield data


def _is_ours(path: Path) -> bool:
    """Return whether a directory has Parquet references, so that `--force` may replace it."""
    return (path / ".zmetadata").is_file()


def check_copy(base: str, file: DomainFile, remedy: str) -> None:
    """Raise `Conflict`, with the remedy, if the file at `base`, a path or a URL, differs from `file`.

    The check compares the size and some evenly spaced parts, because nearly every change moves later data. If the file
    at `base` cannot be read, a warning is printed to standard error.
    """
    size, etag = file.state()
    step = max(1, (size - COMPARED_BYTES) // (COMPARED_PARTS - 1))
    for start in sorted(
        {min(number * step, max(0, size - COMPARED_BYTES)) for number in range(COMPARED_PARTS)}
    ):
        stop = min(start + COMPARED_BYTES, size)
        try:
            found, length = _read(base, start, stop)
        except (OSError, URLError, http.client.HTTPException, ValueError) as error:
            text = f"{base} is not checked: {error}. Values are wrong if it differs from the map's file. {remedy}"
            print(terminal_text(text, sys.stderr), file=sys.stderr)
            return
        if length != size or found != file.read(start, stop, etag):
            raise Conflict(f"{base} differs from the file of the map, so values would be wrong. {remedy}")


def _read(base: str, start: int, stop: int) -> tuple[bytes, int]:
    """Return the bytes from `start` to `stop` (exclusive) of the file at `base`, and the size of the file."""
    parts = urlsplit(base)
    if parts.scheme in ("http", "https"):
        request = Request(base, headers={"Range": f"bytes={start}-{stop - 1}"})  # noqa: S310 - HTTP only
        with urlopen(request, timeout=READ_SECONDS, context=trusted_authorities()) as answer:  # noqa: S310
            total = answer.headers.get("Content-Range", "").rpartition("/")[2]
            if answer.status != 206 or not total.isdigit():
                raise ValueError("the server does not answer range requests")
            return answer.read(), int(total)
    if parts.scheme not in ("", "file"):
        raise ValueError(f"hsparse does not read {parts.scheme}: URLs")
    with Path(unquote(parts.path) if parts.scheme else base).open("rb") as file:
        file.seek(start)
        return file.read(stop - start), file.seek(0, 2)
