"""`hsparse map`: where the chunks of a domain are, written as a file that other programs open."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from http.client import HTTPResponse
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from hsparse.cli.connection_flags import add_server_flags, connector
from hsparse.cli.file_arguments import check_target
from hsparse.cli.parquet_references import ReferenceMembers
from hsparse.client.domain_file import check_domain
from hsparse.errors import Misconfigured
from hsparse.format.format_revision import FormatRevision
from hsparse.format.hdf5.plan.file_form import FileLayout

PARQUET = "kerchunk-parquet"
FORMATS = ("json", "kerchunk", PARQUET, "dmrpp")
PART = 1 << 20


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `map`; the parsed arguments carry `run`."""
    parser = subparsers.add_parser(
        "map",
        help="write where the chunks of a domain are",
        description="Write where the chunks of a domain are, in a form that other programs read them by: hsparse's "
        "own JSON, kerchunk references in JSON, as a directory of Parquet files, or DMR++. What a form does not have "
        "is left out and named. A password is asked for, or read as one line when standard input is not a terminal.",
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
        help="what URLs begin with: the store's directory or bucket, or a copy of the file",
    )
    parser.add_argument(
        "--urls", type=int, metavar="SECONDS", help="presigned URLs of the objects, good for so long; S3 only"
    )
    add_server_flags(parser)
    parser.add_argument("--force", action="store_true", help="replace OUT where there is one")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the map; raises what stops it."""
    check_domain(args.domain)
    parquet = args.format == PARQUET
    if not (parquet and args.force and _is_ours(args.out)):
        check_target(args.out, replace=args.force)
    if parquet and find_spec("pyarrow") is None:
        raise Misconfigured(f"{PARQUET} needs pyarrow, not installed here: pip install 'hsparse[parquet]'")
    params = {name: getattr(args, name) for name in ("addresses", "layout", "revision", "base", "urls")}
    params["format"] = "kerchunk" if parquet else args.format
    with (
        connector(args, args.domain)() as connection,
        connection.response("GET", "/map", **params) as answer,
        TemporaryDirectory(".part", f"{args.out.name}.", args.out.absolute().parent) as directory,
    ):
        part = Path(directory, args.out.name)
        (_write_parquet if parquet else _write)(answer, part)
        if args.out.is_dir():
            shutil.rmtree(args.out)
        part.replace(args.out)
    print(args.out)
    return 0


def _write(answer: HTTPResponse, path: Path) -> None:
    with path.open("xb") as file:
        for data in _parts(answer):
            file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _write_parquet(answer: HTTPResponse, path: Path) -> None:
    # It needs the extra, and is loaded by nothing else.
    writer = import_module("hsparse.cli.parquet_references")
    members = ReferenceMembers(_parts(answer))
    writer.write_parquet(path, members)
    for name, reason in members.others.get("skipped", {}).items():
        print(f"left out: {name}: {reason}", file=sys.stderr)


def _parts(answer: HTTPResponse) -> Iterator[bytes]:
    while data := answer.read(PART):
        yield data


def _is_ours(path: Path) -> bool:
    """Say whether a directory is one of references, and no more is lost than those."""
    return (path / ".zmetadata").is_file()
