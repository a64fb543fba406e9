"""Striping: chunks of a dataset are distributed over several key prefixes, or over several buckets.

In "Raw Data Storage in HDF5" (1997) each chunk has the number of a file in a list, counted from 1. Here a file is a key
prefix, and the file number is a function of the chunk's scaled coordinates. No index stores the file number. It does
not depend on the extent, so chunks never move when a dataset grows.

A stripe may have a *place*: another bucket, or a prefix in it (`bucket`, `bucket/prefix`). The key of a chunk then
contains its place, so that stores need no other state:

    db/<uuid1>/d/<uuid2>/.stripe/<file number>/<place>/<i>_<j>_<k>

`hsparse.stripes` stores the chunk in that place under `placed_key`, which names the dataset's own bucket, its *home*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from operator import mul
from typing import Any, TypeAlias

from hsparse.errors import BadRequest
from hsparse.model.ids import check_bucket_name
from hsparse.model.short_text import short_repr

MAX_STRIPES = 1024
MAX_PLACES = 64
LONGEST_PLACE = 200
FOLDER = ".stripe/"
"""The component after the dataset's prefix in the key of a striped chunk."""
PLACED = "db/.stripes/"
"""The beginning of a key in a place, after the place's prefix; no server takes such a key for that of an object."""
STRIPE = f"/{FOLDER}"
AT = len("db/01234567-89abcdef/d/0123-456789-abcdef")
"""The position of `STRIPE` in the key of a striped chunk; other keys may contain `STRIPE` only further on."""
StripeList: TypeAlias = int | Sequence[str]
"""The number of stripes, or the place of each stripe."""
ROOTS = (1.618033988749895, 1.324717957244746, 1.220744084605760)
"""The positive roots of x^rank = x + 1 for the ranks 2 (the golden ratio), 3, and 4 and above."""


@dataclass(frozen=True, slots=True)
class Stripes:
    """The `count` stripes of a dataset: stripe n is in `places[n - 1]`, or in the dataset's bucket without places."""

    count: int
    places: tuple[str, ...] = ()

    @classmethod
    def of(cls, stripes: StripeList) -> Stripes | None:
        """Return the stripes of a layout, or None for a single stripe without a place, which means no striping."""
        if not isinstance(stripes, int):
            return cls(len(stripes), tuple(stripes))
        return cls(stripes) if stripes > 1 else None

    def file_number(self, scaled: Sequence[int]) -> int:
        """Return the number of the stripe that holds the chunk at `scaled`, 1 to `count` (cyclic declustering).

        `count` consecutive chunks along any dimension are in different stripes; any box is spread almost evenly.
        """
        number: int = sum(map(mul, scaled, _steps(self.count, len(scaled)))) % self.count
        return number + 1

    def folder(self, scaled: Sequence[int]) -> str:
        """Return the part of a chunk's key between the dataset's prefix and the chunk's name.

        The resulting keys sort after the dataset's record. They have at least seven components, so no server of schema
        v2 takes them for keys of chunks.
        """
        number = self.file_number(scaled)
        return f"{FOLDER}{number}/{self.places[number - 1]}/" if self.places else f"{FOLDER}{number}/"


@lru_cache(maxsize=1024)
def _steps(count: int, rank: int) -> tuple[int, ...]:
    """Return the step of the file number from one chunk to the next along each dimension, which is 1 along the last.

    The other steps are coprime to `count` and closest to `count` divided by the first, second, ... power of the rank's
    root, so that neighbouring chunks are spread evenly, as in a low-discrepancy sequence.
    """
    steps = [step for step in range(1, max(count, 2)) if gcd(step, count) == 1]
    root = ROOTS[min(rank, 4) - 2]
    sections = [count / root**dim for dim in range(1, rank)]
    found = (min(steps, key=lambda step: abs(step - section)) for section in sections)
    return tuple(reversed([1, *found]))


def parse_stripes(value: Any) -> StripeList:
    """Return the `stripes` of a requested layout, a number or a list of places; raise `BadRequest` if invalid."""
    if isinstance(value, list):
        if not 0 < len(value) <= MAX_PLACES:
            raise BadRequest(f"The layout's stripes must name 1 to {MAX_PLACES} places, not {len(value)}.")
        return [_parse_place(place) for place in value]
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_STRIPES:
        raise BadRequest(
            f"The layout's stripes must be a number from 1 to {MAX_STRIPES} or a list of buckets, not "
            f"{short_repr(value)}."
        )
    return value


def _parse_place(place: Any) -> str:
    if not isinstance(place, str) or len(place) > LONGEST_PLACE:
        raise BadRequest(f"A stripe's place must be bucket or bucket/prefix, not {short_repr(place)}.")
    for component in place.split("/"):
        check_bucket_name(component)
        if component.startswith("."):
            raise BadRequest(f"The stripe's place {place!r} has a component that begins with '.'.")
    if place.split("/")[1:2] in (["home"], ["db"]):
        raise BadRequest(f"The stripe's place {place!r} is for domains or objects only: use another prefix.")
    return place


def bucket_of(place: str) -> str:
    """Return the name of the bucket in a place."""
    return place.partition("/")[0]


def placed_key(home: str, key: str) -> tuple[str, str]:
    """Return a pair: the bucket and key at which the object `key` is stored; `(home, key)` if it has no place."""
    if not key.startswith(STRIPE, AT):
        return home, key
    number, _, behind = key[AT + len(STRIPE) :].partition("/")
    place, _, name = behind.rpartition("/")
    if not place:
        return home, key
    bucket, slash, prefix = place.partition("/")
    return bucket, f"{prefix}{slash}{PLACED}{home}/{key[:AT].removeprefix('db/')}/{number}/{name}"


def unplaced_key(bucket: str, key: str) -> str:
    """Return the inverse of `placed_key` for `key` in `bucket`; a key without a place is returned unchanged."""
    if not is_placed(key):
        return key
    prefix, _, rest = key.rpartition(PLACED)
    _, first, kind, second, number, name = rest.split("/")
    return f"db/{first}/{kind}/{second}{STRIPE}{number}/{f'{bucket}/{prefix}'.rstrip('/')}/{name}"


def is_placed(key: str) -> bool:
    """Return whether a key, in any bucket, is the key of a chunk that is stored in a place, see `placed_key`."""
    return key.startswith(PLACED) or f"/{PLACED}" in key
