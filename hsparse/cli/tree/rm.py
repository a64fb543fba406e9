"""`hsparse rm`: delete domains and folders."""

from __future__ import annotations

import argparse
from contextlib import suppress

from hsparse.cli.tree.server_tree import Entry, Kind, ServerTree, require_place
from hsparse.cli.tree.tree_command import PATTERN_HELP, Output, add_tree_arguments
from hsparse.errors import Conflict, NotFound

ABOUT = f"""\
Delete domains with all their objects, and empty folders; with -r folders with all that is in them.
It does not ask, and nothing brings back what was deleted. Each path is printed once it is gone.

  hsparse rm /home/ann/old.h5
  hsparse rm '/home/ann/tmp*.h5'
  hsparse rm -r /home/ann/2024

In a path, {PATTERN_HELP}.
"""

LONGEST_WAIT = 5
"""Seconds."""


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments of `rm`; the parsed ones have `run`."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a domain or a folder")
    parser.add_argument(
        "-r", "--recursive", action="store_true", help="delete folders with all that is in them"
    )
    add_tree_arguments(parser, ABOUT, remove_paths)


def remove_paths(args: argparse.Namespace, tree: ServerTree, output: Output) -> None:
    """Delete what the paths name, all of which must exist before anything is deleted."""
    entries = [require_place(entry) for path in args.paths for entry in tree.expand(path)]
    for entry in entries:
        if args.recursive:
            remove_all(tree, output, entry)
        else:
            remove(tree, output, entry)


def remove_all(tree: ServerTree, output: Output, entry: Entry) -> None:
    """Delete a domain, or a folder after all that is in it; domains whose clones are in it, too, come after these."""
    left = _refused_below(tree, output, entry)
    while left:
        refused = [one for one in left if _is_refused(tree, output, one)]
        if len(refused) == len(left):
            remove(tree, output, left[0])  # which says why
        left = refused


def _refused_below(tree: ServerTree, output: Output, entry: Entry) -> list[Entry]:
    """Delete what can be, and return what is left: members before their folder."""
    left: list[Entry] = []
    if entry.kind is Kind.FOLDER:
        for member in tree.members(entry):
            left += _refused_below(tree, output, member)
    return [*left, entry] if left or _is_refused(tree, output, entry) else []


def _is_refused(tree: ServerTree, output: Output, entry: Entry) -> bool:
    try:
        remove(tree, output, entry, wait=LONGEST_WAIT)
    except Conflict:
        return True
    return False


def remove(tree: ServerTree, output: Output, entry: Entry, wait: int = 0) -> None:
    """Delete a domain or an empty folder; `Conflict` for one that is not empty. One that is gone is none of it.

    The deletion of a clone's objects, after which its source may go, is waited for so many seconds.
    """
    try:
        with suppress(NotFound):  # of a request that was repeated after a lost answer, or by someone else
            tree.json("DELETE", "/", entry.path, wait=wait)
    except Conflict as error:
        if entry.kind is not Kind.FOLDER:
            raise
        raise Conflict(
            f"The folder {entry.path} is not empty: delete what is in it first, or all of it by hsparse rm -r."
        ) from error
    output.report("removed", entry.display_path)
