"""`hsparse mkdir`: creates folders."""

from __future__ import annotations

import argparse

from hsparse.cli.tree.server_tree import Kind, ServerTree, normal_path
from hsparse.cli.tree.tree_command import Output, add_tree_arguments
from hsparse.errors import Conflict

ABOUT = """\
Create folders. The folder /home/NAME of each user exists already.

  hsparse mkdir /home/ann/runs
  hsparse mkdir -p /home/ann/2026/november
"""


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments of `mkdir`, and set `run` in the parsed arguments."""
    parser.add_argument("paths", nargs="+", metavar="FOLDER")
    parser.add_argument(
        "-p",
        "--parents",
        action="store_true",
        help="create missing parent folders, and accept a folder that exists",
    )
    add_tree_arguments(parser, ABOUT, make_folders)


def make_folders(args: argparse.Namespace, tree: ServerTree, output: Output) -> None:
    """Create the folders that the arguments name, in order; with `--parents`, create missing parents too."""
    for text in args.paths:
        path = normal_path(text)
        if args.parents:
            make_with_parents(tree, output, path)
        else:
            make_folder(tree, output, path)


def make_folder(tree: ServerTree, output: Output, path: str, owner: str | None = None) -> None:
    """Create a folder; raise `Conflict` if the path exists, and `NotFound` if the parent folder does not exist."""
    tree.create(path, {"folder": 1} | ({} if owner is None else {"owner": owner}))
    output.report("created", f"{path}/")


def make_with_parents(tree: ServerTree, output: Output, path: str) -> None:
    """Create a folder and its missing parents; raise `Conflict` if the path of one of these folders is a domain."""
    found = tree.exists(path)
    if found is None:
        parent = path.rpartition("/")[0]
        if parent:
            make_with_parents(tree, output, parent)
        try:
            make_folder(tree, output, path)
        except Conflict:  # created concurrently by another client
            found = tree.exists(path)
    if found is not None and found.kind is not Kind.FOLDER:
        raise Conflict(f"{path} is a domain, so it cannot be a folder: choose another name.")
