"""Filters: the record of one in a pipeline, and the class of the definitions in the table of filters.

All that hsparse knows of a filter is in its definition: its id, its names in every dialect, its parameters,
its codec, what HSDS makes of it, and what readers of references need. `table` has the definitions.
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
"""Client data values of a filter (H5.format.html, IV.A.2.l), each an unsigned 32-bit number."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of a pipeline: its registered id, its client values, and whether it may fail to encode."""

    id: int
    values: ClientValues = ()
    optional: bool = True


Pipeline = tuple[Filter, ...]
"""The filters of a chunk, or of one section of it, in the order of encoding."""


@dataclass(frozen=True, slots=True)
class FilterRequest:
    """A filter as a client requests it; `name` is the client's name of it, `level` None where it gives none.

    `element_size` is the bytes of a point in section 0, None where the client leaves it to `record_size`.
    """

    name: str
    level: int | None
    parameters: ClientValues
    element_size: int | None = None

    def number(self, what: str, value: int, most: int) -> int:
        """Return `value`, which is the request's `what`; `BadRequest` outside 0 to `most`."""
        if not 0 <= value <= most:
            raise BadRequest(f"The {what} of the filter {self.name} must be 0 to {most}, not {value}.")
        return value

    def level_of(self, default: int, most: int) -> int:
        """Return the level, given as such or as the first parameter; `BadRequest` outside 0 to `most`."""
        level = self.level
        if level is None:
            level = self.parameters[0] if self.parameters else default
        return self.number("level", level, most)


@dataclass(frozen=True, slots=True)
class DataSizes:
    """The data that a filter is for: sizes in bytes of an element and of a chunk."""

    element: int
    chunk: int


class FilterDefinition:
    """A filter. A subclass sets what differs from the defaults here, and is listed in its module's `FILTERS`.

    Codecs raise `ValueError` or `RuntimeError` for what they cannot encode or decode.
    """

    # --- names ------------------------------------------------------------------------------------

    id: ClassVar[int]
    """The id registered with The HDF Group."""
    name: ClassVar[str]
    """The name in messages, in chunk maps and in HDF5 files."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Names that requests and the command line may use besides `name`, `hdf5_class` and `api_names`."""
    api_names: ClassVar[tuple[str, ...]] = ()
    """Names in answers, as h5pyd and HSDS have them. The first is used unless the client used another of them."""

    @property
    def hdf5_class(self) -> str:
        """The class in HDF5/JSON."""
        return CLASS_PREFIX + self.name.upper()

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that a request may use."""
        return tuple(dict.fromkeys((self.name, *self.api_names, *self.aliases, self.hdf5_class)))

    # --- parameters -------------------------------------------------------------------------------

    available: ClassVar[bool] = True
    """Whether a client may request the filter."""
    has_codec: ClassVar[bool] = True
    """Whether data can go through the filter, so that pipelines may have its id."""
    optional: ClassVar[bool] = True
    """Whether encoding goes on without the filter where it fails."""
    whole_elements: ClassVar[bool] = False
    """Whether the filter encodes whole elements only, so that nothing before it may change the size of data."""
    left_out_by_clients: ClassVar[bool] = False
    """Whether clients that describe a file's pipeline leave this filter out (h5pyd's hsload)."""

    def requested(self, request: FilterRequest, sizes: DataSizes) -> Filter:
        """Return the filter that a request means; `BadRequest` for a parameter out of range."""
        return Filter(self.id, self.client_values(request, sizes), self.optional)

    def client_values(self, request: FilterRequest, sizes: DataSizes) -> ClientValues:
        """Return the client values as libhdf5 stores them, once `set_local` has seen the type and the chunk."""
        return ()

    def creation_property(self, values: ClientValues) -> Json:
        """Return the filter as an entry of `creationProperties.filters`: the inverse of `client_values`."""
        return {"id": self.id, "parameters": list(values)}

    def decoding_values(self, values: ClientValues) -> ClientValues:
        """Return the client values on which decoding depends."""
        return values

    def other_values(self, values: ClientValues) -> Iterator[ClientValues]:
        """Yield client values that a file may have where its pipeline was described with `values`."""
        yield from ()

    # --- codec ------------------------------------------------------------------------------------

    declines: ClassVar[bool] = False
    """Whether HDF5 skips the filter where it does not make data smaller."""

    def encode(self, values: ClientValues, data: Buffer) -> Buffer:
        """Return `data` filtered."""
        raise NotImplementedError(self.name)

    def decode(self, values: ClientValues, data: Buffer, limit: int) -> Buffer:
        """Return `data` unfiltered, and take memory for at most `limit` bytes."""
        raise NotImplementedError(self.name)

    def growth(self, values: ClientValues) -> int | None:
        """Return by how many bytes encoding makes data longer, None where that depends on the data."""
        return None

    def plane_element(self, values: ClientValues) -> int | None:
        """Return the bytes of an element if all that the filter does is to sort bytes by their place in one."""
        return None

    # --- HSDS -------------------------------------------------------------------------------------

    shuffles_bytes: ClassVar[bool] = False
    shuffles_bits: ClassVar[bool] = False
    is_checksum: ClassVar[bool] = False
    is_compressor: ClassVar[bool] = False
    hsds_compressor: ClassVar[bool] = False
    """Whether HSDS has this compressor, so that it is advertised, and may be that of a Blosc frame HSDS wrote."""
    hsds_applies: ClassVar[bool] = False
    """Whether HSDS decodes this compressor without a Blosc frame around it."""
    hsds_keeps: ClassVar[bool] = False
    """Whether dense datasets keep this filter in their properties and do not apply it, as in HSDS."""
    hsds_takes_for_compressor: ClassVar[bool] = False
    """Whether HSDS takes this filter, which it does not apply, for the dataset's compressor."""

    def hsds_undoes(self, values: ClientValues) -> bool:
        """Say whether there is a form of this filter that HSDS can decode; else pipelines with it stay as they are."""
        return self.is_compressor or self.shuffles_bytes or self.shuffles_bits or self.is_checksum

    def as_blosc(self, values: ClientValues, shuffle: int, sizes: DataSizes) -> Filter:
        """Return the Blosc filter that takes the place of this compressor; `shuffle` is 0 none, 1 bytes, 2 bits."""
        raise NotImplementedError(self.name)

    # --- readers of references --------------------------------------------------------------------

    dmrpp: ClassVar[str] = ""
    """The name in `compressionType` of DMR++, empty where it has none."""

    def dmrpp_level(self, values: ClientValues, element_size: int) -> str:
        """Return the `deflateLevel` of DMR++, or nothing; `Unsupported` where DMR++ cannot say these values."""
        return ""

    def numcodecs(self, values: ClientValues) -> Json:
        """Return the configuration of numcodecs, as zarr and kerchunk have it; `Unsupported` where there is none."""
        raise Unsupported(
            f"zarr has no filter like HDF5's with id {self.id}; read values, or the map in JSON."
        )


def value_at(values: ClientValues, place: int, default: int) -> int:
    """Return a client value, `default` where there are fewer."""
    return values[place] if len(values) > place else default
