"""Where jobs may read and write files: only below what the setting `job_places` lists."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hsparse.errors import BadRequest, Forbidden, Misconfigured
from hsparse.model.file_backed import OBJECTS_FOLDER
from hsparse.sn.auth.roles import is_user_name

S3 = "s3://"
FILE = "file://"
USER = "{user}"
"""In a place, it stands for the name of the job's user."""
LONGEST = 2048


@dataclass(frozen=True, slots=True)
class JobPlaces:
    """The places, as `s3://bucket/prefix/` and `file:///directory/`; without any, all jobs are refused.

    The server's own objects are in no place: those of the `served` buckets of S3, and the `root` directory.
    """

    entries: tuple[str, ...]
    served: tuple[str, ...] = ()
    root: str = ""

    def __post_init__(self) -> None:
        """Normalize the entries; `Misconfigured` for an entry that is no place, or has the server's objects."""
        object.__setattr__(self, "entries", tuple(map(_checked_entry, self.entries)))
        for entry in self.entries:
            if self._has_objects(entry):
                raise Misconfigured(
                    f"job_places: {entry} has objects that the server keeps there itself; name another place."
                )

    def argument(self, url: str, user: str, *, writes: bool) -> str:
        """Return the argument of a command for the file at `url`, with symbolic links resolved.

        `BadRequest` for text that is no URL of a file, `Forbidden` for a file outside of the places of `user`, also
        through a symbolic link.
        """
        check_file_url(url)
        if not self.entries:
            raise Forbidden(
                "This server runs no jobs: its setting job_places lists no place for their files."
            )
        for place in self._of(user):
            if url.startswith(place):
                self._check_own(url)
                return url if place.startswith(S3) else _inside(url, place, writes=writes)
        raise Forbidden(
            f"{url} is in none of the places for jobs' files, which the setting job_places lists."
        )

    def folders(self, user: str) -> tuple[str, ...]:
        """Return the places of `user` as arguments of a command: directories, and prefixes of objects."""
        return tuple(place.removeprefix(FILE) for place in self._of(user))

    def _of(self, user: str) -> Iterator[str]:
        for entry in self.entries:
            place = entry.replace(USER, user)
            if (USER not in entry or is_user_name(user)) and not self._has_objects(place):
                yield place

    def _has_objects(self, place: str) -> bool:
        """Say whether a place has all of a served bucket, or something of its objects, or of the root directory."""
        if place.startswith(FILE):
            both = Path(os.path.realpath(place.removeprefix(FILE))), Path(os.path.realpath(self.root))
            return bool(self.root) and (both[0].is_relative_to(both[1]) or both[1].is_relative_to(both[0]))
        bucket, _, prefix = place.removeprefix(S3).partition("/")
        first = prefix.partition("/")[0]
        return bucket in self.served and first.casefold() in ("", OBJECTS_FOLDER)

    def _check_own(self, url: str) -> None:
        """Raise `Forbidden` for the key of a record of a served bucket."""
        bucket, *components = url.removeprefix(S3).split("/")
        if url.startswith(S3) and bucket in self.served and any(one.startswith(".") for one in components):
            raise Forbidden(f"{url} is no file for jobs: the server keeps its own objects there.")


def check_file_url(url: str) -> None:
    """Raise `BadRequest` for a URL that is not `s3://bucket/key` or `file:///directory/file`, or has `.` or `..`."""
    if len(url) > LONGEST:
        raise BadRequest(f"A URL of a file can have {LONGEST} characters, not {len(url)}.")
    scheme = next((scheme for scheme in (S3, FILE) if url.startswith(scheme)), None)
    parts = url.removeprefix(scheme or "").split("/")
    if scheme is None or len(parts) < 2 or (scheme == FILE) != (parts[0] == ""):
        raise BadRequest(f"{url!r} must be like s3://bucket/path/file.h5 or file:///directory/file.h5.")
    if any(part in ("", ".", "..") for part in parts[1:]):
        raise BadRequest(f"{url!r} must not have the components '', '.' and '..'.")
    if any(ord(c) < 32 or ord(c) == 127 for c in url):
        raise BadRequest(f"{url!r} must not have control characters.")


def _checked_entry(entry: str) -> str:
    """Return an entry with one trailing slash."""
    entry = entry.rstrip("/") + "/"
    try:
        check_file_url(entry + "file")
    except BadRequest as error:
        raise Misconfigured(
            f"job_places: {entry} must be like s3://bucket/prefix/ or file:///directory/."
        ) from error
    return entry


def _inside(url: str, place: str, *, writes: bool) -> str:
    """Return the path of a file with symbolic links resolved; `Forbidden` if that is not in the place."""
    path = Path(url.removeprefix(FILE))
    if writes and path.is_symlink():
        raise Forbidden(f"{url} is a symbolic link; name a file.")
    # A file to be written need not exist, but its directory must.
    real = Path(os.path.realpath(path.parent)) / path.name if writes else Path(os.path.realpath(path))
    if not real.is_relative_to(os.path.realpath(place.removeprefix(FILE))):
        raise Forbidden(f"{url} leads out of the place {place} by a symbolic link.")
    if real.exists() and not real.is_file():  # a pipe would wait for its other end
        raise BadRequest(f"{url} is no regular file.")
    return str(real)
