"""What a domain has otherwise after it was exported and imported, each difference by its name, with its reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.cli.importer.domain_picture import SPARSE, Difference, Picture


@dataclass(frozen=True)
class Known:
    """A difference: `explains` is asked with the layout or revision, and the picture before."""

    name: str
    why: str
    explains: Callable[[Difference, str, Picture], bool]


CHOSEN = [[[2, 1], []], [[2, 1], [2, 1], []]]
"""The ids of the filters of each section that the server chooses: shuffle and deflate."""
NOTHING = (None, "", 0, 0.0, False)


def is_refused(picture: Picture, form: str) -> bool:
    """Say whether no file of that layout or revision can have a domain; it is told which dataset is in the way.

    References to regions are on a heap of the whole file, and those beside parts of variable length would be addresses
    in a filtered heap: structured chunks have no place for either.
    """
    return form != "stock" and any(
        seen.get("has references on heaps") and _is_sparse(picture, path) for path, seen in picture.items()
    )


def _is_sparse(picture: Picture, path: str) -> bool:
    return SPARSE in ((picture[path].get("grid") or {}).get("flags") or ())


def _is_made(picture: Picture, path: str) -> bool:
    """Say whether a dense dataset's elements have places in a file: of a heap, or of objects."""
    return bool(picture[path]["has places"])


def _is_enlarged(before: Any, after: Any) -> bool:
    """Say whether the layout after has chunks that are not smaller."""
    dims = before["dims"], after.get("dims", ())
    return after["class"] == "H5D_CHUNKED" and all(one <= other for one, other in zip(*dims, strict=True))


def _is_nothing(value: Any) -> bool:
    return all(map(_is_nothing, value)) if isinstance(value, list) else value in NOTHING


KNOWN: tuple[Known, ...] = (
    Known(
        "chunks that are made for the file are unfiltered",
        "Their sizes must be known before anything is read; what has addresses in it is known later still.",
        lambda it, form, before: it.what == "pipelines" and not any(it.after) and _is_made(before, it.path),
    ),
    Known(
        "a sparse dataset from the layout stock has the filters that the server chooses",
        "The chunks of the file are no sections: it has no place for their filters.",
        lambda it, form, before: (
            form == "stock"
            and it.what == "pipelines"
            and _is_sparse(before, it.path)
            and [[id for id, _ in some] for some in it.after] in CHOSEN
        ),
    ),
    Known(
        "references in structured chunks are unfiltered",
        "Sizes must be known before addresses are.",
        lambda it, form, before: (
            form != "stock"
            and it.what == "pipelines"
            and _is_sparse(before, it.path)
            and _is_made(before, it.path)
            and it.after == [it.before[0], []]
        ),
    ),
    Known(
        "small chunks are those that the server made of them",
        "It stores them enlarged, and the file has the stored ones; they are what is asked for then.",
        lambda it, form, before: (
            it.what == "layout"
            and it.before["class"] == "H5D_CHUNKED"
            and it.after == {"class": "H5D_CHUNKED", "dims": before[it.path]["grid"]["dims"]}
        ),
    ),
    Known(
        "compact data is contiguous",
        "The file has the same elements; one class is enough to write.",
        lambda it, form, before: (
            it.what == "layout"
            and it.before == {"class": "H5D_COMPACT"}
            and it.after == {"class": "H5D_CONTIGUOUS"}
        ),
    ),
    Known(
        "a dense dataset of structured chunks is a chunked or contiguous one",
        "The RFC reserves structured chunks for dense data of variable length, and no library reads any.",
        lambda it, form, before: (
            it.what in ("layout", "grid", "pipelines")
            and ((before[it.path].get("grid") or {}).get("flags") == ["H5D_VL_DATA"])
            and (
                it.what == "pipelines"
                or _is_enlarged(it.before, it.after)
                or it.after == {"class": "H5D_CONTIGUOUS"}  # where it is one chunk
            )
        ),
    ),
    Known(
        "a fill value of nothing but zeros is none",
        "Elements never written are the same.",
        lambda it, form, before: it.what == "fillValue" and it.after is None and _is_nothing(it.before),
    ),
)
