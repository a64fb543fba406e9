"""`hsparse import`: import a file into a domain of a running server.

The import creates the domain, or resumes an earlier import into the domain. If the file cannot be imported, the domain
is deleted again. If the server cannot be reached, the domain is kept, so that the import can be resumed.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from hsparse.cli import file_arguments, progress
from hsparse.cli.bounded_pool import MAX_BYTES_IN_FLIGHT, BoundedPool
from hsparse.cli.connection_flags import add_server_flags, domain_connector
from hsparse.cli.file_arguments import SCHEME
from hsparse.cli.progress import Advance, ProgressForm, interruptible, print_message, reports_failure
from hsparse.cli.run_each import SMALL_ITEM_BYTES
from hsparse.client.connection import Connection, Json
from hsparse.client.errors import OtherServer
from hsparse.client.http.address import check_domain
from hsparse.client.http.retry import REPEATED
from hsparse.client.http.retrying_client import RetryingClient
from hsparse.clock import SystemClock
from hsparse.errors import BadRequest, HsparseError, StoreFailed, Unauthenticated, Unsupported, reword
from hsparse.hdf5.format.parse.parsed_object import ObjectKind
from hsparse.hdf5.importer.dense_upload import create_or_find, stored_chunks
from hsparse.hdf5.importer.file_objects import ALL_MATRICES, FileObjects
from hsparse.hdf5.importer.formats.domain_parts import DomainParts
from hsparse.hdf5.importer.formats.file_formats import (
    check_known,
    check_uploaded,
    is_soma,
    is_zarr,
    read_format,
)
from hsparse.hdf5.importer.formats.matrix_directory import has_matrix, is_directory, open_directory
from hsparse.hdf5.importer.formats.part_upload import PartUpload
from hsparse.hdf5.importer.hdf5_import import Hdf5Import
from hsparse.hdf5.importer.index_columns import look_at_indices
from hsparse.hdf5.importer.many_files import OneOfMany, hdf5_files, import_file, import_folder
from hsparse.hdf5.importer.matrix_forms import EVENTS
from hsparse.hdf5.importer.matrix_market import open_matrix_market
from hsparse.hdf5.importer.npz_matrix import open_npz
from hsparse.hdf5.importer.server_source import UploadSource
from hsparse.hdf5.importer.source import InputFile, LocalSource, OpenedInput
from hsparse.hdf5.importer.source_files import NoOtherFiles, OpenSource, SourceFiles
from hsparse.hdf5.importer.sparse_matrix import Matrix, MatrixUpload, matrix_body
from hsparse.hdf5.importer.sparsified_upload import Sparsify
from hsparse.hdf5.importer.target_domain import TargetDomain
from hsparse.hdf5.importer.upload import UPLOAD
from hsparse.hdf5.importer.virtual_links import VirtualLinks
from hsparse.model.ids import derived_id, new_root_id
from hsparse.model.link import check_title

ABOUT = """\
Import a file into a new domain of a running server.

  hsparse import run.h5 /home/ada/run.h5 --user ada
  hsparse import cells.h5ad /home/ada/cells.h5ad --token-file key
  hsparse import graph.mtx.gz /home/ada/graph.h5
  hsparse import runs /home/ada/runs

Each HDF5 file in a folder becomes a domain with the same relative path; files that fail are listed, others go on.
HDF5 files are imported as they are: groups, links, attributes, committed types, datasets with their chunks and
filters. Groups that are sparse matrices (AnnData, Binsparse), and datasets with a defined set, become sparse datasets;
--as-is keeps them unchanged.
Matrix Market files (.mtx, .mtx.gz) and sparse arrays of scipy and pydata (.npz) become one sparse dataset.
Matrices of Cell Ranger (.h5, or a directory with matrix.mtx, barcodes.tsv and features.tsv) and loom files become
AnnData; coolers become sparse datasets of their pixels, and tables of bins. --as-is imports the HDF5 file unchanged.
Zarr stores (directories, .zarr.zip) become groups and datasets; a store of AnnData is imported like an .h5ad file. A
measurement of a TileDB-SOMA experiment (a directory) becomes AnnData.

