"""`xarray.open_dataset(url, engine="hsparse")`: groups of domains as lazy datasets of xarray.

Registered as an entry point, so xarray knows the engine when the extra `xarray` is installed. Values of sparse datasets
are `sparse.COO`, of others numpy's.

The packing of values by the conventions of CF, undone for sparse arrays: xarray's own code makes dense ones.

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
    type_with_missing,
)
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.client.types.hdf5_type import take_inner
from hsparse.errors import Unsupported
from hsparse.model.attribute import DIMENSION_NAMES

PACKING = ("_FillValue", "missing_value", "scale_factor", "add_offset")


@dataclass(frozen=True, slots=True)
class SparsePacking:
    """How values are packed: `missing` ones are NaN, others are multiplied, then added to."""

    missing: tuple[Any, ...]
    scale: float
    offset: float
    dtype: np.dtype[Any]
    """The type of the values: the narrowest float that has those of the packed type."""

    @classmethod
    def take(cls, attributes: dict[str, Any], encoding: dict[str, Any], packed: np.dtype[Any]) -> Self | None:
        """Move the attributes of packing to an encoding and return what they say; None if there are none."""
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
        """Return a `sparse.COO` of the values of a packed one; its fill value is one of them."""
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
    """A dataset as xarray's lazy arrays ask for it: by indices and lists that are each for its own dimension."""

    def __init__(self, dataset: DenseDataset | SparseDataset, packing: SparsePacking | None = None) -> None:
        """Take a dataset; `packing` is undone here, of a sparse one."""
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


class ColumnArray(BackendArray):
    """A column of a data frame: categories where there are codes, NaN where there is none, or where a mask is true."""

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
    """The engine `hsparse`.

    >>> import xarray
    >>> with xarray.open_dataset(f, engine="hsparse") as data:
    ...     print(data["X"].dims, data["X"][:2].data.todense().sum())
    ('X_dim_0', 'X_dim_1') 3.0
    """

    description = "Open domains of hsparse and HSDS, sparse datasets too"
    open_dataset_parameters = ("filename_or_obj", *DECODING, "group")
    supports_groups = True

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Say whether it is a group of `hsparse.open`, or the URL of what may be a domain.

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
        """Return a group's datasets as variables; `options` are those of `hsparse.open`.

        One request has all names, types and attributes. A dataset whose type numpy cannot have is left out, with a
        warning.

        >>> D.attrs["units"] = "mm"
        >>> with HsparseBackendEntrypoint().open_dataset(f, drop_variables=["X"]) as data:
        ...     print(list(data), data["D"].shape, data["D"].attrs)
        ['D'] (4, 3) {'units': 'mm'}
        """
        opened = Opened(filename_or_obj, options)
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
        """Return a group and those below it, by path from it; see `open_dataset`.

        >>> f["runs/1"] = [1, 2]
        >>> sorted(HsparseBackendEntrypoint().open_groups_as_dict(f))
        ['/', '/runs']
        """
        decoding = {name: options.pop(name) for name in DECODING if name in options}
        opened = Opened(filename_or_obj, options)
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
        """Return a group and those below it as a tree; see `open_dataset`.

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


class Opened:
    """A domain whose records have been fetched; it is closed with what is made of it, if it was opened for that."""

    def __init__(self, source: Any, options: dict[str, Any]) -> None:
        self._is_own = not isinstance(source, Group)
        found = opening.open(source, **options) if self._is_own else source
        if not isinstance(found, Group):
            raise MissingKey(f"{source} is a folder; name a domain in it.")
        self._group = found
        self._records = found.records()
        self._tree = DomainTree(found.connection, self._records)
        self._frames = FrameDimensions(self._tree)
        self._dimensions = NetcdfDimensions(self._records, self._frames)

    def close(self) -> None:
        if self._is_own:
            self._group.connection.close()

    def groups(self) -> list[str]:
        return ["", *(path for path, record in self._records.items() if record["id"].startswith("g-"))]

    def dataset(self, path: str, decoding: Mapping[str, Any], *, in_tree: bool = False) -> Dataset:
        """Return the datasets of the group at a path, decoded by the conventions of CF.

        `in_tree` is whether groups are beside variables, and must have names of their own.
        """
        if path not in self.groups():
            raise MissingKey(
                f"There is no group {path} in {self._group.name}; there are {self.groups()[1:]}."
            )
        dropped = decoding.get("drop_variables") or ()
        unpacks = decoding.get("mask_and_scale", True)
        dropped = [dropped] if isinstance(dropped, str) else dropped
        places = {name: f"{path}/{name}".strip("/") for name in self._members(path) if name not in dropped}
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
                warnings.warn(f"{place} is left out: {error.message}", stacklevel=4)
                continue
            if variable is not None:
                variables[name] = variable
        group = self._group if not path else self._group[path]
        found = Dataset(
            variables | self._indices(path, variables, in_tree=in_tree), attrs=_attributes(group.attrs)
        )
        return decode_cf(found, **decoding)

    def _members(self, path: str) -> list[str]:
        """Return the names of a group's variables; the index of a frame is not one of them."""
        if self._frames.is_frame(path):
            return [name for name in self._frames.columns(path) if self._is_variable(f"{path}/{name}")]
        prefix = f"{path}/" if path else ""
        names = {place: place.removeprefix(prefix) for place in self._records if place.startswith(prefix)}
        return [name for place, name in names.items() if "/" not in name and self._is_variable(place)]

    def is_column(self, path: str) -> bool:
        """Say whether a group is a variable, with categories or a mask."""
        return path in self._tree and GroupColumn.at(self._tree, path) is not None

    def _is_variable(self, path: str) -> bool:
        if path not in self._tree:
            return False
        if self._tree.is_dataset(path):
            return not is_only_dimension(self._records[path])
        return self.is_column(path)

    def _indices(self, path: str, variables: Mapping[str, Variable], *, in_tree: bool) -> dict[str, Variable]:
        """Return the coordinates of dimensions that are those of frames, in a tree unless a group has the name."""
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
        """Return a column that has categories, which have been read, or a mask."""
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
        """Return a dataset as a variable; None if it has a null dataspace."""
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
        data = indexing.LazilyIndexedArray(DatasetArray(dataset, packing))
        return Variable(names, data, attributes, encoding)


def _attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that are data, as xarray writes them: arrays of one element are that element."""
    found: dict[str, Any] = {}
    for name in attributes:
        if name in DIMENSION_NAMES:
            continue
        value = attributes[name]
        is_single = isinstance(value, np.ndarray) and value.shape == (1,)
        found[name] = value[0] if is_single else value
    return found
