"""`hsparse snapshot`, `log`, `diff`, `restore`, `clone`: commands for snapshots and clones on a server."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hsparse.cli.tree.server_tree import Kind, ServerTree, normal_path, time_text
from hsparse.cli.tree.tree_command import Action, Output, add_tree_arguments
from hsparse.client.connection import Json
from hsparse.errors import BadRequest, NotFound
from hsparse.versions.snapshot_path import parsed_snapshot, snapshot_path

SNAPSHOT = """\
Keep a domain as it is now, or delete snapshots that were taken.

  hsparse snapshot /home/ann/run.h5 -m 'before the filter'
  hsparse snapshot -d /home/ann/run.h5@2 /home/ann/run.h5@3

Nothing is copied, whatever the size. Snapshot 3 of a domain is read at the domain's path with @3: by ls, info, cp,
export, map and du. A snapshot never changes; hsparse log lists all snapshots.
"""
LOG = """\
List the snapshots of a domain, newest first: path, time, author, and the first line of the message. For a clone,
also show the snapshot whose objects the clone shares.

  hsparse log /home/ann/run.h5
"""
DIFF = """\
List the objects that differ between two snapshots of a domain, or between a snapshot and the domain as it is now. For
a dataset, show how many chunks differ and, if there are not too many to compare, how many elements. Without a number,
the first snapshot is the newest one.

  hsparse diff /home/ann/run.h5
  hsparse diff /home/ann/run.h5@2
  hsparse diff /home/ann/run.h5@2 /home/ann/run.h5@3
"""
RESTORE = """\
Restore a domain to a snapshot. The server takes a snapshot of the present state first.

  hsparse snapshot /home/ann/run.h5
  hsparse restore /home/ann/run.h5@2

An interrupted restore continues when the command is run again.
"""
CLONE = """\
Create a domain that begins as a copy of another domain, or of a snapshot, and changes independently.

  hsparse clone /home/ann/run.h5@3 /home/ben/try.h5
  hsparse clone /home/ann/run.h5 /home/ben
  hsparse clone --materialize /home/ben/try.h5

Nothing is copied: the clone reads unchanged objects from the snapshot, which stays while the clone needs it. Without a
number, a snapshot is taken. --materialize copies the objects that a clone still shares, so that the clone no longer
needs the snapshot.
"""


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments of one of the commands to its parser; the parsed arguments have `run`."""
    one = COMMANDS[command]
    one.add(parser)
    add_tree_arguments(parser, one.about, one.action)


def _add_snapshot(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="DOMAIN", help="a domain; with -d a snapshot, DOMAIN@3")
    parser.add_argument("-m", "--message", default="", metavar="TEXT", help="message that log shows")
    parser.add_argument("-d", "--delete", action="store_true", help="delete these snapshots")


def take_or_delete(args: argparse.Namespace, tree: ServerTree, output: Output) -> None:
    """Take a snapshot of each domain, or delete each snapshot."""
    if args.delete:
        if args.message:
            raise BadRequest("The deletion of snapshots takes no message: omit -m.")
        named = [(normal_path(text), *_snapshot(text)) for text in args.paths]
        for path, domain, number in named:
            tree.json("DELETE", f"/snapshots/{number}", domain)
            output.report("deleted", path)
        return
    for domain in map(normal_path, args.paths):
        taken = tree.post("/snapshots", {"message": args.message}, domain)
        path = snapshot_path(domain, taken["snapshot"])
        output.write(f"took {path}", {"action": "took", **_shown(path, taken)})


def _add_domain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("domain", metavar="DOMAIN")


def list_snapshots(args: argparse.Namespace, tree: ServerTree, output: Output) -> None:
    """Write a line for each snapshot, newest first."""
    domain = normal_path(args.domain)
    found = tree.json("GET", "/snapshots", domain)
    for one in reversed(found["snapshots"]):
        path = snapshot_path(domain, one["snapshot"])
        clones = [pin["domain"] for pin in found["clones"] if pin["snapshot"] == one["snapshot"]]
        words = [path, time_text(one["time"]), one["author"], one["message"].partition("\n")[0]]
        if clones:
            words.append(f"(cloned: {', '.join(clones)})")
        output.write(" ".join(filter(None, words)), _shown(path, one) | {"clones": clones})
    if (base := found.get("base")) is not None:
        path = snapshot_path(base["domain"] or "a domain that you may not read", base["snapshot"])
        output.write(f"{domain} is a clone of {path}", {"path": domain, "base": path})