If the file cannot be imported, or after Ctrl-C, the new domain is deleted again, unless --keep or --resume is given.
If the server cannot be reached any more, or a proxy refuses, the domain stays, and --resume continues the import.

The exit status is 0 for a whole file, 3 if parts of the file were skipped (they are listed at the end), 2 for a failure
and 130 after Ctrl-C.
"""
MATRICES: dict[str, Callable[[InputFile], Matrix]] = {
    ".mtx": open_matrix_market,
    ".mtx.gz": open_matrix_market,
    ".npz": open_npz,
}
"""Maps the suffix of files that contain one matrix to the function that opens such a file."""
MAX_NAMED_OBJECTS = 20
"""The maximum number of skipped objects that a message lists by name."""
INCOMPLETE = 3
"""The exit status of an import that skipped parts of the file."""
PASSING: tuple[type[HsparseError], ...] = (*REPEATED, OtherServer, StoreFailed, Unauthenticated)
"""Temporary errors that the file does not cause: after such an error, the domain is kept for `--resume`."""
Reader = Callable[[], DomainParts]


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments of `hsparse import`; the parsed arguments have the function `run`."""
    parser.description = ABOUT
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a file, an object s3://bucket/key, a directory (of HDF5 files, Zarr, SOMA, or a Cell Ranger matrix), "
        "or an upload, upload:///home/ada/run.h5.upload, which is deleted after the import",
    )
    parser.add_argument(
        "domain",
        metavar="DOMAIN",
        help="the domain, like /home/ada/run.h5, in a folder that exists; for a folder of files, the folder to create",
    )
    add_server_flags(parser, piped=True)
    parser.add_argument(
        "--resume", action="store_true", help="continue an import of the same file that was stopped"
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="replace an existing domain once the import is done; the domain keeps its access rights",
    )
    parser.add_argument(
        "--drop-snapshots",
        action="store_true",
        help="with --force: also replace a domain that has snapshots, which are deleted",
    )
    parser.add_argument("--keep", action="store_true", help="keep the imported part if the import fails")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="fail if the file has something that hsparse cannot store, instead of skipping it",
    )
    parser.add_argument(
        "--as-is",
        action="store_true",
        help="import HDF5 files of other formats, sparse matrices in groups, and defined sets unchanged",
    )
    parser.add_argument(
        "--events",
        action="store_true",
        help="add to each NXevent_data group of a NeXus file a sparse dataset counts: the events by pulses x pixels",
    )
    parser.add_argument(
        "--chunk",
        type=_dimensions,
        default=(),
        metavar="ROWSxCOLUMNS",
        help="chunk dimensions of sparse matrices, cut to their shape (default: up to 16384 rows, of 32768 elements); "
        "64x100000 suits training on random rows",
    )
    parser.add_argument(
        "--sparse",
        action="append",
        metavar="PATTERN",
        help="import dense datasets of an HDF5 file as sparse ones if their paths match, such as '/entry/data/*' (* is "
        "any text); needs --drop-fill or --threshold. May be repeated",
    )
    parser.add_argument(
        "--drop-fill",
        action="store_true",
        help="with --sparse: leave out elements that have the fill value's bytes",
    )
    parser.add_argument(
        "--threshold", metavar="N", help="with --sparse: leave out elements up to N; NaN is kept"
    )
    parser.add_argument(
        "--sources",
        action="append",
        metavar="PLACE",
        help="also look in this directory or prefix s3://bucket/path for files that an HDF5 file names (sources of "
        "virtual datasets, external data), and allow all files below it; files below the directory of FILE are always "
        "allowed. May be repeated",
    )
    parser.add_argument(
        "--copy",
        action="store_true",
        help="copy virtual datasets; without it, those whose sources are domains of the server stay virtual",
    )
    parser.add_argument(
        "--linked",
        default="",
        metavar="FOLDER",
        help="the folder with the domains of files that virtual datasets name, such as /run (default: DOMAIN's folder)",
    )
    parser.add_argument(
        "--path",
        default="matrix",
        metavar="NAME",
        help="name of the dataset of a matrix file (default: matrix)",
    )
    parser.add_argument(
        "--part",
        default="",
        metavar="NAME",
        help="which of several matrices: a resolution of an .mcool, a genome of Cell Ranger 2, a "
        "measurement of SOMA, the prefix of a directory's files",
    )
    parser.add_argument(
        "--requests", type=_count, default=8, metavar="N", help="requests at a time, 1 to 64 (default: 8)"
    )
    file_arguments.add_s3_flags(parser)
    progress.add_progress_flag(parser)
    parser.set_defaults(run=reports_failure(run))


