"""Import a folder of HDF5 files into a tree of domains; import a file and replace an existing domain (--force)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Lock
from typing import Self, TypeAlias

from hsparse.cli.progress import Advance, interruptible, show_progress
from hsparse.cli.run_each import FAILED, SMALL_ITEM_BYTES, run_each
from hsparse.cli.tree.mkdir import make_with_parents
from hsparse.cli.tree.server_tree import Kind, ServerTree, normal_path
from hsparse.cli.tree.tree_command import INTERRUPTED, Output
from hsparse.client.connection import Connection, Json
from hsparse.client.errors import Unreachable
from hsparse.clock import SystemClock
from hsparse.errors import BadRequest, Conflict, Forbidden, NotFound, Unauthenticated, reword
from hsparse.hdf5.importer.source import LocalSource
from hsparse.hdf5.in_place.folders import SUFFIXES
from hsparse.hdf5.in_place.signatures import what_is

Connect: TypeAlias = Callable[[str | None], Connection]
Import: TypeAlias = Callable[[argparse.Namespace, str, "OneOfMany | None"], int]
"""Imports `args.file` into `args.domain`; returns the exit status. The second argument names the domain in messages."""


def hdf5_files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder that have HDF5's signature or suffix, except hidden files and linked folders.

    A file that has only the suffix is damaged or empty; its import fails with a message that names the file.
    """
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            if not path.is_symlink():
                yield from hdf5_files(path)
        elif path.is_file():
            with LocalSource(path) as source:
                is_hdf5 = not what_is(source.size, source.fetch)
            if is_hdf5 or path.name.lower().endswith(SUFFIXES):
                yield path


