"""`hsparse quota`: show and set the limit on the bytes of the domains below a folder."""

from __future__ import annotations

import argparse

from hsparse.api import BadRequest, NotFound, Output, ServerTree, add_tree_arguments, normal_path, parse_size

ABOUT = """\
Show the quota of a folder and the bytes used of it. With a size, set the quota first; only an admin may do that.

  hsparse quota /home/ann
  hsparse quota /home/ann 500GiB
  hsparse quota /home/ann none
  hsparse quota /home/ann default

All domains below a folder together cannot grow beyond its quota. The quotas of the folders above it apply too. A home
folder without a quota of its own has that of the server's setting.
"""
NONE, DEFAULT = "none", "default"


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments of `hsparse quota` to a parser; the parsed arguments have `run`, which runs the command."""
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument(
        "size",
        nargs="?",
        metavar="SIZE",
        help="bytes, or 500MiB and the like; none: no quota; default: for a home folder the quota of the server's "
        "setting, for another folder none",
    )
    add_tree_arguments(parser, ABOUT, show_quota)


def show_quota(args: argparse.Namespace, tree: ServerTree, output: Output) -> None:
    """Set the quota of a folder if a size is given, then show the quota."""
    path = normal_path(args.folder)
    try:
        if args.size is not None:
            tree.put("/quota", {"bytes": _bytes(args.size)}, path)
        found = tree.json("GET", "/quota", path)
    except NotFound as error:
        remedy = "a home folder is made by its user's first request, others by hsparse mkdir -p"
        raise NotFound(f"{error.message.rstrip('.')}: {remedy}.") from error
    shown = {"path": path, **{key: found[key] for key in ("bytes", "used", "counted")}}
    if shown["bytes"] is None:
        text = f"{path}/ has no quota of its own"
    elif shown["used"] is None:
        text = f"{path}/ may take {shown['bytes']} bytes; the used bytes are being counted"
    else:
        text = f"{path}/ uses {shown['used']} of {shown['bytes']} bytes"
    output.write(text, shown)


def _bytes(text: str) -> int | str | None:
    if text in (NONE, DEFAULT):
        return None if text == NONE else DEFAULT
    try:
        return parse_size(text)
    except ValueError as error:
        raise BadRequest(f"{error}; or none, for no quota.") from error
