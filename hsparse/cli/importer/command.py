"""`hsparse import`: a file into a domain of a running server."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from hsparse.cli.importer.file_objects import FileObjects
from hsparse.cli.importer.hdf5_import import Hdf5Import
from hsparse.cli.importer.matrix_market import open_matrix_market
from hsparse.cli.importer.npz_matrix import open_npz
from hsparse.cli.importer.server import Server
from hsparse.cli.importer.source import SCHEME, LocalSource, Source
from hsparse.cli.importer.sparse_matrix import Matrix, MatrixUpload, matrix_body
from hsparse.cli.importer.target_domain import TargetDomain
from hsparse.cli.importer.uploads import Uploads
from hsparse.client.connection import Connection
from hsparse.clock import SystemClock
from hsparse.errors import BadRequest, Conflict, HsparseError
from hsparse.model.objid import derived_id, new_root_id

ABOUT = """\
Import a file into a new domain of a running server.

  hsparse import run.h5 /home/ada/run.h5 --user ada
  hsparse import cells.h5ad /home/ada/cells.h5ad --token-file key
  hsparse import graph.mtx.gz /home/ada/graph.h5

HDF5 files are imported as they are: groups, links, attributes, committed types, datasets with their chunks and
filters. Groups that are sparse matrices (AnnData, Binsparse) become sparse datasets; --as-is leaves them groups.
Matrix Market files (.mtx, .mtx.gz) and sparse arrays of scipy and pydata (.npz) become one sparse dataset.

When anything goes wrong the new domain is deleted again, unless --keep or --resume is given.
"""
MATRICES: dict[str, Callable[[Path], Matrix]] = {
    ".mtx": open_matrix_market,
    ".mtx.gz": open_matrix_market,
    ".npz": open_npz,
}
"""What reads files that are one matrix, by the end of their names."""
ENDPOINT = "http://127.0.0.1:5101"
Advance = Callable[[int], None]


def add_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
    s3_endpoint: str | None = None,
    s3_region: str | None = None,
) -> None:
    """Add `import`; the parsed arguments carry `run`. The others are defaults of the flags of their names."""
    parser = subparsers.add_parser(
        "import",
        help="import an HDF5 file or a sparse matrix into a domain",
        description=ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "file", metavar="FILE", help="the file; an HDF5 file may be an object, s3://bucket/key"
    )
    parser.add_argument(
        "domain", metavar="DOMAIN", help="the domain, like /home/ada/run.h5; its folder must exist"
    )
    parser.add_argument(
        "--endpoint", default=ENDPOINT, metavar="URL", help=f"URL of the server (default: {ENDPOINT})"
    )
    parser.add_argument(
        "--user", metavar="NAME", help="who signs in; the password is asked for, or read as a line"
    )
    parser.add_argument(
        "--token-file", type=Path, metavar="PATH", help="file with an API key or token to sign in by"
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on with an import of the same file that was stopped"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep what was imported when something goes wrong"
    )
    parser.add_argument("--as-is", action="store_true", help="leave sparse matrices in HDF5 files as groups")
    parser.add_argument(
        "--path",
        default="matrix",
        metavar="NAME",
        help="name of the dataset of a matrix file (default: matrix)",
    )
    parser.add_argument(
        "--requests", type=_count, default=8, metavar="N", help="requests at a time, 1 to 64 (default: 8)"
    )
    parser.add_argument(
        "--s3-endpoint",
        default=s3_endpoint,
        metavar="URL",
        help="URL of the S3 service that has the file, when it is not AWS (default: $HSPARSE_S3_ENDPOINT)",
    )
    parser.add_argument(
        "--s3-region",
        default=s3_region,
        metavar="REGION",
        help="region of the bucket that has the file (default: $HSPARSE_S3_REGION)",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Import the file; raises the `HsparseError` that stops it."""
    server = Server(_connecting(args))
    try:
        with _open(args) as source, _progress(source, quiet=args.quiet) as advance:
            _Run(args, server, source, advance).run()
    except KeyboardInterrupt:
        print(f"Stopped. --resume goes on with {args.domain} where it is kept.", file=sys.stderr)
        return 130
    finally:
        server.close()
    print(f"Imported {args.file} into {args.domain}.")
    return 0