def run(args: argparse.Namespace) -> int:
    """Import a file, or each HDF5 file of a folder; return the exit status. Raises the error that stops the import."""
    if "://" not in args.domain:
        check_domain(args.domain)
    connections = domain_connector(args)
    run_file = partial(_run_file, connections)
    if _is_folder_of_files(args):
        return import_folder(args, connections, run_file)
    return import_file(args, connections, run_file)


def _is_folder_of_files(args: argparse.Namespace) -> bool:
    """Return whether `args.file` is a directory with HDF5 files that is no Zarr store, SOMA experiment or matrix."""
    place = Path(args.file)
    if args.part or not place.is_dir() or is_zarr(args.file) or is_soma(args.file) or has_matrix(place):
        return False
    return any(True for _ in hdf5_files(place))


def _run_file(
    connections: Callable[[str | None], Connection],
    args: argparse.Namespace,
    told: str,
    own: OneOfMany | None = None,
) -> int:
    """Import one file; return the exit status. `told` is the domain's name in messages; `own` is for folder imports."""
    connect, open_source = partial(connections, args.domain), partial(_open, args, connections)
    # Undoing needs a client of its own, because a failure or Ctrl-C stops the client that sends.
    server, sending = RetryingClient(connect), RetryingClient(connect)
    left: list[str] = []
    if own is not None:
        own.many.watch(own.number, sending.stop)
    try:
        with interruptible(), ExitStack() as opened:
            source, read = _open_main(args, open_source)
            opened.enter_context(source)
            name = source.name.rpartition("/")[2]
            files = SourceFiles(args.file, open_source, args.sources or ())
            files.imported = getattr(args, "imported", {})
            if isinstance(source, UploadSource):
                check_uploaded(source.name)
                files = NoOtherFiles()
            form = args.progress if own is None else ProgressForm.NONE
            with closing(files), progress.show_progress(form, name, source.size) as shown:
                advance = shown.advance if own is None else own.many.advance
                _Run(args, server, sending, source, files, advance, own).run(read, left)
            if isinstance(source, UploadSource) and (failure := source.delete()):
                print_message(args.progress, failure, sys.stderr)
    except KeyboardInterrupt:
        kept = f"--resume continues the import into {told}."
        gone = "The imported part is deleted again; --keep keeps it, for --resume."
        print(f"Stopped. {kept if args.keep or args.resume else gone}", file=sys.stderr)
        return 130
    finally:
        server.close()
        sending.close()
    print_message(args.progress, f"Imported {args.file} into {told}{', not all of it' if left else ''}.")
    for text in left:
        print_message(args.progress, text, sys.stderr)
    return INCOMPLETE if left and not args.piped else 0


def _open_main(args: argparse.Namespace, open_source: OpenSource) -> tuple[OpenedInput, Reader | None]:
    """Return a pair: the opened input, and a function that reads all its parts, or None for a single file."""
    check_known(args.file)
    if args.file.startswith(UPLOAD):
        return open_source(args.file), None
    if is_zarr(args.file):
        if args.part:
            raise BadRequest(f"{args.file} is a Zarr store, which is always imported whole: omit --part.")
        zarr: tuple[OpenedInput, Reader] = args.load_part("zarr").open_zarr(
            args.file, args.path, as_is=args.as_is
        )
        return zarr
    if is_soma(args.file):
        soma: tuple[OpenedInput, Reader] = args.load_part("soma").open_soma(args.file, args.part)
        return soma
    if is_directory(args.file):
        return open_directory(args.file, args.part, open_source)
    return open_source(args.file), None


