"""Links as h5py has them, and their HDF5/JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from hsparse.client.connection import Json


@dataclass(frozen=True, slots=True)
class HardLink:
    """A link to an object itself: what `get(name, getlink=True)` says of one.

    >>> f.get("X", getlink=True)
    HardLink()
    """


@dataclass(frozen=True, slots=True)
class SoftLink:
    """A link to a path, which need not exist.

    >>> f["newest"] = hsparse.SoftLink("/X")
    >>> f["newest"].shape
    (4, 3)
    """

    path: str


@dataclass(frozen=True, slots=True)
class ExternalLink:
    """A link to a path in another domain.

    >>> f["other"] = hsparse.ExternalLink("/home/admin/other.h5", "/X")
    >>> f.links()["other"]["class"]
    'H5L_TYPE_EXTERNAL'
    """

    domain: str
    path: str

    @property
    def filename(self) -> str:
        """The domain, by h5py's name for it.

        >>> hsparse.ExternalLink("/home/admin/other.h5", "/X").filename
        '/home/admin/other.h5'
        """
        return self.domain


Link: TypeAlias = HardLink | SoftLink | ExternalLink


def link_of(record: Json) -> Link:
    """Return the link of a record as the server lists it."""
    if "h5domain" in record:
        return ExternalLink(record["h5domain"], record["h5path"])
    return SoftLink(record["h5path"]) if "h5path" in record else HardLink()


def link_body(record: Json) -> Json:
    """Return the body that makes a link to what that of a record leads to."""
    return {name: record[name] for name in ("id", "h5path", "h5domain") if name in record}
