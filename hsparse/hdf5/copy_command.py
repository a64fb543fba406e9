"""`hsparse cp`: copy domains and folders.

The server generates the domain's HDF5 file with structured chunks, and this command imports that file. A copy has
the data that an export and an import would keep, all from one state of the domain. The client sends stored chunks
unchanged.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from posixpath import dirname

from hsparse.cli import progress
from hsparse.cli.bounded_pool import MAX_BYTES_IN_FLIGHT, BoundedPool
from hsparse.cli.progress import Advance, ProgressDisplay, ProgressForm, print_message, reports_failure
from hsparse.cli.tree.mkdir import make_folder
from hsparse.cli.tree.server_tree import Kind, ServerTree, TreeEntry
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
from hsparse.hdf5.format.plan.file_form import FileForm, FileLayout, VirtualForm
from hsparse.hdf5.importer.file_objects import SHIFTED, FileObjects
from hsparse.hdf5.importer.hdf5_import import Hdf5Import
from hsparse.hdf5.importer.target_domain import TargetDomain
from hsparse.hdf5.importer.virtual_links import VirtualLinks
from hsparse.model.ids import new_root_id

MAX_REQUESTS = 8
"""The maximum number of concurrent requests of one command."""
ABOUT = f"""\
Copy domains and, with -r, folders with their content.

  hsparse cp /home/ann/run1.h5 /home/ann/copy.h5
  hsparse cp '/home/ann/run*.h5' /home/ann/runs
  hsparse cp -r /home/ann/runs /home/ben/runs

A copy belongs to the caller and has the rights of its new folder. It keeps the same data as hsparse export --layout
structured and hsparse import: data of file-backed datasets is copied, objects without a link are not. Virtual datasets
stay virtual. An incomplete copy of a domain is deleted. In a path, {PATTERN_HELP}.
"""


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments of `hsparse cp`; the parsed arguments have the function `run`."""
    add_target_arguments(parser)
    parser.add_argument("-r", "--recursive", action="store_true", help="copy folders with their content")
    progress.add_progress_flag(parser)
    add_tree_arguments(parser, ABOUT, copy_paths, piped=True)
    parser.set_defaults(run=reports_failure(run))


def copy_paths(args: argparse.Namespace, tree: ServerTree, output: Output) -> None:
    """Copy each source to its target path; raises `BadRequest` for a folder without `--recursive`."""
    bar = ProgressForm.NONE if output.is_json else args.progress
    for entry, path in pairs(args, tree):
        if entry.kind is Kind.FOLDER and not args.recursive:
            raise BadRequest(f"{entry.path} is a folder; copy it with its content by hsparse cp -r.")
        copy_all(tree, output, entry, path, bar)


def copy_all(tree: ServerTree, output: Output, entry: TreeEntry, path: str, bar: ProgressForm) -> None:
    """Copy a domain, or a folder with its content; raises `Conflict` if `path` exists."""
    copies = Copies(tree, output, bar)
    try:
        if entry.kind is Kind.DOMAIN:
            require_free(tree, path)
            copies.report(
                copies.copy((entry.path, path), partial(progress.show_progress, bar, path), MAX_REQUESTS)
            )
        else:
            with progress.show_progress(bar, path) as display:
                copies.copy_folder(entry, path, display)
    except BaseException:
        copies.stop()
        raise


class Copies:
    """Copies domains. The domains of a folder are copied concurrently, with one request at a time for each domain."""

    def __init__(self, tree: ServerTree, output: Output, bar: ProgressForm) -> None:
        self._tree = tree
        self._output = output
        self._bar = bar
        self._sending: set[RetryingClient] = set()

    def stop(self) -> None:
        """Stop the copies that run in other threads; each of those threads then deletes its incomplete domain."""
        for client in tuple(self._sending):
            client.stop()

    def copy_folder(self, entry: TreeEntry, path: str, display: ProgressDisplay) -> None:
        """Copy a folder with its content; raises `Conflict` if `path` exists."""
        require_free(self._tree, path)
        members = list(self._tree.members(entry))  # listed first: the copy may be inside of the folder
        make_folder(self._tree, self._output, path)
        pairs = [(one.path, f"{path}/{one.name}") for one in members if one.kind is Kind.DOMAIN]
        for copied in self._tree.each(pairs, lambda pair: self.copy(pair, lambda _: nullcontext(display), 1)):
            self.report(copied)
        for one in members:
            if one.kind is Kind.FOLDER:
                self.copy_folder(one, f"{path}/{one.name}", display)

    def report(self, copied: tuple[str, str, int]) -> None:
        """Report a copied domain; `copied` is (source path, target path, number of references that became null)."""
        source, target, lost = copied
        if lost:
            text = f"{target}: {lost} references to objects without a link became null."
            if self._bar is ProgressForm.JSON:
                print_message(self._bar, text)
            else:
                self._output.warn(text)
        self._output.report("copied", source, to=target)

    def copy(
        self,
        pair: tuple[str, str],
        show: Callable[[int], AbstractContextManager[ProgressDisplay]],
        requests: int,
    ) -> tuple[str, str, int]:
        """Copy a domain with at most `requests` concurrent requests; return (source, target, count of lost references).

        Raises `PreconditionFailed` if the source changes during the copy. If the copy fails, its target is deleted.
        """
        source, target = pair
        form = FileForm(FileLayout.STRUCTURED, virtual=VirtualForm.MAPPED)

        def file_of(connection: Connection) -> DomainFile:
            return DomainFile(connection, source, form)

        with (
            DomainSource(source, partial(self._tree.connect, None), file_of) as file,
            show(file.size) as display,
        ):
            root = new_root_id(SystemClock())
            objects = FileObjects(file, root, matrices=SHIFTED)
            self._send(source, target, objects, root, display.advance, requests)
        return source, target, objects.lost

    def _send(
        self, source: str, target: str, objects: FileObjects, root: str, advance: Advance, requests: int
    ) -> None:
        # The second client deletes the incomplete copy after the first client is stopped.
        connect = partial(self._tree.connect, target)
        sending, undoing = RetryingClient(connect), RetryingClient(connect)
        self._sending.add(sending)
        domain = TargetDomain(undoing, target)
        # Relative names of virtual datasets' sources stay relative in the same folder; elsewhere they become absolute.
        folder = "" if dirname(source) == dirname(target) else dirname(source)
        links = VirtualLinks(sending, target, folder, all=True)
        try:
            domain.create(root, None, ordered=objects.is_ordered)
            with BoundedPool(
                requests, MAX_BYTES_IN_FLIGHT * requests // MAX_REQUESTS, sending.stop
            ) as uploads:
                Hdf5Import(sending, uploads, objects, advance, resumed=False, links=links).run()
        except BaseException:
            domain.delete(root)
            raise
        finally:
            self._sending.discard(sending)
            sending.close()
            undoing.close()
