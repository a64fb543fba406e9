"""`hsparse du`: prints the size of domains and folders in the store."""

from __future__ import annotations

import argparse

from hsparse.cli.tree.server_tree import Kind, ServerTree, TreeEntry, require_place, size_text
from hsparse.cli.tree.tree_command import PATTERN_HELP, Output, add_tree_arguments

ABOUT = """\
Print the size in bytes of domains and folders in the store; a folder is printed after the domains and folders in it.

  hsparse du -H /home/ann
  hsparse du -s '/home/*'

A served file counts as its size on disk. Domains that you may not read are not counted.
"""


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments of `du`, and set `run` in the parsed arguments."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help=f"a domain or a folder; {PATTERN_HELP}")
    parser.add_argument("-H", "--human", action="store_true", help="print bytes in KiB, MiB and so on")
    parser.add_argument(
        "-s", "--summarize", action="store_true", help="print one line for each PATH, without its content"
    )
    add_tree_arguments(parser, ABOUT, print_usage)


def print_usage(args: argparse.Namespace, tree: ServerTree, output: Output) -> None:
    """Print a line with the size of each path and, unless `--summarize` is set, of all folders and domains below."""

    def usage(entry: TreeEntry, depth: int) -> int:
        if entry.kind is Kind.FOLDER:
            members = tree.members(entry, verbose=True, size_only=True)
            nbytes = sum(usage(member, depth + 1) for member in members)
        else:
            nbytes = int(entry.record.get("total_size") or 0)
        if not depth or not args.summarize:
            text = f"{size_text(nbytes, human=args.human):>12} {entry.display_path}"
            output.write(text, {"path": entry.path, "kind": entry.kind.value, "bytes": nbytes})
        return nbytes

    for text in args.paths:
        for entry in map(require_place, tree.expand(text)):
            if entry.kind is Kind.DOMAIN:
                record = tree.json("GET", "/", entry.path, verbose=1, size_only=1)
                entry = TreeEntry(entry.path, entry.kind, record, entry.domain)
            usage(entry, 0)
