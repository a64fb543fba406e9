"""`hsparse cp`: copy domains and folders.

A domain is copied through its virtual HDF5 file, in the layout that keeps sparse datasets: what an export and an import
keep, a copy keeps, in one state of the domain. The client sends chunks as they are stored.
"""

from __future__ import annotations

import argparse
from functools import partial
from posixpath import dirname

from hsparse.cli import progress
from hsparse.cli.bounded_pool import BoundedPool
from hsparse.cli.progress import Advance, ProgressForm, print_message, reports_failure
from hsparse.cli.tree.mkdir import make_folder
from hsparse.cli.tree.server_tree import Entry, Kind, ServerTree
from hsparse.cli.tree.tree_command import (
    PATTERN_HELP,
    Output,
    add_target_arguments,
    add_tree_arguments,
    pairs,
    require_free,
    run,
)
from hsparse.client.connection import Connection
from hsparse.client.http.retrying_client import RetryingClient
from hsparse.clock import SystemClock
from hsparse.errors import BadRequest
from hsparse.hdf5.domain_file import DomainFile
from hsparse.hdf5.exporter.domain_source import DomainSource
from hsparse.hdf5.format.plan.file_plan import FileForm, FileLayout, VirtualForm
from hsparse.hdf5.importer.file_objects import SHIFTED, FileObjects
from hsparse.hdf5.importer.hdf5_import import Hdf5Import
from hsparse.hdf5.importer.target_domain import TargetDomain
from hsparse.hdf5.importer.virtual_links import VirtualLinks
from hsparse.model.ids import new_root_id

REQUESTS = 8
"""Requests at a time."""
ABOUT = f"""\
Copy domains, and with -r folders with all that is in them.

  hsparse cp /home/ann/run1.h5 /home/ann/copy.h5
  hsparse cp '/home/ann/run*.h5' /home/ann/runs
  hsparse cp -r /home/ann/runs /home/ben/runs

A copy belongs to the caller and has the rights of its new folder. It has what hsparse export --layout structured and
hsparse import keep: data of file-backed datasets is copied, objects that no link leads to are not. Virtual datasets
stay virtual. The copy of a domain
that cannot be finished is deleted again. In a path, {PATTERN_HELP}.
"""


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments of `cp`; the parsed ones have `run`."""
    add_target_arguments(parser)
    parser.add_argument(
        "-r", "--recursive", action="store_true", help="copy folders with all that is in them"
    )
    progress.add_progress_flag(parser)
    add_tree_arguments(parser, ABOUT, copy_paths, piped=True)
    parser.set_defaults(run=reports_failure(run))


def copy_paths(args: argparse.Namespace, tree: ServerTree, output: Output) -> None:
    """Copy each source to its new path."""
    bar = ProgressForm.NONE if output.is_json else args.progress
    for entry, path in pairs(args, tree):
        if entry.kind is Kind.FOLDER and not args.recursive:
            raise BadRequest(f"{entry.path} is a folder; copy it with all that is in it by hsparse cp -r.")
        copy_all(tree, output, entry, path, bar)


def copy_all(tree: ServerTree, output: Output, entry: Entry, path: str, bar: ProgressForm) -> None:
    """Copy a domain, or a folder with all that is in it; `Conflict` if there is anything at `path`."""
    require_free(tree, path)
    if entry.kind is Kind.DOMAIN:
        copy_domain(tree, output, entry.path, path, bar)
        return
    members = list(tree.members(entry))  # before the copy may become one of them
    make_folder(tree, output, path)
    for member in members:
        copy_all(tree, output, member, f"{path}/{member.name}", bar)


def copy_domain(tree: ServerTree, output: Output, source: str, target: str, bar: ProgressForm) -> None:
    """Copy a domain; `PreconditionFailed` if it is changed meanwhile. After a failure the copy is deleted."""
    form = FileForm(FileLayout.STRUCTURED, virtual=VirtualForm.MAPPED)

    def file_of(connection: Connection) -> DomainFile:
        return DomainFile(connection, source, form)

    with (
        DomainSource(source, partial(tree.connect, None), file_of) as file,
        progress.show_progress(bar, target, file.size) as shown,
    ):
        root = new_root_id(SystemClock())
        objects = FileObjects(file, root, matrices=SHIFTED)
        _send(partial(tree.connect, target), source, target, objects, root, shown.advance)
    if objects.lost:
        text = f"{target}: {objects.lost} references lead to objects that no link leads to: they are null."
        if bar is ProgressForm.JSON:
            print_message(bar, text)
        else:
            output.warn(text)
    output.report("copied", source, to=target)


def _send(
    connect: partial[Connection],
    source: str,
    target: str,
    objects: FileObjects,
    root: str,
    advance: Advance,
) -> None:
    # The second client undoes what was done, when the first one is stopped.
    sending, undoing = RetryingClient(connect), RetryingClient(connect)
    domain = TargetDomain(undoing, target)
    # What virtual datasets name beside their domain is beside the copy, too, or is named by its whole path.
    folder = "" if dirname(source) == dirname(target) else dirname(source)
    links = VirtualLinks(sending, target, folder, all=True)
    try:
        domain.create(root, None, ordered=objects.is_ordered)
        with BoundedPool(REQUESTS, stop=sending.stop) as uploads:
            Hdf5Import(sending, uploads, objects, advance, resumed=False, links=links).run()
    except BaseException:
        domain.delete(root)
        raise
    finally:
        sending.close()
        undoing.close()
