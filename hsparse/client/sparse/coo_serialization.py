"""Serialize `sparse.COO`, with its fill value, between the processes of dask's `distributed`.

distributed's own serializer omits the fill value, so that undefined elements of a received array become zeros.

The serializer of this module is used in processes that have imported it. distributed's own deserializer reads its
frames: the frame of the coordinates is a pickle of the whole array, and the other frames are empty. Unpickling imports
this module, so a process that has received such an array also sends the array, and arrays made from it, in full.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np

from hsparse.optional_module import OptionalModule

COO = OptionalModule("sparse", "scipy")
DISTRIBUTED = "distributed"
SERIALIZE = OptionalModule("distributed.protocol.serialize")


class WholeArray:
    """A wrapper of a `sparse.COO` whose pickle has the fill value and imports this module when it is read."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        array = self._array
        return whole_array, (array.coords, array.data, array.shape, array.fill_value)


def whole_array(coords: Any, data: Any, shape: tuple[int, ...], fill_value: Any) -> Any:
    """Return the `sparse.COO` that a pickled `WholeArray` contains, and register the serializer in this process."""
    serialize_whole()
    return COO.load().COO(coords, data, shape=shape, has_duplicates=False, sorted=True, fill_value=fill_value)


def serialize_whole() -> None:
    """If this process has imported `distributed`, register the serializer, so that fill values are sent."""
    if DISTRIBUTED in sys.modules:
        _register()


@cache
def _register() -> None:
    """Register the serializer once, unless distributed's own serializer keeps the fill value."""
    kind, protocol = COO.load().COO, SERIALIZE.load()
    probe = kind(np.zeros((1, 0), np.intp), np.zeros(0), shape=(1,), fill_value=1.0)
    if protocol.deserialize(*protocol.serialize(probe)).fill_value != 1:
        protocol.dask_serialize.register(kind, _frames)


def _frames(array: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return the pair (header, frames) for which distributed calls `COO(array, None, shape=None)`, which copies it."""
    serialize = SERIALIZE.load().serialize
    (header, frames), (nothing, no_frames) = serialize(WholeArray(array)), serialize(None)
    counts = [len(frames), len(no_frames)]
    header = {"coords-header": header, "data-header": nothing, "shape": None, "nframes": counts}
    return header, [*frames, *no_frames]
