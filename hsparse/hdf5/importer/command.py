"""`hsparse import`: import a file into a domain of a running server.

The import creates the domain, or resumes an earlier import into it. After a failure it deletes the domain.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from hsparse.cli import file_arguments, progress
from hsparse.cli.bounded_pool import BoundedPool
from hsparse.cli.connection_flags import add_server_flags, domain_connector
from hsparse.cli.file_arguments import SCHEME
from hsparse.cli.progress import Advance, ProgressForm, interruptible, print_message, reports_failure
from hsparse.client.connection import Connection, Json
from hsparse.client.http.retrying_client import RetryingClient
from hsparse.clock import SystemClock
from hsparse.errors import BadRequest, HsparseError, Unsupported
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
from hsparse.hdf5.importer.formats.matrix_directory import is_directory, open_directory
from hsparse.hdf5.importer.formats.part_upload import PartUpload
from hsparse.hdf5.importer.hdf5_import import Hdf5Import
from hsparse.hdf5.importer.index_columns import look_at_indices
from hsparse.hdf5.importer.matrix_forms import EVENTS
from hsparse.hdf5.importer.matrix_market import open_matrix_market
from hsparse.hdf5.importer.npz_matrix import open_npz
from hsparse.hdf5.importer.server_source import UploadSource
from hsparse.hdf5.importer.source import LocalSource, Opened, Source
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

HDF5 files are imported as they are: groups, links, attributes, committed types, datasets with their chunks and
filters. Groups that are sparse matrices (AnnData, Binsparse), and datasets with a defined set, become sparse datasets;
--as-is leaves them what they are.
Matrix Market files (.mtx, .mtx.gz) and sparse arrays of scipy and pydata (.npz) become one sparse dataset.
Matrices of Cell Ranger (.h5, or a directory with matrix.mtx, barcodes.tsv and features.tsv) and loom files become
AnnData; coolers sparse datasets of their pixels, with the bins. --as-is imports the HDF5 file.
Zarr stores (directories, .zarr.zip) become groups and datasets, those of AnnData as from an .h5ad file; a measurement
of a TileDB-SOMA experiment (a directory) becomes AnnData.

When anything goes wrong the new domain is deleted again, unless --keep or --resume is given.

The exit status is 0 for a whole file, 3 when something was left behind, which is named at the end, 2 for a failure and
130 after Ctrl-C.
"""
MATRICES: dict[str, Callable[[Source], Matrix]] = {
    ".mtx": open_matrix_market,
    ".mtx.gz": open_matrix_market,
    ".npz": open_npz,
}
"""Readers of files of one matrix, by the end of the name."""
NAMED = 20
"""How many of the things that were left behind are named."""
INCOMPLETE = 3
"""The exit status of an import that left something behind."""
Reader = Callable[[], DomainParts]


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments of `import`; the parsed ones have `run`."""
    parser.description = ABOUT
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "file",
        metavar="FILE",
        help="the file, an object, s3://bucket/key, a directory (Zarr, SOMA, Cell Ranger's of a matrix), or an "
        "upload, upload:///home/ada/run.h5.upload, which is deleted then",
    )
    parser.add_argument(
        "domain", metavar="DOMAIN", help="the domain, like /home/ada/run.h5; its folder must exist"
    )
    add_server_flags(parser, piped=True)
    parser.add_argument(
        "--resume", action="store_true", help="go on with an import of the same file that was stopped"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep what was imported when something goes wrong"
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="refuse a file with something that no server can have, which is left out otherwise",
    )
    parser.add_argument(
        "--as-is",
        action="store_true",
        help="leave HDF5 files of other formats, sparse matrices in groups, and defined sets what they are",
    )
    parser.add_argument(
        "--events",
        action="store_true",
        help="beside the columns of NXevent_data in a NeXus file, make a sparse dataset counts, pulses x pixels: the "
        "number of events",
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
        help="make dense datasets of an HDF5 file sparse whose paths match, such as '/entry/data/*' (* is any text); "
        "with --drop-fill or --threshold. May be repeated",
    )
    parser.add_argument(
        "--drop-fill",
        action="store_true",
        help="leave out elements of these that have the fill value's bytes",
    )
    parser.add_argument(
        "--threshold", metavar="N", help="leave out elements of these that are not above N; NaN is kept"
    )
    parser.add_argument(
        "--sources",
        action="append",
        metavar="PLACE",
        help="look for files that an HDF5 file names, of virtual datasets and external data, also in this directory or "
        "prefix s3://bucket/path, and allow all files below it; those below the directory of FILE are always allowed. "
        "May be repeated",
    )
    parser.add_argument(
        "--copy",
        action="store_true",
        help="copy virtual datasets; else those stay virtual whose sources are domains of the server",
    )
    parser.add_argument(
        "--linked",
        default="",
        metavar="FOLDER",
        help="the folder with domains of the files that virtual datasets name, such as /run (default: that of DOMAIN)",
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
        "measurement of SOMA, what the names of a directory's files begin with",
    )
    parser.add_argument(
        "--requests", type=_count, default=8, metavar="N", help="requests at a time, 1 to 64 (default: 8)"
    )
    file_arguments.add_s3_flags(parser)
    progress.add_progress_flag(parser)
    parser.add_argument(
        "--quiet",
        action="store_const",
        const=ProgressForm.NONE,
        dest="progress",
        help="the same as --progress none",
    )
    parser.set_defaults(run=reports_failure(run))


def run(args: argparse.Namespace) -> int:
    """Import the file; raise the `HsparseError` that stops it."""
    connections = domain_connector(args)
    connect, open_source = partial(connections, args.domain), partial(_open, args, connections)
    # There is a client of its own for undoing, because the other one is stopped.
    server, sending = RetryingClient(connect), RetryingClient(connect)
    left: list[str] = []
    try:
        with interruptible(), ExitStack() as opened:
            source, read = _open_main(args, open_source)
            opened.enter_context(source)
            name = source.name.rpartition("/")[2]
            files = SourceFiles(args.file, open_source, args.sources or ())
            if isinstance(source, UploadSource):
                check_uploaded(source.name)
                files = NoOtherFiles()
            with closing(files), progress.show_progress(args.progress, name, source.size) as shown:
                _Run(args, server, sending, source, files, shown.advance).run(read, left)
            if isinstance(source, UploadSource) and (failure := source.delete()):
                print_message(args.progress, failure, sys.stderr)
    except KeyboardInterrupt:
        kept = f"--resume goes on with {args.domain}."
        gone = "What was imported is deleted again; --keep keeps it, for --resume."
        print(f"Stopped. {kept if args.keep or args.resume else gone}", file=sys.stderr)
        return 130
    finally:
        server.close()
        sending.close()
    print_message(
        args.progress, f"Imported {args.file} into {args.domain}{', not all of it' if left else ''}."
    )
    for text in left:
        print_message(args.progress, text, sys.stderr)
    return INCOMPLETE if left and not args.piped else 0


def _open_main(args: argparse.Namespace, open_source: OpenSource) -> tuple[Opened, Reader | None]:
    """Open what is imported; return what reads all of it, too, of other formats than those of a file."""
    check_known(args.file)
    if args.file.startswith(UPLOAD):
        return open_source(args.file), None
    if is_zarr(args.file):
        if args.part:
            raise BadRequest(f"{args.file} is a Zarr store, which is imported whole; leave --part out.")
        zarr: tuple[Opened, Reader] = args.load_part("zarr").open_zarr(args.file, args.path, as_is=args.as_is)
        return zarr
    if is_soma(args.file):
        soma: tuple[Opened, Reader] = args.load_part("soma").open_soma(args.file, args.part)
        return soma
    if is_directory(args.file):
        return open_directory(args.file, args.part, open_source)
    return open_source(args.file), None


def _open(args: argparse.Namespace, connections: Callable[[str | None], Connection], file: str) -> Source:
    if file.startswith(UPLOAD):
        return UploadSource(file, connections)
    if not file.startswith(SCHEME):
        return LocalSource(Path(file))
    source: Source = args.load_part("s3").S3Source(file, **file_arguments.s3_options(args))
    return source


def _matrix_reader(name: str) -> Callable[[Source], Matrix] | None:
    return next((MATRICES[end] for end in MATRICES if name.lower().endswith(end)), None)


class _Run:
    def __init__(
        self,
        args: argparse.Namespace,
        server: RetryingClient,
        sending: RetryingClient,
        source: Opened,
        files: SourceFiles,
        advance: Advance,
    ) -> None:
        self._args = args
        self._files = files
        self._sending = sending
        self._source = source
        self._advance = advance
        self._target = TargetDomain(server, args.domain)
        self._sparsify = Sparsify.parse(args.sparse or (), args.drop_fill, args.threshold)

    def run(self, read: Reader | None, left: list[str]) -> None:
        """Read as much as possible first; then create the domain, and delete it after a failure.

        What was left behind is appended to `left`, in words.
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
        assert isinstance(self._source, Source)
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
            raise BadRequest("--as-is leaves events what they are; leave --events out.")
        if self._args.as_is:
            return ()
        return (*ALL_MATRICES, EVENTS) if self._args.events else ALL_MATRICES

    def _refuse_sparsify(self) -> None:
        if self._args.events:
            raise BadRequest("--events is for NeXus files.")
        if self._sparsify is not None:
            raise BadRequest(
                "--sparse is for datasets of HDF5 files; one of another format needs --as-is, too."
            )

    def _hdf5(self, known: str | None, root: str, objects: FileObjects, left: list[str]) -> None:
        """Import an HDF5 file with all of its objects."""
        if self._sparsify is not None:
            self._sparsify.check_all([one.path for one in objects.of(ObjectKind.DATASET)])
        resumed, sparsify = known is not None, self._sparsify
        links = None if self._args.copy else VirtualLinks(self._sending, self._target.path, self._args.linked)
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
            "Filters that are stored, and exported, in a form that HSDS reads; hsparse export --filter sets others",
            [f"{path}: {changed}" for path, changed in objects.refiltered.items()],
        ):
            print_message(self._args.progress, text, sys.stderr)
        left += _listed("Not imported", list(objects.skipped.values()))
        left += _listed(
            "Sources of virtual datasets that are missing, whose elements have the fill value",
            sorted(self._files.missing),
        )
        left += _listed(
            "External links to files that are no domains; import them too",
            self._target.missing(objects.external),
        )

    def _parts(self, known: str | None, root: str, parts: DomainParts) -> list[str]:
        """Import a file of another format; return what was left behind."""
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
        try:
            if known is None:
                self._target.create(root, self._source.fingerprint, ordered=ordered, user_block=user_block)
            with BoundedPool(self._args.requests, stop=self._sending.stop) as uploads:
                work(uploads)
        except BaseException as error:
            if known is None and not self._args.keep and not self._args.resume:
                self._undo(root, error)
            raise

    def _undo(self, root: str, error: BaseException) -> None:
        """Delete the domain; if that fails too, report both errors."""
        try:
            self._target.delete(root)
        except HsparseError as left:
            raise HsparseError(
                f"{error} What was imported could not be deleted again, delete {self._args.domain}: {left.message}"
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
    """Return a message of what was left behind: its number, and the first ones by their names."""
    more = [f"and {len(some) - NAMED} more"] if len(some) > NAMED else []
    return ["\n  ".join([f"{title} ({len(some)}):", *some[:NAMED], *more])] if some else []


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 64:
        raise argparse.ArgumentTypeError(f"{text} is not 1 to 64")
    return value


def _dimensions(text: str) -> tuple[int, ...]:
    parts = text.split("x")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(
            f"{text} is not numbers above 0 with x between them, such as 4096x256"
        )
    return tuple(map(int, parts))
