"""`hsparse rm`: deletes domains and folders."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import groupby

from hsparse.cli.tree.server_tree import Kind, ServerTree, TreeEntry, require_place
from hsparse.cli.tree.tree_command import PATTERN_HELP, Output, add_tree_arguments
from hsparse.errors import Conflict, NotFound

ABOUT = f"""\
Delete domains with all their objects, and empty folders; with -r folders with all that is in them.
The command does not ask first, and a deletion cannot be undone. Each path is printed once it is deleted.

  hsparse rm /home/ann/old.h5
  hsparse rm '/home/ann/tmp*.h5'
  hsparse rm -r /home/ann/2024

In a path, {PATTERN_HELP}.
"""

LONGEST_WAIT = 5
"""The maximum time, in seconds, that a request to delete a domain waits until the domain's objects are deleted."""


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments of `rm`, and set `run` in the parsed arguments."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a domain or a folder")
    parser.add_argument(
        "-r", "--recursive", action="store_true", help="delete folders with all that is in them"
    )
    add_tree_arguments(parser, ABOUT, remove_paths)


def remove_paths(args: argparse.Namespace, tree: ServerTree, output: Output) -> None:
    """Delete the domains and folders that the arguments name; if one does not exist, delete nothing."""
    entries = [require_place(entry) for path in args.paths for entry in tree.expand(path)]
    if args.recursive:
        remove_all(tree, output, entries)
        return
    for entry in tree.each(entries, partial(remove, tree)):
        _report(output, entry)


def remove_all(tree: ServerTree, output: Output, entries: list[TreeEntry]) -> None:
    """Delete first the domains, clones before the domains they clone, and then the folders, the deepest first."""
    domains, folders = tree.below(entries)
    while domains:
        refused = list(_refused(tree, output, domains))
        if len(refused) == len(domains):
            remove(tree, domains[0])  # raises the error with the reason
        domains = refused
    for _, level in groupby(folders, lambda entry: entry.path.count("/")):
        for entry in tree.each(level, partial(remove, tree)):
            _report(output, entry)


def _refused(tree: ServerTree, output: Output, domains: list[TreeEntry]) -> Iterator[TreeEntry]:
    """Delete domains; yield each domain that the server refuses to delete because a clone depends on the domain."""

    def attempt(entry: TreeEntry) -> tuple[TreeEntry, bool]:
        try:
            remove(tree, entry, wait=LONGEST_WAIT)
        except Conflict:
            return entry, False
        return entry, True

    for entry, is_gone in tree.each(domains, attempt):
        if is_gone:
            _report(output, entry)
        else:
            yield entry


def remove(tree: ServerTree, entry: TreeEntry, wait: int = 0) -> TreeEntry:
    """Delete a domain or an empty folder, if it still exists; return `entry`. A folder with content raises `Conflict`.

    The server waits up to `wait` seconds until the objects are deleted; a domain can be deleted after its clones.
    """
    try:
        with suppress(NotFound):  # deleted by a request whose answer was lost, or by another client
            tree.json("DELETE", "/", entry.path, wait=wait)
    except Conflict as error:
        if entry.kind is not Kind.FOLDER:
            raise
        raise Conflict(
            f"The folder {entry.path} is not empty: delete its content first, or delete both by hsparse rm -r."
        ) from error
    return entry


def _report(output: Output, entry: TreeEntry) -> None:
    output.report("removed", entry.display_path)
