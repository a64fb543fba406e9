"""The filter pipeline message, versions 1 and 2.

H5.format.html, IV.A.2.l (message 0x000B).
"""

from __future__ import annotations

from collections.abc import Sequence

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.dataspace_message import Reader
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.filters_json import MAX_FILTERS
from hsparse.format.hdf5.filter_description import decode_filter, encode_filter


def decode_pipeline(message: Reader) -> tuple[Filter, ...]:
    """Read a pipeline in the order in which its filters encode; raises `Corrupt`."""
    version, count = message.numbers(2, 1, "filter pipeline's header")
    if version not in (1, 2) or count > MAX_FILTERS:
        raise Corrupt(
            f"The {message.thing} has a filter pipeline of version {version} with {count} filters; "
            f"there are versions 1 and 2, and at most {MAX_FILTERS} filters."
        )
    if version == 1:
        message.take(6, "filter pipeline's header")
    return tuple(decode_filter(message, version) for _ in range(count))


def encode_pipeline(pipeline: Sequence[Filter], version: int = 1) -> bytes:
    """Return the message; `BadRequest` for more filters than HDF5 has."""
    if len(pipeline) > MAX_FILTERS:
        raise BadRequest(f"A pipeline can have {MAX_FILTERS} filters, not {len(pipeline)}.")
    head = bytes((version, len(pipeline))) + (bytes(6) if version == 1 else b"")
    return head + b"".join(encode_filter(filter, version) for filter in pipeline)