class ManyFiles:
    """The concurrent imports of a folder's files, which report progress together."""

    def __init__(self, advance: Advance, count: int) -> None:
        self.advance = advance
        self.is_lost = False
        """Whether the imports stop because the server cannot be reached; incomplete domains are then kept."""
        self._changed = Condition()
        self._is_stopped = False
        self._left: dict[int, Callable[[], None] | None] = dict.fromkeys(range(count))
        """Maps the number of each unfinished import to the function that stops it, or None before it runs."""

    def end(self, number: int) -> None:
        """Record that the import of file `number` (in the order of the files) is done."""
        with self._changed:
            del self._left[number]
            self._changed.notify_all()

    def watch(self, number: int, stop: Callable[[], None]) -> None:
        """Register the function that stops the import of file `number`; call it now if the imports are stopped."""
        with self._changed:
            self._left[number] = stop
            is_stopped = self._is_stopped
        if is_stopped:
            stop()

    def stop(self) -> None:
        """Stop all running imports."""
        with self._changed:
            self._is_stopped = True
            running = [one for one in self._left.values() if one is not None]
            self._changed.notify_all()
        for one in running:
            one()

    def await_earlier(self, number: int) -> None:
        """Wait until the imports of all files before `number` are done, or the imports are stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped or min(self._left) == number)


@dataclass(frozen=True, slots=True)
class OneOfMany:
    """The import of file `number` of a folder; `is_small` if the file has at most `SMALL_ITEM_BYTES` bytes."""

    many: ManyFiles
    number: int
    is_small: bool

    def await_earlier(self) -> None:
        """Wait until all earlier files are imported, because this file may name them."""
        self.many.await_earlier(self.number)


def import_folder(args: argparse.Namespace, connect: Connect, run: Import) -> int:
    """Import each HDF5 file below the folder `args.file` as a domain with the same path below `args.domain`."""
    folder, target = Path(args.file), normal_path(args.domain)
    made, making, sources = set[str](), Lock(), [*(args.sources or ()), args.file]
    imported = {str(folder.resolve()): target.rstrip("/")}
    sizes = {file: file.stat().st_size for file in hdf5_files(folder)}
    numbers = {file: number for number, file in enumerate(sizes)}
    with (
        closing(ServerTree(connect)) as tree,
        show_progress(args.progress, args.file, sum(sizes.values())) as shown,
    ):
        many = ManyFiles(shown.advance, len(sizes))

        def is_small(file: Path) -> bool:
            return sizes[file] <= SMALL_ITEM_BYTES

        def run_file(file: Path) -> int:
            domain = f"{target.rstrip('/')}/{file.relative_to(folder).as_posix()}"
            above = domain.rpartition("/")[0]
            words = vars(args) | {
                "file": str(file),
                "domain": domain,
                "sources": sources,
                "imported": imported,
            }
            try:
                with making:
                    if above and above not in made:
                        make_with_parents(tree, Silent(is_json=False), above)
                        made.add(above)
                own = OneOfMany(many, numbers[file], is_small(file))
                return import_file(argparse.Namespace(**words), connect, run, own)
            except (Unauthenticated, Unreachable):
                many.is_lost = True
                raise
            finally:
                many.end(numbers[file])

        done = f"files are imported into {target}."
        try:
            with interruptible():
                return run_each(sizes, run_file, args.progress, done, is_small=is_small, stop=many.stop)
        except KeyboardInterrupt:
            print("Stopped. Imported files stay; --resume continues with the rest.", file=sys.stderr)
            return INTERRUPTED


def import_file(args: argparse.Namespace, connect: Connect, run: Import, own: OneOfMany | None = None) -> int:
    """Import a file; with `--force`, replace an existing domain after the import, and keep its access rights.

    Raises `Forbidden` if the caller may not read the rights, and `Conflict` if the domain has snapshots to keep.
    """
    if args.drop_snapshots and not args.force:
        raise BadRequest("--drop-snapshots needs --force, which replaces a domain: add --force.")
    if not args.force:
        return run(args, args.domain, own)
    if args.resume or args.keep:
        raise BadRequest("--force always starts a new import: omit --resume and --keep.")
    path = normal_path(args.domain)
    with closing(ServerTree(connect)) as tree:
        found = tree.exists(path)
        if found is None:
            return run(args, args.domain, own)
        if found.kind is not Kind.DOMAIN:
            raise Conflict(f"{path} is a folder, which --force does not replace: name a domain.")
        kept = _KeptSettings.of(tree, path, drop_snapshots=args.drop_snapshots)
        beside = f"{path}.{SystemClock().token(4).hex()}.import"
        status = run(argparse.Namespace(**vars(args) | {"domain": beside}), args.domain, own)
        if status not in (FAILED, INTERRUPTED):
            kept.replace(tree, path, beside)
        return status


@dataclass(frozen=True, slots=True)
class _KeptSettings:
    """The owner and ACLs of a domain that the caller, `user`, replaces. If `owner` is None, `user` becomes owner."""

    user: str
    owner: str | None
    acls: dict[str, Json]

    @classmethod
    def of(cls, tree: ServerTree, path: str, *, drop_snapshots: bool) -> Self:
        about, record = tree.json("GET", "/about"), tree.json("GET", "/", path)
        snapshots: list[Json] = []
        with suppress(NotFound):  # a server without snapshots
            snapshots = tree.json("GET", "/snapshots", path)["snapshots"]
        if snapshots and not drop_snapshots:
            raise Conflict(
                f"{path} has {len(snapshots)} snapshots, which are deleted if it is replaced: add --drop-snapshots, or "
                "name another domain."
            )
        try:
            listed = tree.json("GET", "/acls", path)["acls"]
        except Forbidden as error:
            if not error.is_of_proxy:
                remedy = "--force needs the right readACL to keep the access rights: delete the domain first."
                reword(error, f"{error.message} {remedy}")
            raise
        # An ACL also contains its user and the domain in which it was set.
        rights = ({name: right for name, right in acl.items() if isinstance(right, bool)} for acl in listed)
        acls = dict(zip((acl["userName"] for acl in listed), rights, strict=True))
        return cls(str(about.get("username")), record.get("owner") if about.get("isadmin") else None, acls)

    def replace(self, tree: ServerTree, path: str, new: str) -> None:
        """Replace the domain at `path` by the domain at `new`.

        The caller's own rights are set last, because they may not permit the requests that set other rights.
        """
        try:
            with suppress(NotFound):
                tree.json("DELETE", "/", path)
        except BaseException:
            tree.json("DELETE", "/", new)
            raise
        tree.create(path, {"linked_domain": new} | ({} if self.owner is None else {"owner": self.owner}))
        there = {acl["userName"] for acl in tree.json("GET", "/acls", path)["acls"]}
        for user in there - self.acls.keys() - {self.user}:
            tree.json("DELETE", f"/acls/{user}", path)
        for user, rights in self.acls.items():
            if user != self.user:
                tree.put(f"/acls/{user}", rights, path)
        tree.delete_name(new, path)
        if self.user in self.acls:
            tree.put(f"/acls/{self.user}", self.acls[self.user], path)
        elif self.user in there:
            tree.json("DELETE", f"/acls/{self.user}", path)


class Silent(Output):
    """An output that writes nothing, for folders that are created implicitly."""

    def write(self, text: str, item: object) -> None:
        """Do nothing."""
