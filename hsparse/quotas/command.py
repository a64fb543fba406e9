"""`hsparse quota`: show and set how many bytes the domains below a folder may take."""

from __future__ import annotations

import argparse

from hsparse.cli.tree.server_tree import ServerTree, normal_path
from hsparse.cli.tree.tree_command import Output, add_tree_arguments
from hsparse.errors import BadRequest
from hsparse.setting import parse_size

ABOUT = """\
Show the quota of a folder and what is used of it or, with a size, set it, which only an admin may.

  hsparse quota /home/ann
  hsparse quota /home/ann 500GiB
  hsparse quota /home/ann none

Below the folder no domain can grow beyond it. A folder without a quota of its own has those of the folders above it,
and a home folder that of the server's setting.
"""
NONE = "none"


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments of `quota`; the parsed ones have `run`."""
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument(
        "size", nargs="?", metavar="SIZE", help="bytes, or 500MiB and the like; none: no quota"
    )
    add_tree_arguments(parser, ABOUT, show_quota)


def show_quota(args: argparse.Namespace, tree: ServerTree, output: Output) -> None:
    """Set the quota, if there is a size, and show it."""
    path = normal_path(args.folder)
    if args.size is not None:
        tree.put("/quota", {"bytes": _bytes(args.size)}, path)
    found = tree.json("GET", "/quota", path)
    shown = {"path": path, **{key: found[key] for key in ("bytes", "used", "counted")}}
    if shown["bytes"] is None:
        text = f"{path}/ has no quota of its own"
    elif shown["used"] is None:
        text = f"{path}/ may take {shown['bytes']} bytes; what is used is being counted"
    else:
        text = f"{path}/ uses {shown['used']} of {shown['bytes']} bytes"
    output.write(text, shown)


def _bytes(text: str) -> int | None:
    try:
        return None if text == NONE else parse_size(text)
    except ValueError as error:
        raise BadRequest(f"{error}; or none, for no quota.") from error