def _add_diff(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", metavar="DOMAIN[@n]", help="default: the newest snapshot")
    parser.add_argument("second", nargs="?", metavar="DOMAIN[@m]", help="default: the domain as it is now")


def list_differences(args: argparse.Namespace, tree: ServerTree, output: Output) -> None:
    """Write a line for each object that differs."""
    domain, number = _named(args.first)
    other, to = _named(args.second or domain)
    if other != domain:
        raise BadRequest(f"{domain} and {other} are different domains: name snapshots of one domain.")
    if number is None:
        if to is not None:
            raise BadRequest(f"Name the older one first: hsparse diff {snapshot_path(domain, to)} {domain}")
        number = _newest(tree, domain)
    found = tree.json("GET", f"/snapshots/{number}/diff", domain, to=to)
    for kind in ("group", "dataset", "datatype"):
        for one in found.get(f"{kind}s", ()):
            item: Json = {"kind": kind, **one}
            output.write(_difference_text(item), item)


def _difference_text(item: Json) -> str:
    counts = [
        f"{count} {name if count == 1 else name + 's'}"
        for name in ("chunk", "element")
        if (count := item.get(f"{name}s")) is not None and item["chunks"]
    ]
    path = item["path"] or f"{item['id']}, to which no link leads"
    return f"{item['change']} {item['kind']} {path}" + (f": {', '.join(counts)}" if counts else "")


def _newest(tree: ServerTree, domain: str) -> int:
    snapshots = tree.json("GET", "/snapshots", domain)["snapshots"]
    if not snapshots:
        raise NotFound(f"{domain} has no snapshots; take one by hsparse snapshot {domain}")
    return int(snapshots[-1]["snapshot"])


def _add_restore(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("snapshot", metavar="DOMAIN@n")


def restore_domain(args: argparse.Namespace, tree: ServerTree, output: Output) -> None:
    """Restore a domain to a snapshot."""
    domain, number = _snapshot(args.snapshot)
    done = tree.post(f"/snapshots/{number}/restore", {}, domain, repeated=True)
    path, kept = snapshot_path(domain, number), snapshot_path(domain, done["snapshot"])
    output.write(
        f"restored {domain} from {path}: {done['changed']} objects; {kept} is what it was before",
        {"action": "restored", "path": domain, "from": path, "changed": done["changed"], "before": kept},
    )


def _add_clone(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="DOMAIN[@n]")
    parser.add_argument("target", nargs="?", metavar="TARGET", help="the new path, or a folder to put it in")
    parser.add_argument("--materialize", action="store_true", help="copy what the clone DOMAIN still shares")


def clone_domain(args: argparse.Namespace, tree: ServerTree, output: Output) -> None:
    """Create a clone or, with `--materialize`, materialize an existing clone."""
    if args.materialize == (args.target is not None):
        raise BadRequest("Name a domain and the new path, or use --materialize with only a clone.")
    if args.materialize:
        clone = normal_path(args.source)
        copied = tree.post("/clones/materialize", {}, clone, repeated=True)["copied"]
        text = f"materialized {clone}: {copied} objects copied"
        output.write(text, {"action": "materialized", "path": clone, "copied": copied})
        return
    domain, number = _named(args.source)
    target = normal_path(args.target)
    if (found := tree.exists(target)) is not None and found.kind is Kind.FOLDER:
        target = f"{target.rstrip('/')}/{domain.rpartition('/')[2]}"
    body: dict[str, Any] = {"target": target} | ({} if number is None else {"snapshot": number})
    base = tree.post("/clones", body, domain)["base"]
    output.report("cloned", snapshot_path(base["domain"], base["snapshot"]), to=target)


def _named(text: str) -> tuple[str, int | None]:
    """Return a pair: the domain in a path, and its snapshot number, or None for the domain's current state."""
    path = normal_path(text)
    return parsed_snapshot(path) or (path, None)


def _snapshot(text: str) -> tuple[str, int]:
    """Return a pair: the domain and the number in a snapshot's path; raise `BadRequest` if there is no number."""
    domain, number = _named(text)
    if number is None:
        raise BadRequest(
            f"{domain} names no snapshot: add its number, as in {domain}@3; hsparse log lists them."
        )
    return domain, number


def _shown(path: str, snapshot: Json) -> Json:
    return {"path": path, **{name: snapshot[name] for name in ("snapshot", "time", "author", "message")}}


@dataclass(frozen=True, slots=True)
class VersionCommand:
    """A command: its help, its action, and the function that adds its arguments."""

    about: str
    action: Action
    add: Callable[[argparse.ArgumentParser], None]


COMMANDS = {
    "snapshot": VersionCommand(SNAPSHOT, take_or_delete, _add_snapshot),
    "log": VersionCommand(LOG, list_snapshots, _add_domain),
    "diff": VersionCommand(DIFF, list_differences, _add_diff),
    "restore": VersionCommand(RESTORE, restore_domain, _add_restore),
    "clone": VersionCommand(CLONE, clone_domain, _add_clone),
}
