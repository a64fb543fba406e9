"""`hsparse acl`: shows and sets the access control list of a domain or a folder."""

from __future__ import annotations

import argparse

from hsparse.cli.tree.server_tree import ServerTree, TreeEntry
from hsparse.cli.tree.tree_command import Output, add_tree_arguments
from hsparse.client.acls import RIGHTS, Acls
from hsparse.client.errors import MissingKey
from hsparse.errors import BadRequest, Forbidden

ABOUT = """\
Show the rights of users in a domain or a folder or, with a user and rights, set the rights of the user.

  hsparse acl /home/ann/run1.h5
  hsparse acl /home/ann/run1.h5 bob read
  hsparse acl /home/ann/run1.h5 g:lab read,create,update
  hsparse acl /home/ann/run1.h5 default none
  hsparse acl /home/ann/run1.h5 --remove bob
  hsparse acl -r /home/ann g:lab read

RIGHTS are some of create, read, update, delete, readACL, updateACL, or all, or none; they replace the user's rights.
USER `default` means users without an entry, `g:NAME` a group. --remove removes an entry, so that the entries of the
user's groups, or `default`, apply. An entry `anonymous`, or else `default`, decides who may read without sign-in.

With -r the command applies to a folder and all folders and domains in it, and prints the path before each entry. For a
folder or domain whose rights the caller may not see or change, it prints a warning and continues.
"""
ALL, NONE = "all", "none"


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments of `acl`, and set `run` in the parsed arguments."""
    parser.add_argument("path", metavar="PATH", help="a domain or a folder")
    parser.add_argument("who", nargs="?", metavar="USER", help="a user, default, or g:GROUP")
    parser.add_argument(
        "rights", nargs="?", metavar="RIGHTS", help="rights separated by commas, or all, or none"
    )
    parser.add_argument("--remove", metavar="USER", help="remove the entry of a user, default, or g:GROUP")
    parser.add_argument(
        "-r", "--recursive", action="store_true", help="include all folders and domains in the folder"
    )
    add_tree_arguments(parser, ABOUT, show_acl)


def show_acl(args: argparse.Namespace, tree: ServerTree, output: Output) -> None:
    """Set or remove the rights of a user, if requested; then print the rights of that user, or of all entries."""
    if args.remove is not None and args.who is not None:
        raise BadRequest("--remove USER cannot be combined with the arguments USER and RIGHTS: omit these.")
    rights = None if args.rights is None else _rights(args.rights)
    place = tree.find_place(args.path)
    if not args.recursive:
        _write(output, place.path, _entries(args, rights, tree, place))
        return
    domains, folders = tree.below([place])

    def attempt(entry: TreeEntry) -> tuple[TreeEntry, dict[str, frozenset[str]] | Forbidden]:
        try:
            return entry, _entries(args, rights, tree, entry)
        except MissingKey:
            return entry, {}
        except Forbidden as error:
            return entry, error

    for entry, found in tree.each(sorted([*domains, *folders], key=lambda one: one.path), attempt):
        if isinstance(found, Forbidden):
            output.warn(f"{entry.display_path}: {found.message}")
        else:
            _write(output, entry.path, found, f"{entry.display_path} ")


def _entries(
    args: argparse.Namespace, rights: list[str] | None, tree: ServerTree, place: TreeEntry
) -> dict[str, frozenset[str]]:
    """Set or remove an entry of a domain or folder, if the arguments say so; return a dict of the entries to print."""
    with tree.patient(place.path) as connection:
        acls = Acls(connection)
        if args.remove is not None:
            del acls[args.remove]
        if rights is not None:
            acls[args.who] = rights
        return dict(acls.items()) if args.who is None else {args.who: acls[args.who]}


def _write(output: Output, path: str, found: dict[str, frozenset[str]], before: str = "") -> None:
    for who, rights in sorted(found.items()):
        shown = [right for right in RIGHTS if right in rights]
        words = {"path": path, "user": who, "rights": shown}
        output.write(f"{before}{who:16} {','.join(shown) or NONE}", words)


def _rights(text: str) -> list[str]:
    if text in (ALL, NONE):
        return list(RIGHTS) if text == ALL else []
    found = text.split(",")
    if unknown := [one for one in found if one not in RIGHTS]:
        raise BadRequest(f"{unknown[0]!r} is not a right: give some of {', '.join(RIGHTS)}, or all, or none.")
    return found
