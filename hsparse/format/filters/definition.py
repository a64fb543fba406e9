"""Filters: a filter of a pipeline, and the base class of filter definitions.

A definition has all that hsparse knows about a filter: its id, its names, its parameters, its codec, its use in HSDS,
and its numcodecs configuration for zarr and kerchunk. `hsparse.format.filters.pipeline` has the table of definitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from hsparse.errors import BadRequest, Unsupported
from hsparse.format.buffer import Buffer

CLASS_PREFIX = "H5Z_FILTER_"
Json = dict[str, Any]
ClientValues = tuple[int, ...]
"""Client data values of a filter (H5.format.html, IV.A.2.l), which are unsigned 32-bit numbers."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A pipeline's filter: its registered id, its client values, and whether it is skipped if it fails to encode."""

    id: int
    values: ClientValues = ()
    optional: bool = True


Pipeline = tuple[Filter, ...]
"""The filters of a chunk, or of one section of it, in the order of encoding."""


@dataclass(frozen=True, slots=True)
class FilterRequest:
    """A filter in a client's request: `name` as the client wrote it, and `level` or None if not given.

    `element_size` is the size in bytes of a point in section 0 (selection), or None to use `record_size`.
    """

    name: str
    level: int | None
    parameters: ClientValues
    element_size: int | None = None

    def number(self, what: str, value: int, most: int) -> int:
        """Return `value`, the parameter called `what`; raise `BadRequest` unless it is 0 to `most`."""
        if not 0 <= value <= most:
            raise BadRequest(f"The {what} of the filter {self.name} must be 0 to {most}, not {value}.")
        return value

    def level_of(self, default: int, most: int) -> int:
        """Return the level, or the first parameter, or `default`; raise `BadRequest` unless it is 0 to `most`."""
        level = self.level
        if level is None:
            level = self.parameters[0] if self.parameters else default
        return self.number("level", level, most)


@dataclass(frozen=True, slots=True)
class DataSizes:
    """The sizes in bytes of an element and of a chunk of the data that a filter encodes."""

    element: int
    chunk: int


class FilterDefinition:
    """The definition of a filter. A subclass overrides defaults and is listed in `COMPRESSORS` or `TRANSFORMS`.

    `encode` and `decode` raise `ValueError` or `RuntimeError` for data that they cannot process.
    """

    # --- names ------------------------------------------------------------------------------------

    id: ClassVar[int]
    """The id registered with The HDF Group."""
    name: ClassVar[str]
    """The name in messages, in chunk maps and in HDF5 files."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Further names in requests and on the command line, besides `name`, `hdf5_class` and `api_names`."""
    api_names: ClassVar[tuple[str, ...]] = ()
    """Names as in h5pyd and HSDS. Responses have the first one, unless the request has another one of them."""

    @property
    def hdf5_class(self) -> str:
        """The filter's class in HDF5/JSON."""
        return CLASS_PREFIX + self.name.upper()

    @property
    def names(self) -> tuple[str, ...]:
        """All names that a request may use."""
        return tuple(dict.fromkeys((self.name, *self.api_names, *self.aliases, self.hdf5_class)))

    # --- parameters -------------------------------------------------------------------------------

    available: ClassVar[bool] = True
    """Whether a client may request the filter."""
    has_codec: ClassVar[bool] = True
    """Whether the filter can encode and decode data, so that pipelines may contain its id."""
    optional: ClassVar[bool] = True
    """Whether the filter is skipped if it cannot encode the data."""
    whole_elements: ClassVar[bool] = False
    """Whether the filter only encodes whole elements, so that no filter before it may change the size of data."""
    left_out_by_clients: ClassVar[bool] = False
    """Whether clients omit this filter when they describe a file's pipeline (h5pyd's hsload)."""

    def requested(self, request: FilterRequest, sizes: DataSizes) -> Filter:
        """Return the pipeline's filter for a request; raise `BadRequest` for a parameter out of range."""
        return Filter(self.id, self.client_values(request, sizes), self.optional)

    def client_values(self, request: FilterRequest, sizes: DataSizes) -> ClientValues:
        """Return the client values that libhdf5 stores after `set_local` has added the values of datatype and chunk."""
        return ()

    def creation_property(self, values: ClientValues) -> Json:
        """Return the filter as an entry of `creationProperties.filters`: the inverse of `client_values`."""
        return {"id": self.id, "parameters": list(values)}

    def decoding_values(self, values: ClientValues) -> ClientValues:
        """Return those client values on which decoding depends."""
        return values

    def other_values(self, values: ClientValues) -> Iterator[ClientValues]:
        """Yield other client values that the filter may have in a file although its description has `values`."""
        yield from ()

    # --- codec ------------------------------------------------------------------------------------

    declines: ClassVar[bool] = False
    """Whether HDF5 skips the filter if it does not make the data smaller."""

    def encode(self, values: ClientValues, data: Buffer) -> Buffer:
        """Return `data` encoded by the filter."""
        raise NotImplementedError(self.name)

    def decode(self, values: ClientValues, data: Buffer, limit: int) -> Buffer:
        """Return `data` decoded, and allocate memory for at most `limit` bytes."""
        raise NotImplementedError(self.name)

    def growth(self, values: ClientValues) -> int | None:
        """Return the number of bytes that encoding adds to data, or None if the number depends on the data."""
        return None

    def plane_element(self, values: ClientValues) -> int | None:
        """Return the element size in bytes if the filter is a byte shuffle, whose output is byte planes, or None."""
        return None

    # --- HSDS -------------------------------------------------------------------------------------

    shuffles_bytes: ClassVar[bool] = False
    shuffles_bits: ClassVar[bool] = False
    is_checksum: ClassVar[bool] = False
    is_compressor: ClassVar[bool] = False
    hsds_compressor: ClassVar[bool] = False
    """Whether HSDS has this compressor; it is then advertised, and Blosc frames that HSDS wrote may use it."""
    hsds_applies: ClassVar[bool] = False
    """Whether HSDS decodes this compressor without a Blosc frame around it."""
    hsds_keeps: ClassVar[bool] = False
    """Whether dense datasets keep this filter in their properties without applying it, as in HSDS."""
    hsds_takes_for_compressor: ClassVar[bool] = False
    """Whether HSDS regards this filter as the dataset's compressor although HSDS does not apply it."""

    def hsds_undoes(self, values: ClientValues) -> bool:
        """Return whether HSDS can decode some form of this filter; a pipeline with any other filter is kept."""
        return self.is_compressor or self.shuffles_bytes or self.shuffles_bits or self.is_checksum

    def as_blosc(self, values: ClientValues, shuffle: int, sizes: DataSizes) -> Filter:
        """Return the Blosc filter that replaces this compressor; `shuffle` is 0 (none), 1 (bytes) or 2 (bits)."""
        raise NotImplementedError(self.name)

    # --- zarr and kerchunk ------------------------------------------------------------------------

    def numcodecs(self, values: ClientValues) -> Json:
        """Return the filter's numcodecs configuration, as zarr and kerchunk use; raise `Unsupported` if it has none."""
        raise Unsupported(
            f"zarr has no equivalent of HDF5's filter {self.id}: read values, or the map in JSON."
        )


def value_at(values: ClientValues, place: int, default: int) -> int:
    """Return the client value at an index, or `default` if there are fewer values."""
    return values[place] if len(values) > place else default
