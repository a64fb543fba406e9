"""`hsparse info`: prints facts (names with JSON values) about a server, a folder, a domain or an object."""

from __future__ import annotations

import argparse
from typing import Any

from hsparse.cli.tree.server_tree import (
    Kind,
    ServerTree,
    TreeEntry,
    filters_text,
    shape_text,
    size_text,
    time_text,
    type_text,
)
from hsparse.cli.tree.tree_command import PATTERN_HELP, Output, add_tree_arguments
from hsparse.client.connection import Json

ABOUT = f"""\
Describe what a path names: a folder, a domain, or an object in a domain. Without a path, describe the server.

  hsparse info
  hsparse info -H /home/ann/run1.h5
  hsparse info --json /home/ann/run1.h5/frames

For a dataset it prints type, shape, chunks, filters, stored bytes and, if it is sparse, the number of defined elements.
In a path, {PATTERN_HELP}.
"""
SPARSE = "H5D_SPARSE_DATA"
TIMES = ("created", "modified", "started")
SIZES = ("bytes", "metadata_bytes", "chunk_bytes")


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments of `info`, and set `run` in the parsed arguments."""
    parser.add_argument("paths", nargs="*", metavar="PATH", help="default: the server")
    parser.add_argument("-H", "--human", action="store_true", help="bytes in KiB, MiB and so on")
    add_tree_arguments(parser, ABOUT, describe_paths)


def describe_paths(args: argparse.Namespace, tree: ServerTree, output: Output) -> None:
    """Print the facts about each path, or about the server if there are no paths; texts have one fact per line."""
    found = (_facts(tree, entry) for path in args.paths for entry in tree.expand(path))
    for count, facts in enumerate(found if args.paths else [server_facts(tree)]):
        if count and not output.is_json:
            print()
        output.write(facts_text(facts, human=args.human), facts)


def server_facts(tree: ServerTree) -> Json:
    """Ask the server for facts about itself, and return them as a dict."""
    about = tree.json("GET", "/about")
    return {
        "name": about.get("name"),
        "version": about.get("hsparse_version"),
        "hsds_version": about.get("hsds_version"),
        "state": about.get("state"),
        "started": about.get("start_time"),
        "data_nodes": about.get("node_count"),
        "user": about.get("username"),
        "admin": about.get("isadmin"),
    }


def _facts(tree: ServerTree, entry: TreeEntry) -> Json:
    facts: Json = {"path": entry.path, "class": entry.kind.value}
    if entry.kind is Kind.FOLDER:
        return facts | _dated(entry.record)
    if entry.kind is Kind.DOMAIN:
        return facts | domain_facts(tree.json("GET", "/", entry.path, verbose=True))
    if entry.id is None:
        return facts | {key: entry.record[key] for key in ("h5path", "h5domain") if key in entry.record}
    facts |= {"domain": entry.domain, "id": entry.id}
    record = tree.record(entry, verbose=True if entry.kind is Kind.DATASET else None)
    if entry.kind is Kind.DATASET:
        facts |= dataset_facts(record, _defined(tree, entry, record))
    elif entry.kind is Kind.GROUP:
        facts["links"] = record["linkCount"]
    else:
        facts["type"] = record["type"]
    return facts | {"attributes": record["attributeCount"]} | _dated(record)


def domain_facts(record: Json) -> Json:
    """Return a dict of the facts that the verbose JSON of a domain has, such as its numbers of objects and bytes."""
    return _dated(record) | {
        "root": record["root"],
        "groups": record.get("num_groups"),
        "datasets": record.get("num_datasets"),
        "datatypes": record.get("num_datatypes"),
        "chunks": record.get("num_chunks"),
        "bytes": record.get("total_size"),
        "metadata_bytes": record.get("metadata_bytes"),
        "chunk_bytes": record.get("allocated_bytes"),
    }


def dataset_facts(record: Json, defined: int | None) -> Json:
    """Return a dict of the facts that the verbose JSON of a dataset has, and `defined`, unless the dataset is dense."""
    properties = record.get("creationProperties") or {}
    facts: Json = {"type": record["type"], "shape": record["shape"]}
    facts["layout"] = properties.get("layout") or record.get("layout")
    if (dims := (record.get("layout") or {}).get("dims")) is not None:
        facts["chunk"] = dims
    facts["filters"] = properties.get("filters") or []
    if "fillValue" in properties:
        facts["fill_value"] = properties["fillValue"]
    if defined is not None:
        facts["defined"] = defined
    return facts | {"chunks": record.get("num_chunks"), "bytes": record.get("allocated_size")}


def _defined(tree: ServerTree, entry: TreeEntry, record: Json) -> int | None:
    """Return the number of defined elements of a sparse dataset, or None for a dense one."""
    if SPARSE not in ((record.get("layout") or {}).get("flags") or ()):
        return None
    answer = tree.json("GET", f"/datasets/{entry.id}/defined", entry.domain, count_only=True)
    return int(answer["count"])


def _dated(record: Json) -> Json:
    names = {"owner": "owner", "created": "created", "lastModified": "modified"}
    return {name: record[key] for key, name in names.items() if key in record}


def facts_text(facts: Json, *, human: bool) -> str:
    """Return facts as lines, without unknown ones."""
    known = {name: value for name, value in facts.items() if value is not None}
    width = max(map(len, known)) + 1
    return "\n".join(
        f"{name.replace('_', ' ') + ':':{width}} {_fact_text(name, value, human=human)}"
        for name, value in known.items()
    )


def _fact_text(name: str, value: Any, *, human: bool) -> str:
    if name in TIMES:
        return time_text(value)
    if name in SIZES:
        return size_text(value, human=human)
    if name == "type":
        return type_text(value)
    if name == "shape":
        return shape_text(value)
    if name == "layout":
        stripes = value.get("stripes", 1)
        places = f" in {', '.join(stripes)}" if isinstance(stripes, list) else ""
        count = len(stripes) if places else stripes
        return " ".join(
            [
                value["class"],
                *(value.get("flags") or ()),
                *([f"{count} stripes{places}"] if count > 1 or places else []),
            ]
        )
    if name == "filters":
        return filters_text(value) or "none"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
