"""`hsparse snapshot`, `log`, `diff`, `restore`, `clone`: what a server does with the past of domains."""

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

Nothing is copied, whatever the size. The snapshot 3 of a domain is read at its path with @3: by ls, info, cp, export,
map and du. It never changes; hsparse log lists them all.
"""
LOG = """\
List the snapshots of a domain, the newest first: path, time, author, and the first line of the message. Of a
clone it says of what, as long as it shares with that.

  hsparse log /home/ann/run.h5
"""
DIFF = """\
List the objects that are different between two snapshots of a domain, or between one and the domain as it is now. Of
a dataset it says in how many chunks, each that was written, and in how many elements, if these are not too many to
look at. Without a number, the first one is the newest snapshot.

  hsparse diff /home/ann/run.h5
  hsparse diff /home/ann/run.h5@2
  hsparse diff /home/ann/run.h5@2 /home/ann/run.h5@3
"""
RESTORE = """\
Bring a domain back to what it was at a snapshot. What was changed since the newest snapshot is lost: take one before.

  hsparse snapshot /home/ann/run.h5
  hsparse restore /home/ann/run.h5@2

Stopped in between, it goes on when it is run again.
"""
CLONE = """\
Make a domain that begins as another one, or as a snapshot of it, and is changed on its own.

  hsparse clone /home/ann/run.h5@3 /home/ben/try.h5
  hsparse clone /home/ann/run.h5 /home/ben
  hsparse clone --materialize /home/ben/try.h5

Nothing is copied: the clone reads what it has not changed from the snapshot, which stays as long as it does. Without a
number, a snapshot is taken. --materialize copies what a clone still shares, so that it needs the snapshot no more.
"""


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments of one of the commands; the parsed ones have `run`."""
    one = COMMANDS[command]
    one.add(parser)
    add_tree_arguments(parser, one.about, one.action)


def _add_snapshot(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="DOMAIN", help="a domain; with -d a snapshot, DOMAIN@3")
    parser.add_argument("-m", "--message", default="", metavar="TEXT", help="what log says of it")
    parser.add_argument("-d", "--delete", action="store_true", help="delete these snapshots")


def take_or_delete(args: argparse.Namespace, tree: ServerTree, output: Output) -> None:
    """Take a snapshot of each domain, or delete each snapshot."""
    if args.delete:
        if args.message:
            raise BadRequest("A snapshot that is deleted has no message; leave -m out.")
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
    """Write a line for each snapshot, the newest first."""
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
        path = snapshot_path(base["domain"], base["snapshot"])
        output.write(f"{domain} is a clone of {path}", {"path": domain, "base": path})


def _add_diff(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", metavar="DOMAIN[@n]", help="default: the newest snapshot")
    parser.add_argument("second", nargs="?", metavar="DOMAIN[@m]", help="default: the domain as it is now")


def list_differences(args: argparse.Namespace, tree: ServerTree, output: Output) -> None:
    """Write a line for each object that is different."""
    domain, number = _named(args.first)
    other, to = _named(args.second or domain)
    if other != domain:
        raise BadRequest(f"{domain} and {other} are two domains: name snapshots of one.")
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
    """Bring a domain back to a snapshot."""
    domain, number = _snapshot(args.snapshot)
    done = tree.post(f"/snapshots/{number}/restore", {}, domain, repeated=True)
    path = snapshot_path(domain, number)
    output.write(
        f"restored {domain} from {path}: {done['changed']} objects",
        {"action": "restored", "path": domain, "from": path, "changed": done["changed"]},
    )


def _add_clone(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="DOMAIN[@n]")
    parser.add_argument("target", nargs="?", metavar="TARGET", help="the new path, or a folder to put it in")
    parser.add_argument("--materialize", action="store_true", help="copy what the clone DOMAIN still shares")


def clone_domain(args: argparse.Namespace, tree: ServerTree, output: Output) -> None:
    """Make a clone, or have one stand alone."""
    if args.materialize == (args.target is not None):
        raise BadRequest("Name a domain and the new path, or with --materialize a clone alone.")
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
    """Return the domain and the number that a path names, None for the domain as it is now."""
    path = normal_path(text)
    return parsed_snapshot(path) or (path, None)


def _snapshot(text: str) -> tuple[str, int]:
    """Return the domain and the number in the path of a snapshot; `BadRequest` without a number."""
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
    """A command: its help, what it does, and what adds its arguments."""

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
