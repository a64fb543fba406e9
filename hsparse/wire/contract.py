"""The contract between nodes: which kinds of messages and parts there are, and since which version.

A node speaks with another one in the newest version that both understand, which the membership tells; replies are in
the version of their message. So a node that is sent a version never finds in it what that version does not have, and
the reader refuses what it does not know. A change of the contract:

- What is new, a kind or a field, gets a line in `NEWER`, and `VERSION` is the greatest version there. A field that is
  new has a default, which is what older versions mean.
- What is there keeps its meaning, its fields and their types as long as `OLDEST` is not after it.

Tests: tests/wire/test_contract.py, tests/wire/test_codec.py, tests/dn/membership/test_two_versions.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hsparse.errors import Outdated
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.filters.definition import Filter
from hsparse.format.kinds.chunk_kind import DefinedElements, FoundElements
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.reductions.partials import Partials
from hsparse.format.reductions.reduction import Reduction
from hsparse.format.selections.selection import Boxes, Orthogonal, Points, Span
from hsparse.model.stripes import Stripes
from hsparse.model.vlen_array import VlenArray
from hsparse.wire import (
    chunk_info_message,
    chunk_message,
    file_backed_message,
    membership_message,
    message,
    record_message,
)

FIRST = 1
"""The version of members that tell none."""
VERSION = 1
"""The newest version of the messages that this hsparse speaks."""
OLDEST = 1
"""The oldest one."""


@dataclass(frozen=True, slots=True)
class Since:
    """The version since which a kind or a field exists.

    `instead` returns what a receiver of an older version is sent instead of a kind: a message with the same reply. For
    a field it returns the message without what the field says. Where there is no `instead`, the older receiver is sent
    nothing but `Outdated` is raised; of a field only if it does not have its default.
    """

    version: int
    instead: Callable[[Any], Any] | None = None


NEWER: dict[str, Since] = {}
"""What came after version 1, by its name: a kind (`ReadChunks`), or a field (`ReadChunks.limit`)."""

MODULES = (
    message,
    record_message,
    chunk_message,
    chunk_info_message,
    file_backed_message,
    membership_message,
)
PARTS = (
    Filter,
    ChunkSpec,
    Span,
    Orthogonal,
    Boxes,
    Points,
    VlenArray,
    Stripes,
    ChunkSelection,
    DefinedElements,
    FoundElements,
    Reduction,
    Partials,
)
"""What messages are made of, beside the dataclasses of their own modules."""


class Contract:
    """The dataclasses that travel between nodes in the versions from `oldest` to `version`; `newer` is as `NEWER`."""

    def __init__(
        self, version: int, kinds: Iterable[type], newer: Mapping[str, Since], oldest: int = OLDEST
    ) -> None:
        self.version = version
        self.oldest = oldest
        self.kinds: dict[str, Any] = {kind.__name__: kind for kind in kinds}
        self._names: dict[tuple[str, int], tuple[str, ...]] = {}
        self._kinds = {name: since for name, since in newer.items() if "." not in name}
        self._fields: dict[str, dict[str, Since]] = {}
        for name, since in newer.items():
            kind, _, field = name.partition(".")
            if field:
                self._fields.setdefault(kind, {})[field] = since

    def spoken_with(self, version: int, node: str) -> int:
        """Return the version to speak with `node`, which understands up to `version`; `Outdated` if that is too old."""
        if version < self.oldest:
            raise Outdated(
                f"{node} speaks version {version} of the messages, this node {self.oldest} to {self.version}: upgrade "
                "it to a version between the two first."
            )
        return min(version, self.version)

    def check_spoken(self, version: int) -> None:
        """Raise `Outdated` if a sender speaks a version that is not understood here."""
        if not self.oldest <= version <= self.version:
            understood = f"{self.oldest} to {self.version}" if self.oldest < self.version else self.version
            raise Outdated(
                f"The sender speaks version {version} of the messages, this node {understood}: "
                "finish the upgrade of all nodes."
            )

    def fields_in(self, kind: str, version: int) -> tuple[str, ...]:
        """Return the names of the fields that a kind has in a version."""
        if (kind, version) not in self._names:
            newer = self._fields.get(kind, {})
            names = (field.name for field in dataclasses.fields(self.kinds[kind]))
            self._names[kind, version] = tuple(
                name for name in names if name not in newer or newer[name].version <= version
            )
        return self._names[kind, version]

    def has_in(self, kind: str, version: int) -> bool:
        """Say whether a version has a kind."""
        return kind not in self._kinds or self._kinds[kind].version <= version

    def as_told_to(self, item: Any, version: int) -> Any:
        """Return what a receiver of an older version is sent instead of `item`; `Outdated` if there is nothing.

        It is of another kind that may be too new itself, or of the same kind with defaults in the fields that are.
        """
        kind = type(item).__name__
        if not self.has_in(kind, version):
            since = self._kinds[kind]
            if since.instead is None:
                raise _no_older_form(kind, since, version)
            return since.instead(item)
        for name, since in self._fields.get(kind, {}).items():
            if since.version <= version:
                continue
            if since.instead is not None:
                item = since.instead(item)
            if not _has_default(item, name):
                raise _no_older_form(f"{kind}.{name}", since, version)
        return item


def _no_older_form(name: str, since: Since, version: int) -> Outdated:
    return Outdated(
        f"{name} exists since version {since.version} of the messages, and the receiver speaks version {version}: "
        "finish the upgrade of all nodes."
    )


def _has_default(item: Any, name: str) -> bool:
    field = next(one for one in dataclasses.fields(item) if one.name == name)
    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    value = getattr(item, name)
    return type(value) is type(default) and bool(value == default)


def _all_kinds() -> set[type]:
    own = (
        item
        for module in MODULES
        for item in vars(module).values()
        if isinstance(item, type) and dataclasses.is_dataclass(item)
    )
    return {*PARTS, *own}


CONTRACT = Contract(VERSION, _all_kinds(), NEWER)
"""The contract of this hsparse."""
