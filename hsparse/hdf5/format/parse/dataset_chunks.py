"""The chunks of a dataset of a file, and the dataset at a path."""

from __future__ import annotations

from math import prod

from hsparse.errors import Corrupt, NotFound, Unsupported
from hsparse.hdf5.format.chunk_indexes.chunk_records import ChunkRecords
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexKind, IndexLayout
from hsparse.hdf5.format.chunk_indexes.index_registry import read_chunk_index
from hsparse.hdf5.format.file_fields import Reads
from hsparse.hdf5.format.hdf5_file import Hdf5File
from hsparse.hdf5.format.messages.group_messages import HardLink
from hsparse.hdf5.format.messages.layout_message import PARAMETERS, SINGLE, SINGLE_FILTERED, ChunkedLayout
from hsparse.hdf5.format.parse.parsed_object import ParsedDataset, parse_object
from hsparse.model.dataspace import dims_of, max_dims_of

MAX_CHUNK = 1024 * 1024 * 1024
"""Bytes of the largest chunk that is decoded."""


def find_dataset(file: Hdf5File, path: str) -> Reads[ParsedDataset]:
    """Read the dataset at a path of hard links; `NotFound` names what is missing on the path."""
    address, passed = file.root, ""
    for name in filter(None, path.split("/")):
        found = yield from parse_object(file, address)
        passed += f"/{name}"
        target = next((link.target for link in found.links if link.name == name), None)
        if not isinstance(target, HardLink):
            raise NotFound(f"The file has no hard link {passed!r}.")
        address = target.address
    found = yield from parse_object(file, address)
    if found.dataset is None:
        raise NotFound(f"The object {path!r} of the file is no dataset.")
    return found.dataset


def read_dataset_chunks(file: Hdf5File, dataset: ParsedDataset, layout: ChunkedLayout) -> Reads[ChunkRecords]:
    """Read where the chunks of a dataset with this layout are; `Corrupt`, and `Unsupported` for huge chunks."""
    if file.widths != (8, 8):
        raise Unsupported(
            "The file has addresses of other than 8 bytes: rewrite it (h5repack), and use that."
        )
    size = dataset.type.size
    if layout.item_size != size:
        raise Corrupt(f"The layout has elements of {layout.item_size} bytes, the type {size}.")
    if (nbytes := prod(layout.dims) * size) > MAX_CHUNK:
        raise Unsupported(f"A chunk has {nbytes} bytes, more than {MAX_CHUNK}: use smaller ones (h5repack).")
    index = layout.index
    widths = PARAMETERS.get(index.kind, ())
    if index.kind == SINGLE and layout.flags & SINGLE_FILTERED:
        widths = (8, 4)
    found = IndexLayout(
        IndexKind(index.kind),
        layout.dims,
        max_dims_of(dataset.shape),
        layout.item_size,
        bool(dataset.pipeline),
        message_version=layout.version,
        address=index.address,
        info=b"".join(
            value.to_bytes(width, "little") for value, width in zip(index.parameters, widths, strict=True)
        ),
        k=file.chunk_k,
    )
    return (
        yield from read_chunk_index(found, dims_of(dataset.shape) or (), file.size - file.base, file.base)
    )
