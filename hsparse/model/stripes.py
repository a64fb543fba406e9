"""Striping: the chunks of a dataset under several prefixes of the store, or in several buckets, by file number.

In "Raw Data Storage in HDF5" (1997) each chunk has the number of a file in a list, from 1. Here a file is a prefix of
keys, and the number is a function of the chunk's scaled coordinates: no index has to hold it, and it never changes. It
does not depend on the extent, so that a dataset that grows moves no chunk.

The prefixes may be in *places*: other buckets, or prefixes in them (`bucket`, `bucket/prefix`). The key of a chunk then
names its place, and so the stores need no other state:

    db/<uuid1>/d/<uuid2>/.stripe/<file number>/<place>/<i>_<j>_<k>

`hsparse.stripes` keeps it in the place at `placed_key`, below the name of the dataset's own bucket, its *home*.
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
"""What the key of a chunk in a stripe has behind the dataset's prefix."""
PLACED = "db/.stripes/"
"""What keys begin with in a place, behind its prefix: no server takes such a key for an object's."""
STRIPE = f"/{FOLDER}"
AT = len("db/01234567-89abcdef/d/0123-456789-abcdef")
"""Where the key of a chunk in a stripe has `STRIPE`; what is kept elsewhere of such chunks has it behind."""
StripeList: TypeAlias = int | Sequence[str]
"""The number of stripes, or the place of each."""
ROOTS = (1.618033988749895, 1.324717957244746, 1.220744084605760)
"""By rank, from 2 on: the root of x^rank = x + 1, the golden ratio and its kin; more dimensions have the last one."""


@dataclass(frozen=True, slots=True)
class Stripes:
    """The stripes of a dataset, `count` of them: at least 2, or each in the place of its number."""

    count: int
    places: tuple[str, ...] = ()

    @classmethod
    def of(cls, stripes: StripeList) -> Stripes | None:
        """Return these stripes, None for one without a place: its chunks have no stripe."""
        if not isinstance(stripes, int):
            return cls(len(stripes), tuple(stripes))
        return cls(stripes) if stripes > 1 else None

    def file_number(self, scaled: Sequence[int]) -> int:
        """Return the number of the stripe that has a chunk, 1 to `count`.

        As many chunks in a row as there are stripes, along any dimension, are each in another one (cyclic
        declustering); a box of chunks is spread almost evenly.
        """
        number: int = sum(map(mul, scaled, _steps(self.count, len(scaled)))) % self.count
        return number + 1

    def folder(self, scaled: Sequence[int]) -> str:
        """Return what a chunk's key has between the dataset's prefix and the chunk's name.

        It sorts behind the dataset's record. With it a key has seven components or more, so that no server of schema
        v2 takes it for a chunk's.
        """
        number = self.file_number(scaled)
        return f"{FOLDER}{number}/{self.places[number - 1]}/" if self.places else f"{FOLDER}{number}/"


@lru_cache(maxsize=1024)
def _steps(count: int, rank: int) -> tuple[int, ...]:
    """Return how far the file number goes with one chunk more along each dimension; along the last one it is 1.

    The others are next to `count` divided by the first, second ... power of the rank's root, and have no divisor in
    common with `count`: what lies close together is spread evenly, as by a sequence of low discrepancy.
    """
    steps = [step for step in range(1, max(count, 2)) if gcd(step, count) == 1]
    root = ROOTS[min(rank, 4) - 2]
    sections = [count / root**dim for dim in range(1, rank)]
    found = (min(steps, key=lambda step: abs(step - section)) for section in sections)
    return tuple(reversed([1, *found]))


def parse_stripes(value: Any) -> StripeList:
    """Return the stripes that a layout asks for: their number, or the place of each; `BadRequest`."""
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
        raise BadRequest(f"A stripe's place must be like bucket or bucket/prefix, not {short_repr(place)}.")
    for component in place.split("/"):
        check_bucket_name(component)
        if component.startswith("."):
            raise BadRequest(f"The stripe's place {place!r} has a component that begins with '.'.")
    if place.split("/")[1:2] in (["home"], ["db"]):
        raise BadRequest(f"The stripe's place {place!r} is among domains or objects: choose another prefix.")
    return place


def bucket_of(place: str) -> str:
    """Return the name of a place's bucket."""
    return place.partition("/")[0]


def placed_key(home: str, key: str) -> tuple[str, str]:
    """Return the bucket that has the object of a chunk, and its key there; of any other object `home` and its key."""
    if not key.startswith(STRIPE, AT):
        return home, key
    number, _, behind = key[AT + len(STRIPE) :].partition("/")
    place, _, name = behind.rpartition("/")
    if not place:
        return home, key
    bucket, slash, prefix = place.partition("/")
    return bucket, f"{prefix}{slash}{PLACED}{home}/{key[:AT].removeprefix('db/')}/{number}/{name}"


def unplaced_key(bucket: str, key: str) -> str:
    """Return the key that `placed_key` was given for a key in a bucket; of any other object the key itself."""
    if not is_placed(key):
        return key
    prefix, _, rest = key.rpartition(PLACED)
    _, first, kind, second, number, name = rest.split("/")
    return f"db/{first}/{kind}/{second}{STRIPE}{number}/{f'{bucket}/{prefix}'.rstrip('/')}/{name}"


def is_placed(key: str) -> bool:
    """Say whether a key is that of a chunk in a place."""
    return key.startswith(PLACED) or f"/{PLACED}" in key
