"""`xarray.open_dataset(url, engine="hsparse")`: groups of domains as lazy datasets of xarray.

The engine is registered as an entry point, so xarray finds it if the extra `xarray` is installed. Values of sparse
datasets are `sparse.COO`, values of other datasets are numpy arrays.

`SparsePacking` unpacks sparse values by the CF conventions, because xarray's own code would make them dense.

https://cfconventions.org/cf-conventions/cf-conventions.html#packed-data, #missing-data.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray
from xarray import Dataset, DataTree, Variable, decode_cf
from xarray.backends import BackendArray, BackendEntrypoint
from xarray.core import indexing

from hsparse.client import opening
from hsparse.client.dense_dataset import DenseDataset
from hsparse.client.errors import MissingKey
from hsparse.client.group import Group, make_member
from hsparse.client.indexing.places import key_at_places
from hsparse.client.indexing.select import ArrayKey
from hsparse.client.integrations.anndata.domain_tree import DomainTree
from hsparse.client.integrations.anndata.element_reader import ElementReader
from hsparse.client.integrations.xarray.netcdf_dimensions import (
    FrameDimensions,
    GroupColumn,
    NetcdfDimensions,
    decoded,
    is_only_dimension,
    netcdf_name,
    type_with_missing,
)
from hsparse.client.object_records import ObjectRecords
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.client.types.hdf5_type import take_inner
from hsparse.errors import Unsupported
from hsparse.model.attribute import DIMENSION_NAMES

PACKING = ("_FillValue", "missing_value", "scale_factor", "add_offset")


@dataclass(frozen=True, slots=True)
class SparsePacking:
    """How to unpack values: `missing` values become NaN; the others are multiplied by `scale`, plus `offset`."""

    missing: tuple[Any, ...]
    scale: float
    offset: float
    dtype: np.dtype[Any]
    """The type of the unpacked values: a float of 4 or 8 bytes that holds the values of the packed type."""

    @classmethod
    def take(cls, attributes: dict[str, Any], encoding: dict[str, Any], packed: np.dtype[Any]) -> Self | None:
        """Move the packing attributes to `encoding`; return the packing, or None if the values are not packed."""
        found = {name: attributes.pop(name) for name in PACKING if name in attributes}
        encoding.update(found)
        if not found or packed.kind not in "iuf":
            attributes.update(found)
            return None
        missing = [np.atleast_1d(found[name]) for name in PACKING[:2] if name in found]
        scale, offset = (found.get(name) for name in PACKING[2:])
        return cls(
            tuple(one for values in missing for one in values.tolist()),
            1.0 if scale is None else float(scale),
            0.0 if offset is None else float(offset),
            packed
            if packed.kind == "f" and packed.itemsize >= 4
            else np.result_type(packed, np.float32 if packed.itemsize <= 2 else np.float64),
        )

    def undo(self, array: Any) -> Any:
        """Return a packed `sparse.COO` with its values and its fill value unpacked."""
        fill = self._values(np.atleast_1d(array.fill_value))[0]
        values = self._values(array.data)
        return type(array)(
            array.coords, values, shape=array.shape, has_duplicates=False, sorted=True, fill_value=fill
        )

    def _values(self, packed: NDArray[Any]) -> NDArray[Any]:
        values: NDArray[Any] = packed.astype(self.dtype) * self.dtype.type(self.scale) + self.dtype.type(
            self.offset
        )
        values[np.isin(packed, self.missing)] = np.nan
        return values


SUFFIXES = (".h5", ".h5ad", ".hdf5", ".nc", ".nc4")
DECODING = (
    "mask_and_scale",
    "decode_times",
    "concat_characters",
    "decode_coords",
    "drop_variables",
    "use_cftime",
    "decode_timedelta",
)


class DatasetArray(BackendArray):
    """A dataset as a lazy array of xarray, which is indexed by integers, slices and lists orthogonally."""

    def __init__(self, dataset: DenseDataset | SparseDataset, packing: SparsePacking | None = None) -> None:
        """`packing`, which only a sparse dataset has, is undone when values are read."""
        self.dataset = dataset
        self.packing = packing
        self.extent = dataset.shape
        self.shape = (*dataset.shape, *dataset.type.inner)
        self.dtype = dataset.dtype.base if packing is None else packing.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        if isinstance(key, indexing.BasicIndexer | indexing.OuterIndexer):
            # The adapter would sort lists, and index a sparse.COO, which takes seconds.
            return self._read(key.tuple)
        support = indexing.IndexingSupport.OUTER
        return indexing.explicit_indexing_adapter(key, self.shape, support, self._read)

    def _read(self, key: tuple[Any, ...]) -> Any:
        rank = self.dataset.ndim
        select, inner = ArrayKey(key_at_places(key[:rank], self.extent), orthogonal=True), key[rank:]
        if isinstance(self.dataset, DenseDataset):
            values = self.dataset.take(select)
            self.dataset.check_extent(self.extent)
            return take_inner(values, inner)
        found = take_inner(self.dataset.to_coo(select), inner)
        self.dataset.check_extent(self.extent)
        found = found if self.packing is None else self.packing.undo(found)
        return found if found.shape else found.todense()


class PaddedArray(BackendArray):
    """A variable that is shorter than its unlimited dimension, and reads as its fill value beyond its end."""

    def __init__(self, values: DatasetArray, shape: tuple[int, ...]) -> None:
        self.values, self.shape, self.dtype = values, shape, values.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        support = indexing.IndexingSupport.OUTER
        return indexing.explicit_indexing_adapter(key, self.shape, support, self._read)

    def _read(self, key: tuple[Any, ...]) -> Any:
        places = [np.atleast_1d(np.arange(length)[one]) for one, length in zip(key, self.shape, strict=True)]
        there = [at < length for at, length in zip(places, self.values.shape, strict=True)]
        wanted = tuple(at[inside] for at, inside in zip(places, there, strict=True))
        found = self.values[indexing.OuterIndexer(wanted)]
        if isinstance(found, np.ndarray):
            fill = np.asarray(self.values.dataset.fillvalue, self.dtype)
            result: Any = np.full([len(at) for at in places], fill, self.dtype)
            result[np.ix_(*map(np.flatnonzero, there))] = found
        else:
            coords = [np.flatnonzero(inside)[at] for inside, at in zip(there, found.coords, strict=True)]
            shape = tuple(map(len, places))
            result = type(found)(np.array(coords), found.data, shape=shape, fill_value=found.fill_value)
        return result[tuple(0 if isinstance(one, int | np.integer) else slice(None) for one in key)]


class ColumnArray(BackendArray):
    """A column of a data frame: values, or the categories of codes; NaN where the mask is true or the code is -1."""

    def __init__(
        self, values: DatasetArray, categories: np.ndarray[Any, Any] | None, mask: DatasetArray | None
    ) -> None:
        self.values = values
        self.categories = categories
        self.mask = mask
        self.shape = values.shape
        self.dtype = type_with_missing(values.dtype if categories is None else categories.dtype)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        values = np.asarray(self.values[key])
        if self.categories is not None:
            return decoded(values, self.categories)
        missing = False if self.mask is None else np.asarray(self.mask[key])
        return np.where(missing, np.nan, values.astype(self.dtype))


class HsparseBackendEntrypoint(BackendEntrypoint):
    """The xarray engine `hsparse`.

    >>> import xarray
    >>> with xarray.open_dataset(f, engine="hsparse") as data:
    ...     print(data["X"].dims, data["X"][:2].data.todense().sum())
    ('X_dim_0', 'X_dim_1') 3.0
    """

    description = "Open domains of hsparse and HSDS, sparse datasets too"
    open_dataset_parameters = ("filename_or_obj", *DECODING, "group")
    supports_groups = True

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Return whether the argument is a `Group`, or a URL whose path ends like the name of an HDF5 file.

        >>> HsparseBackendEntrypoint().guess_can_open("http://127.0.0.1:5101/home/ann/run.h5")
        True
        """
        if not isinstance(filename_or_obj, str):
            return isinstance(filename_or_obj, Group)
        parts = urlsplit(filename_or_obj)
        return parts.scheme in ("http", "https", "hdf5") and parts.path.endswith(SUFFIXES)

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        mask_and_scale: Any = True,
        decode_times: Any = True,
        concat_characters: Any = True,
        decode_coords: Any = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: bool | None = None,
        decode_timedelta: Any = None,
        group: str | None = None,
        **options: Any,
    ) -> Dataset:
        """Return a group's datasets as variables; `options` are passed to `hsparse.open`.

        One request fetches all names, types and attributes. Datasets without a numpy type or without values, and
        dangling links, are omitted, each with a warning.

        >>> D.attrs["units"] = "mm"
        >>> with HsparseBackendEntrypoint().open_dataset(f, drop_variables=["X"]) as data:
        ...     print(list(data), data["D"].shape, data["D"].attrs)
        ['D'] (4, 3) {'units': 'mm'}
        """
        opened = OpenedDomain(filename_or_obj, options)
        decoding = {
            "mask_and_scale": mask_and_scale,
            "decode_times": decode_times,
            "concat_characters": concat_characters,
            "decode_coords": decode_coords,
            "drop_variables": drop_variables,
            "use_cftime": use_cftime,
            "decode_timedelta": decode_timedelta,
        }
        found = opened.dataset((group or "").strip("/"), decoding)
        found.set_close(opened.close)
        return found

    def open_groups_as_dict(
        self, filename_or_obj: Any, *, group: str | None = None, **options: Any
    ) -> dict[str, Dataset]:
        """Return a group and the groups below it as datasets, by relative path; see `open_dataset`.

        >>> f["runs/1"] = [1, 2]
        >>> sorted(HsparseBackendEntrypoint().open_groups_as_dict(f))
        ['/', '/runs']
        """
        decoding = {name: options.pop(name) for name in DECODING if name in options}
        opened = OpenedDomain(filename_or_obj, options)
        top = (group or "").strip("/")
        paths = [
            path
            for path in opened.groups()
            if path == top or (not opened.is_column(path) and f"{path}/".startswith(f"{top}/".lstrip("/")))
        ]
        found = {
            f"/{path.removeprefix(top).strip('/')}": opened.dataset(path, decoding, in_tree=True)
            for path in paths
        }
        for one in found.values():
            one.set_close(opened.close)
        return found

    def open_datatree(self, filename_or_obj: Any, **options: Any) -> DataTree:
        """Return a group and the groups below it as a tree; see `open_dataset`.

        >>> f["runs/1"] = [1, 2]
        >>> tree = HsparseBackendEntrypoint().open_datatree(f)
        >>> tree["runs"]["1"].values
        array([1, 2])
        """
        found = self.open_groups_as_dict(filename_or_obj, **options)
        tree = DataTree.from_dict(found)
        for path, dataset in found.items():
            tree[path].set_close(dataset._close)
        return tree


