"""`hsparse mkdir`: create folders."""

from __future__ import annotations

import argparse

from hsparse.cli.tree.server_tree import Kind, ServerTree, normal_path
from hsparse.cli.tree.tree_command import Output, add_tree_arguments
from hsparse.errors import Conflict

ABOUT = """\
Create folders. Every user has /home/NAME without creating it.

  hsparse mkdir /home/ann/runs
  hsparse mkdir -p /home/ann/2026/november
"""


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments of `mkdir`; the parsed ones have `run`."""
    parser.add_argument("paths", nargs="+", metavar="FOLDER")
    parser.add_argument(
        "-p",
        "--parents",
        action="store_true",
        help="create missing folders above, and accept one that exists",
    )
    add_tree_arguments(parser, ABOUT, make_folders)


def make_folders(args: argparse.Namespace, tree: ServerTree, output: Output) -> None:
    """Create the folders, in order."""
    for text in args.paths:
        path = normal_path(text)
        if args.parents:
            make_with_parents(tree, output, path)
        else:
            make_folder(tree, output, path)


def make_folder(tree: ServerTree, output: Output, path: str, owner: str | None = None) -> None:
    """Create a folder; `Conflict` if there is anything, `NotFound` without its parent folder."""
    tree.create(path, {"folder": 1} | ({} if owner is None else {"owner": owner}))
    output.report("created", f"{path}/")


def make_with_parents(tree: ServerTree, output: Output, path: str) -> None:
    """Create a folder and the missing ones above it; `Conflict` if a domain is in the way."""
    found = tree.exists(path)
    if found is None:
        parent = path.rpartition("/")[0]
        if parent:
            make_with_parents(tree, output, parent)
        try:
            make_folder(tree, output, path)
        except Conflict:  # created by someone else meanwhile
            found = tree.exists(path)
    if found is not None and found.kind is not Kind.FOLDER:
        raise Conflict(f"{path} is a domain, and no folder can have its name.")