def _open(args: argparse.Namespace, connections: Callable[[str | None], Connection], file: str) -> InputFile:
    if file.startswith(UPLOAD):
        return UploadSource(file, connections)
    if not file.startswith(SCHEME):
        return LocalSource(Path(file))
    source: InputFile = args.load_part("s3").S3Source(file, **file_arguments.s3_options(args))
    return source


def _matrix_reader(name: str) -> Callable[[InputFile], Matrix] | None:
    return next((MATRICES[end] for end in MATRICES if name.lower().endswith(end)), None)


class _Run:
    def __init__(
        self,
        args: argparse.Namespace,
        server: RetryingClient,
        sending: RetryingClient,
        source: OpenedInput,
        files: SourceFiles,
        advance: Advance,
        own: OneOfMany | None,
    ) -> None:
        self._args = args
        self._own = own
        self._files = files
        self._sending = sending
        self._source = source
        self._advance = advance
        self._target = TargetDomain(server, args.domain)
        self._sparsify = Sparsify.parse(args.sparse or (), args.drop_fill, args.threshold)

    def run(self, read: Reader | None, left: list[str]) -> None:
        """Parse the input, create the domain, and import the input; delete the domain if the import fails.

        Messages about skipped parts of the file are appended to `left`.
        """
        parts = read() if read is not None else None
        known = None
        if self._args.resume:
            known = self._target.root_to_resume(self._source.fingerprint)
        else:
            self._target.refuse_existing()
        root = known or new_root_id(SystemClock())
        if parts is not None:
            left += self._parts(known, root, parts)
            return
        assert isinstance(self._source, InputFile)
        opener = _matrix_reader(self._source.name)
        if opener is not None:
            self._refuse_sparsify()
            check_title(self._args.path)
            matrix = replace(opener(self._source), chunk=self._args.chunk)
            self._guarded(known, root, False, lambda uploads: self._matrix(uploads, root, matrix))
            return
        objects = FileObjects(
            self._source,
            root,
            matrices=self._kinds(),
            look=look_at_indices,
            files=self._files,
            matrix_chunk=self._args.chunk,
            strict=self._args.strict,
        )
        parts = None if self._args.as_is else read_format(objects, self._args.part)
        if parts is not None:
            left += self._parts(known, root, parts)
            return
        self._hdf5(known, root, objects, left)

    def _kinds(self) -> tuple[str, ...]:
        if self._args.as_is and self._args.events:
            raise BadRequest("--as-is does not convert events; leave --events out.")
        if self._args.as_is:
            return ()
        return (*ALL_MATRICES, EVENTS) if self._args.events else ALL_MATRICES

    def _refuse_sparsify(self) -> None:
        if self._args.events:
            raise BadRequest("--events is for NeXus files.")
        if self._sparsify is not None:
            raise BadRequest(
                "--sparse is for datasets of HDF5 files; a file of another format needs --as-is as well."
            )

    def _hdf5(self, known: str | None, root: str, objects: FileObjects, left: list[str]) -> None:
        """Import an HDF5 file with all of its objects."""
        if self._sparsify is not None:
            self._sparsify.check_all([one.path for one in objects.of(ObjectKind.DATASET)])
        resumed, sparsify = known is not None, self._sparsify
        links = None
        if not self._args.copy:
            links = VirtualLinks(
                self._sending, self._target.path, self._args.linked, before=self._await_earlier
            )
        self._guarded(
            known,
            root,
            objects.is_ordered,
            lambda uploads: Hdf5Import(
                self._sending,
                uploads,
                objects,
                self._advance,
                resumed=resumed,
                sparsify=sparsify,
                links=links,
            ).run(),
            objects.user_block(),
        )
        for path, (kept, count) in sorted(objects.kept.items()):
            text = f"{path} is sparse: {kept:,} of {count:,} elements are kept."
            print_message(self._args.progress, text)
        for path, count in sorted(links.linked.items() if links else ()):
            print_message(self._args.progress, f"{path} stays virtual: {count:,} mappings of other datasets.")
        if objects.lost:
            text = f"{objects.lost} references lead to objects that are not imported: they are null."
            print_message(self._args.progress, text, sys.stderr)
        for text in _listed(
            "Filters that HSDS cannot read, and their replacements (hsparse export --filter sets others)",
            [f"{path}: {changed}" for path, changed in objects.refiltered.items()],
        ):
            print_message(self._args.progress, text, sys.stderr)
        left += _listed("Not imported", list(objects.skipped.values()))
        left += _listed(
            "Missing sources of virtual datasets, whose elements have the fill value",
            sorted(self._files.missing),
        )
        if objects.external:
            self._await_earlier()
        left += _listed(
            "External links to files that are not imported as domains; import them too",
            self._target.missing(objects.external),
        )

    def _await_earlier(self) -> None:
        """In a folder import, wait until all files before this one are imported."""
        if self._own is not None:
            self._own.await_earlier()

    def _parts(self, known: str | None, root: str, parts: DomainParts) -> list[str]:
        """Import a file of another format than HDF5; return messages about skipped parts."""
        self._refuse_sparsify()
        for path, (matrix, attributes) in parts.matrices.items():
            if self._args.chunk:
                parts.matrices[path] = replace(matrix, chunk=self._args.chunk), attributes
        if parts.left and self._args.strict:
            raise Unsupported(parts.left[0])
        self._guarded(
            known,
            root,
            False,
            lambda uploads: PartUpload(self._sending, uploads, root, self._advance).run(parts),
        )
        return _listed("Not imported", parts.left)

    def _guarded(
        self,
        known: str | None,
        root: str,
        ordered: bool,
        work: Callable[[BoundedPool], None],
        user_block: Json | None = None,
    ) -> None:
        is_there = known is not None
        try:
            if known is None:
                self._target.create(root, self._source.fingerprint, ordered=ordered, user_block=user_block)
                is_there = True
            count, memory = self._args.requests, MAX_BYTES_IN_FLIGHT
            if self._own is not None and self._own.is_small:
                count, memory = 1, SMALL_ITEM_BYTES
            with BoundedPool(count, memory, self._sending.stop) as uploads:
                work(uploads)
        except BaseException as error:
            is_lost = self._own is not None and self._own.many.is_lost
            is_kept = isinstance(error, PASSING) or (isinstance(error, HsparseError) and error.is_of_proxy)
            if is_there and isinstance(error, HsparseError) and (is_kept or is_lost):
                reword(error, f"{error.message} The imported part is kept: {self._way_on()}")
            elif known is None and not self._args.keep and not self._args.resume:
                self._undo(root, error)
            raise

    def _way_on(self) -> str:
        command = shlex.join(["hsparse", "import", self._args.file, self._args.domain, "--resume"])
        return f"continue by {command} with the flags of this import."

    def _undo(self, root: str, error: BaseException) -> None:
        """Delete the domain after `error`; if deleting fails, raise an error with both messages."""
        try:
            self._target.delete(root)
        except HsparseError as left:
            raise HsparseError(
                f"{error} The incomplete domain could not be deleted: delete {self._args.domain}. {left.message}"
            ) from error

    def _matrix(self, uploads: BoundedPool, root: str, matrix: Matrix) -> None:
        id = derived_id("datasets", root, bytes(8))
        record, was_there = create_or_find(self._sending, "datasets", matrix_body(matrix) | {"id": id})
        stored = stored_chunks(self._sending, record) if was_there else {}
        upload = MatrixUpload(
            self._sending, uploads, self._source.name, record, matrix, self._advance, stored
        )
        upload.submit()
        uploads.finish()
        upload.check()
        self._sending.json("PUT", f"/groups/{root}/links", {"links": {self._args.path: {"id": id}}})


def _listed(title: str, some: list[str]) -> list[str]:
    """Return [] if `some` is empty, else one message with a title, their number, and the first of them."""
    more = [f"and {len(some) - MAX_NAMED_OBJECTS} more"] if len(some) > MAX_NAMED_OBJECTS else []
    return ["\n  ".join([f"{title} ({len(some)}):", *some[:MAX_NAMED_OBJECTS], *more])] if some else []


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 64:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 to 64")
    return value


def _dimensions(text: str) -> tuple[int, ...]:
    parts = text.split("x")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(
            f"{text} is not a list of numbers above 0, joined by x, such as 4096x256"
        )
    return tuple(map(int, parts))