def _open(args: argparse.Namespace) -> Source:
    if not args.file.startswith(SCHEME):
        return LocalSource(Path(args.file))
    if _matrix_reader(args.file) is not None:
        raise BadRequest(f"Only HDF5 files are read from S3: copy {args.file} here, and import that.")
    # Loaded where there is a bucket: botocore takes as long to load as all the rest.
    found: Source = import_module("hsparse.cli.importer.s3_source").S3Source(
        args.file, args.s3_endpoint, args.s3_region
    )
    return found


def _matrix_reader(name: str) -> Callable[[Path], Matrix] | None:
    return next((MATRICES[end] for end in MATRICES if name.lower().endswith(end)), None)


class _Run:
    def __init__(self, args: argparse.Namespace, server: Server, source: Source, advance: Advance) -> None:
        self._args = args
        self._server = server
        self._source = source
        self._advance = advance
        self._target = TargetDomain(server, args.domain)

    def run(self) -> None:
        """Read what can be read before anything is made; then make the domain, and undo it on failure."""
        known = None
        if self._args.resume:
            known = self._target.root_to_resume(self._source.fingerprint)
        else:
            self._target.refuse_existing()
        root = known or new_root_id(SystemClock())
        opener = _matrix_reader(self._args.file)
        if opener is not None:
            matrix = opener(Path(self._args.file))
            self._guarded(known, root, False, lambda uploads: self._matrix(uploads, root, matrix))
            return
        objects = FileObjects(self._source, root, matrices=not self._args.as_is)
        resumed = known is not None
        self._guarded(
            known,
            root,
            objects.is_ordered,
            lambda uploads: Hdf5Import(self._server, uploads, objects, self._advance, resumed=resumed).run(),
        )
        if objects.lost:
            print(
                f"{objects.lost} references lead to objects that no link leads to: they are null.",
                file=sys.stderr,
            )

    def _guarded(self, known: str | None, root: str, ordered: bool, work: Callable[[Uploads], None]) -> None:
        try:
            if known is None:
                self._target.create(root, self._source.fingerprint, ordered=ordered)
            with Uploads(self._args.requests) as uploads:
                work(uploads)
        except BaseException as error:
            if known is None and not self._args.keep and not self._args.resume:
                self._undo(root, error)
            raise

    def _undo(self, root: str, error: BaseException) -> None:
        """Delete the domain; where that fails too, tell both."""
        try:
            self._target.delete(root)
        except HsparseError as left:
            raise HsparseError(
                f"{error} What was imported could not be deleted again, delete {self._args.domain}: {left.message}"
            ) from error

    def _matrix(self, uploads: Uploads, root: str, matrix: Matrix) -> None:
        id = derived_id("datasets", root, bytes(8))
        with suppress(Conflict):  # there from before: what is in it is written again
            self._server.json("POST", "/datasets", matrix_body(matrix) | {"id": id})
        upload = MatrixUpload(self._server, uploads, self._args.file, id, matrix, self._advance)
        upload.submit()
        uploads.finish()
        upload.check()
        self._server.json("PUT", f"/groups/{root}/links", {"links": {self._args.path: {"id": id}}})


def _connecting(args: argparse.Namespace) -> Callable[[], Connection]:
    """Return what opens connections, signed in as the arguments say."""
    if args.user is not None and args.token_file is not None:
        raise BadRequest("Sign in by --user or by --token-file, not by both.")
    password, token = None, None
    if args.token_file is not None:
        try:
            token = args.token_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadRequest(f"The token file {args.token_file} cannot be read: {error}.") from error
    if args.user is not None:
        password = (
            getpass.getpass("Password: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
        )
    return lambda: Connection(
        args.endpoint, args.domain, user=args.user, password=password, token=token, timeout=300.0
    )


@contextmanager
def _progress(source: Source, *, quiet: bool) -> Iterator[Advance]:
    """Show how much of the file is done, where somebody looks on."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda _: None
        return
    parts = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*parts, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task(source.name.rpartition("/")[2], total=source.size)
        yield lambda nbytes: progress.advance(task, nbytes)


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 64:
        raise argparse.ArgumentTypeError(f"{text} is not 1 to 64")
    return value
