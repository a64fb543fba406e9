"""`hsparse acl`: show and set who may do what with a domain or a folder."""

from __future__ import annotations

import argparse

from hsparse.cli.tree.server_tree import ServerTree
from hsparse.cli.tree.tree_command import Output, add_tree_arguments
from hsparse.client.acls import RIGHTS, Acls
from hsparse.errors import BadRequest

ABOUT = """\
Show the rights of users in a domain or a folder or, with a user and rights, set them.

  hsparse acl /home/ann/run1.h5
  hsparse acl /home/ann/run1.h5 bob read
  hsparse acl /home/ann/run1.h5 g:lab read,create,update
  hsparse acl /home/ann/run1.h5 default none
  hsparse acl /home/ann/run1.h5 --remove bob

The user has these rights then and no others: create, read, update, delete, readACL, updateACL; all, or none. `default`
are users without an entry, `g:NAME` a group. With --remove the entry is gone, and groups or `default` decide.
"""
ALL, NONE = "all", "none"


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments of `acl`; the parsed ones have `run`."""
    parser.add_argument("path", metavar="PATH", help="a domain or a folder")
    parser.add_argument("who", nargs="?", metavar="USER", help="a user, default, or g:GROUP")
    parser.add_argument(
        "rights", nargs="?", metavar="RIGHTS", help="rights with commas between, or all, or none"
    )
    parser.add_argument("--remove", metavar="USER", help="remove the entry of a user, default, or g:GROUP")
    add_tree_arguments(parser, ABOUT, show_acl)


def show_acl(args: argparse.Namespace, tree: ServerTree, output: Output) -> None:
    """Set the rights, if there are some, or remove them, and show them: of the user, or of all entries."""
    if args.remove is not None and args.who is not None:
        raise BadRequest("--remove USER stands alone: leave USER and RIGHTS out.")
    path = tree.find_place(args.path).path
    with tree.connect(path) as connection:
        acls = Acls(connection)
        if args.remove is not None:
            del acls[args.remove]
        if args.rights is not None:
            acls[args.who] = _rights(args.rights)
        for who, rights in sorted(acls.items() if args.who is None else [(args.who, acls[args.who])]):
            shown = [right for right in RIGHTS if right in rights]
            output.write(f"{who:16} {','.join(shown) or NONE}", {"path": path, "user": who, "rights": shown})


def _rights(text: str) -> list[str]:
    if text in (ALL, NONE):
        return list(RIGHTS) if text == ALL else []
    found = text.split(",")
    if unknown := [one for one in found if one not in RIGHTS]:
        raise BadRequest(
            f"{unknown[0]!r} is no right; there are {', '.join(RIGHTS)}, or all of them: all, or none."
        )
    return found
