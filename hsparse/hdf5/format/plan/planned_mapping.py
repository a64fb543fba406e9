"""Plan the mappings of a virtual dataset: an object of the global heap, and the layout message that refers to it.

H5.format.html, III.E, "Global Heap Block for Virtual Datasets", version 0.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from hsparse.format.codec_library import lookup3
from hsparse.format.selections.selection_encoding import (
    encode_blocks,
    encode_points,
    encode_regular,
    encode_simple,
)
from hsparse.format.selections.serialized_selection import (
    ALL,
    NONE,
    AllElements,
    BlockList,
    PointList,
    Regular,
    Serialized,
)
from hsparse.hdf5.format.file_fields import Addressed
from hsparse.hdf5.format.messages.layout_message import VirtualLayoutMessage, encode_layout
from hsparse.hdf5.format.parse.virtual_mapping import VirtualMapping
from hsparse.hdf5.format.plan.planned_structures import GlobalHeapPlan


def plan_mapping(mappings: Sequence[VirtualMapping], heap: GlobalHeapPlan) -> Addressed:
    """Add the mappings of a virtual dataset to the heap; return the dataset's layout message."""
    pieces = [struct.pack("<BQ", 0, len(mappings))]
    for one in mappings:
        pieces += [one.file.encode() + b"\0", one.dataset.encode() + b"\0"]
        pieces += [_encoded(one.source), _encoded(one.virtual)]
    data = b"".join(pieces)
    key, number = heap.add(Addressed(data + struct.pack("<I", lookup3(data))))
    return Addressed(encode_layout(VirtualLayoutMessage(None, number)), ((2, key),))


def _encoded(selection: Serialized) -> bytes:
    """Encode a selection, bounded or unlimited, in the serialization versions that libhdf5 1.10 reads."""
    match selection:
        case AllElements():
            return encode_simple(ALL)
        case PointList(coords):
            return encode_points(list(coords.T), 1)
        case BlockList(starts, ends):
            return encode_blocks(starts, ends, 1)
        case Regular(spans):
            return encode_regular(spans, 2)
    return encode_simple(NONE)
