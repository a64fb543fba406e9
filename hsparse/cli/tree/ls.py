"""`hsparse ls`: lists folders, domains, and the objects in domains."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from hsparse.cli.tree.server_tree import (
    PATTERN,
    Kind,
    ServerTree,
    TreeEntry,
    shape_text,
    size_text,
    time_text,
    type_text,
)
from hsparse.cli.tree.tree_command import PATTERN_HELP, Output, add_tree_arguments
from hsparse.client.connection import Json
from hsparse.errors import BadRequest, Conflict, Corrupt, Forbidden, Gone, NotFound, StoreFailed, Unsupported

ABOUT = f"""\
List the content of a folder, a domain or a group, by name; a pattern lists its matches.

  hsparse ls /home/ann
  hsparse ls -lH '/home/ann/run*.h5'
  hsparse ls -r /home/ann/run1.h5
  hsparse ls /home/ann/run1.h5/frames

With -r the list includes all levels below: all folders and domains in a folder, all objects in a domain or group.
In a path, {PATTERN_HELP}.
"""
UNLISTED = (NotFound, Gone, Forbidden, Conflict, BadRequest, Unsupported, Corrupt, StoreFailed)
"""Errors that concern one entry only: the listing prints a warning, continues, and ends with the status `WARNED`."""
LONG_TYPE = 40
"""The maximum length of the text of a compound type; a longer text is replaced by the number of fields."""
PLACE_KEYS = ("owner", "created", "lastModified", "total_size", "num_objects")
OBJECT_KEYS = ("created", "lastModified", "type", "shape", "linkCount", "attributeCount", "missing")
"""The keys that `--json -l` prints: `PLACE_KEYS` for folders and domains, and `OBJECT_KEYS` for objects."""
MISSING_OBJECT: Json = {"missing": True}
UNREADABLE_OBJECT: Json = {}


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments of `ls`, and set `run` in the parsed arguments."""
    parser.add_argument("paths", nargs="*", default=["/"], metavar="PATH", help="default: the top level")
    parser.add_argument("-r", "--recursive", action="store_true", help="also list everything below")
    parser.add_argument(
        "-l", "--long", action="store_true", help="show owner, bytes and time, or for objects type and shape"
    )
    parser.add_argument("-H", "--human", action="store_true", help="bytes in KiB, MiB and so on")
    add_tree_arguments(parser, ABOUT, list_paths)


def list_paths(args: argparse.Namespace, tree: ServerTree, output: Output) -> None:
    """Print a line for each entry that the arguments ask for."""
    walk = TreeWalk(tree, output, recursive=args.recursive, verbose=args.long, size_only=not args.json)
    for path in args.paths:
        for entry in walk.listed(path):
            shown = _with_record(tree, output, entry) if args.long and entry.id is not None else entry
            text = _long_text(shown, human=args.human) if args.long else shown.display_path
            output.write(text, entry_json(shown, long=args.long))


class TreeWalk:
    """A walk over entries, each before its members; for `verbose` and `size_only` see `ServerTree.members`."""

    def __init__(
        self, tree: ServerTree, output: Output, *, recursive: bool, verbose: bool, size_only: bool = False
    ) -> None:
        self._tree = tree
        self._output = output
        self._recursive = recursive
        self._verbose, self._size_only = verbose, size_only
        self._visited: set[str | None] = set()

    def listed(self, path: str) -> Iterator[TreeEntry]:
        """Yield the members of the entry at a path, or the matches of a pattern; `recursive` adds all levels below."""
        has_pattern = PATTERN.search(path) is not None
        for found in self._tree.expand(path):
            self._visited = {found.id, found.record.get("root")}
            if has_pattern or found.kind in (Kind.DATASET, Kind.DATATYPE):
                yield self._with_statistics(found)
                if self._recursive:
                    self._visited.discard(found.id)
                    yield from self._below(found, inside=True)
            else:
                yield from self._members(found)

    def _members(self, entry: TreeEntry) -> Iterator[TreeEntry]:
        for member in self._tree.members(entry, verbose=self._verbose, size_only=self._size_only):
            yield member
            if self._recursive:
                yield from self._below(member)

    def _below(self, entry: TreeEntry, *, inside: bool = False) -> Iterator[TreeEntry]:
        """Yield all entries below a folder or group, and visit each group once; enter a domain only if `inside`."""
        if entry.kind is Kind.DOMAIN and not inside:
            return
        if entry.kind is Kind.GROUP:
            if entry.id in self._visited:
                return
            self._visited.add(entry.id)
        try:
            yield from self._members(entry)
        except UNLISTED as error:
            self._output.warn(f"{entry.display_path}: {error.message}")

    def _with_statistics(self, entry: TreeEntry) -> TreeEntry:
        if entry.kind is not Kind.DOMAIN or not self._verbose:
            return entry
        size_only = self._size_only or None
        record = self._tree.json("GET", "/", entry.path, verbose=True, size_only=size_only)
        return TreeEntry(entry.path, entry.kind, record, entry.domain)


def _with_record(tree: ServerTree, output: Output, entry: TreeEntry) -> TreeEntry:
    """Return the entry of an object with the JSON of the object as `record` instead of the JSON of its link."""
    try:
        record = tree.record(entry)
    except NotFound:
        record = MISSING_OBJECT
    except UNLISTED as error:
        output.warn(f"{entry.display_path}: {error.message}")
        record = UNREADABLE_OBJECT
    return TreeEntry(entry.path, entry.kind, record, entry.domain, entry.id)


def entry_json(entry: TreeEntry, *, long: bool) -> Json:
    """Return an entry as a JSON object for programs; `long` adds the keys that the flag `-l` asks for."""
    item: Json = {"path": entry.path, "class": entry.kind.value}
    if entry.id is not None:
        item["id"] = entry.id
    if entry.kind in (Kind.SOFT_LINK, Kind.EXTERNAL_LINK):
        item |= {key: entry.record[key] for key in ("h5path", "h5domain") if key in entry.record}
    if long:
        keys = PLACE_KEYS if entry.kind in (Kind.FOLDER, Kind.DOMAIN) else OBJECT_KEYS
        item |= {key: entry.record[key] for key in keys if key in entry.record}
    return item


def _long_text(entry: TreeEntry, *, human: bool) -> str:
    record = entry.record
    if entry.kind in (Kind.FOLDER, Kind.DOMAIN):
        size = size_text(record["total_size"], human=human) if "total_size" in record else "-"
        time = time_text(record["lastModified"]) if "lastModified" in record else "-"
        return f"{entry.kind.value:7} {record.get('owner', '-'):12} {size:>12} {time:20} {entry.display_path}"
    return f"{entry.kind.value:13} {_details(entry):30} {entry.path}"


def _details(entry: TreeEntry) -> str:
    record = entry.record
    if record is MISSING_OBJECT:
        return "deleted"
    if record is UNREADABLE_OBJECT:
        return "unreadable"
    if entry.kind is Kind.GROUP:
        return f"{record['linkCount']} links"
    if entry.kind is Kind.DATASET:
        return f"{_short_type(record['type'])} {shape_text(record['shape'])}"
    if entry.kind is Kind.DATATYPE:
        return _short_type(record["type"])
    file = record.get("h5domain", "")
    return f"-> {file}{':' if file else ''}{record['h5path']}"


def _short_type(item: Any) -> str:
    text = type_text(item)
    return (
        text if len(text) <= LONG_TYPE or "fields" not in item else f"compound({len(item['fields'])} fields)"
    )