class OpenedDomain:
    """A domain and its fetched records; `close` closes the connection if this object opened it."""

    def __init__(self, source: Any, options: dict[str, Any]) -> None:
        self._is_own = not isinstance(source, Group)
        found = opening.open(source, **options) if self._is_own else source
        if not isinstance(found, Group):
            raise MissingKey(f"{source} is a folder; name a domain in it.")
        self._group = found
        reading = ObjectRecords(found.connection, found.id, found.name)
        self._records, self._lost = reading.read(), reading.lost
        self._tree = DomainTree(found.connection, self._records)
        self._frames = FrameDimensions(self._tree)
        self._dimensions = NetcdfDimensions(self._records, self._frames)

    def close(self) -> None:
        if self._is_own:
            self._group.connection.close()

    def groups(self) -> list[str]:
        return ["", *(path for path, record in self._records.items() if record["id"].startswith("g-"))]

    def dataset(self, path: str, decoding: Mapping[str, Any], *, in_tree: bool = False) -> Dataset:
        """Return the datasets of the group at a path, decoded by the CF conventions.

        `in_tree` says that child groups appear beside the variables, so that their names must differ.
        """
        if path not in self.groups():
            raise MissingKey(
                f"There is no group {path} in {self._group.name}; there are {self.groups()[1:]}."
            )
        dropped = decoding.get("drop_variables") or ()
        unpacks = decoding.get("mask_and_scale", True)
        dropped = [dropped] if isinstance(dropped, str) else dropped
        places = {name: place for name, place in self._places(path).items() if name not in dropped}
        columns = {name: GroupColumn.at(self._tree, place) for name, place in places.items()}
        reader = ElementReader(self._tree)
        for column in columns.values():
            if column is not None and column.categories is not None:
                reader.want(column.categories)
        reader.fetch()
        variables: dict[str, Variable] = {}
        for name, place in places.items():
            try:
                column = columns[name]
                variable = (
                    self._variable(place, unpacks) if column is None else self._column(column, reader, place)
                )
            except Unsupported as error:
                _warn(place, error.message)
                continue
            if variable is not None:
                variables[name] = variable
            elif self._tree.encoding(place) != "null":  # AnnData's None has no values
                _warn(place, "it has a null dataspace, without values.")
        prefix = f"{path}/" if path else ""
        for place in sorted(self._lost):
            name = place.removeprefix(prefix)
            if place.startswith(prefix) and "/" not in name and name not in dropped:
                _warn(place, "it is a link to an object that does not exist, or that you may not read.")
        group = self._group if not path else self._group[path]
        found = Dataset(
            variables | self._indices(path, variables, in_tree=in_tree), attrs=_attributes(group.attrs)
        )
        return decode_cf(found, **decoding)

    def _members(self, path: str) -> list[str]:
        """Return the names of a group's members that are variables, without the index of a frame."""
        if self._frames.is_frame(path):
            return [name for name in self._frames.columns(path) if self._is_variable(f"{path}/{name}")]
        prefix = f"{path}/" if path else ""
        names = {place: place.removeprefix(prefix) for place in self._records if place.startswith(prefix)}
        return [name for place, name in names.items() if "/" not in name and self._is_variable(place)]

    def _places(self, path: str) -> dict[str, str]:
        """Return a dict that maps the name of each variable of a group to its path."""
        found: dict[str, str] = {}
        for member in self._members(path):
            name = netcdf_name(member)
            found[member if name in found else name] = f"{path}/{member}".strip("/")
        return found

    def is_column(self, path: str) -> bool:
        """Return whether an object is a column with categories or a mask, which is read as one variable."""
        return path in self._tree and GroupColumn.at(self._tree, path) is not None

    def _is_variable(self, path: str) -> bool:
        if path not in self._tree:
            return False
        if self._tree.is_dataset(path):
            return not is_only_dimension(self._records[path])
        return self.is_column(path)

    def _indices(self, path: str, variables: Mapping[str, Variable], *, in_tree: bool) -> dict[str, Variable]:
        """Return coordinates for the dimensions of frames; in a tree, omit one with the name of a child group."""
        found: dict[str, Variable] = {}
        dimensions = {
            dim: frame
            for name, variable in variables.items()
            for dim, frame in zip(
                variable.dims, self._frames.of(f"{path}/{name}".strip("/"), variable.shape), strict=False
            )
            if frame is not None
            and dim not in variables
            and not (in_tree and f"{path}/{dim}".strip("/") in self._tree)
        }
        if self._frames.is_frame(path) and not variables:
            dimensions = {self._frames.name(path): path}
        for dim, frame in dimensions.items():
            index = self._variable(self._frames.index(frame), True)
            if index is not None and str(dim).startswith(self._frames.name(frame)):
                found[str(dim)] = Variable((dim,), index._data, index.attrs, index.encoding)
        return found

    def _column(self, column: GroupColumn, reader: ElementReader, path: str) -> Variable:
        """Return a column as a variable; `reader` must have fetched its categories, if there are any."""
        values = DatasetArray(self._dataset(column.values))
        mask = None if column.mask is None else DatasetArray(self._dataset(column.mask))
        categories = None if column.categories is None else np.asarray(reader.element(column.categories))
        data = indexing.LazilyIndexedArray(ColumnArray(values, categories, mask))
        return Variable(self._dimensions.names(path, self._records[column.values]), data)

    def _dataset(self, path: str) -> DenseDataset | SparseDataset:
        whole = f"{self._group.name.rstrip('/')}/{path}"
        found = make_member(self._group.connection, self._records[path], whole)
        assert isinstance(found, DenseDataset | SparseDataset)
        return found

    def _variable(self, path: str, unpacks: Any) -> Variable | None:
        """Return a dataset as a variable, or None if the dataset has a null dataspace."""
        dataset = self._dataset(path)
        if dataset.is_null:
            return None
        if isinstance(dataset, SparseDataset):
            dataset.check_lazy()
        inner = dataset.type.inner
        own = [f"{path.rpartition('/')[2]}_dim_{dataset.ndim + dim}" for dim in range(len(inner))]
        names = (*self._dimensions.names(path, self._records[path]), *own)
        encoding: dict[str, Any] = {"dtype": dataset.dtype.base}
        if dataset.chunks is not None and dataset.ndim:
            encoding |= {
                "chunksizes": (*dataset.chunks, *inner),
                "preferred_chunks": dict(zip(names, (*dataset.chunks, *inner), strict=True)),
            }
        attributes, packing = _attributes(dataset.attrs), None
        if isinstance(dataset, SparseDataset) and unpacks is not False:
            packing = SparsePacking.take(attributes, encoding, dataset.dtype)
        values = DatasetArray(dataset, packing)
        shape = (*self._dimensions.shape(self._records[path]), *inner)
        data = values if shape == values.shape else PaddedArray(values, shape)
        return Variable(names, indexing.LazilyIndexedArray(data), attributes, encoding)


def _warn(place: str, why: str) -> None:
    """Warn that an object is not read; the warning points to the line that called xarray."""
    warnings.warn(f"{place} is left out: {why} drop_variables= drops it without a warning.", stacklevel=5)


def _attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that do not name dimensions; an array of one element is returned as the element."""
    found: dict[str, Any] = {}
    for name in attributes:
        if name in DIMENSION_NAMES:
            continue
        value = attributes[name]
        is_single = isinstance(value, np.ndarray) and value.shape == (1,)
        found[name] = value[0] if is_single else value
    return found
