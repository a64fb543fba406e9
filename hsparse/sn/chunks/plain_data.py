"""Data that other formats refer to: arrays of elements of fixed size, all of which are stored."""

from __future__ import annotations

from hsparse.errors import Unsupported
from hsparse.format.hdf5.stored_type import has_places, stored_type
from hsparse.sn.objects.dataset import Dataset


def check_plain(dataset: Dataset, reader: str, *, made: bool) -> None:
    """Raise `Unsupported` for what `reader` has no word for, and say what to take.

    `made` says that chunks are those of the domain's file, with all their elements.
    """
    if dataset.spec.sparse and not made:
        raise Unsupported(
            f"{dataset.id} is sparse, which {reader} is not: read the map in JSON, or take that of the stock file "
            "(addresses=file)."
        )
    if dataset.is_variable:
        raise Unsupported(f"{dataset.id} has elements of variable length, which {reader} does not refer to.")
    if made and has_places(stored_type(dataset.spec.datatype.item)):
        raise Unsupported(f"{dataset.id} has references, which a file has as addresses: read values.")
    if dataset.spec.arange:
        raise Unsupported(f"{dataset.id} has an initializer: what was not written is no one fill value.")
