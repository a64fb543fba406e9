"""Encode Python objects as groups and datasets with attributes, by path, as AnnData's specification says.

This module sends nothing: `hsparse.client.integrations.anndata.element_writer` sends the elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Json
from hsparse.client.errors import InvalidValue, WrongType
from hsparse.optional_module import OptionalModule

PANDAS = OptionalModule("pandas", "anndata")
ANNDATA = OptionalModule("anndata", "anndata")
SCIPY_SPARSE = OptionalModule("scipy.sparse", "scipy")
Attributes = dict[str, Any]
T = TypeVar("T")
PARTS = ("layers", "obsm", "varm", "obsp", "varp", "uns")
CATEGORIES = "/categories"
"""The suffix of the paths of categories. A dataset of categories has an element per category, not per row."""
OF_CELLS = ("X", "layers", "obs", "obsm", "raw/X")
SCALARS = (bool, int, float, complex, np.number, np.bool_)


@dataclass
class EncodedElements:
    """Elements by path: `groups` have attributes; `arrays` have values (None for a null dataspace) and attributes.

    `matrices` have a scipy sparse matrix, or an object whose slices are such matrices, and its form, csr or csc.
    `bodies` are request bodies that create virtual datasets. `extensible` has the paths of datasets to which rows may
    be appended.
    """

    groups: dict[str, Attributes] = field(default_factory=dict)
    arrays: dict[str, tuple[NDArray[Any] | Any, Attributes]] = field(default_factory=dict)
    matrices: dict[str, tuple[Any, str]] = field(default_factory=dict)
    bodies: dict[str, Json] = field(default_factory=dict)
    extensible: set[str] = field(default_factory=set)

    def add_anndata(self, data: Any) -> None:
        """Add the parts of an AnnData; the group of the AnnData has the empty path."""
        self.groups[""] = _type("anndata", "0.1.0")
        if data.X is not None:
            self.add("X", data.X)
        self.add("obs", data.obs)
        self.add("var", data.var)
        for part in PARTS:
            self.add(part, getattr(data, part))
        if data.raw is not None:
            self.groups["raw"] = _type("raw", "0.1.0")
            self.add("raw/X", data.raw.X)
            self.add("raw/var", data.raw.var)
            self.add("raw/varm", data.raw.varm)
        self.extend_cells(data.n_obs)

    def extend_cells(self, count: int, below: str = "") -> None:
        """Mark as extensible the elements with a row for each of `count` cells, and the categories of obs's columns.

        `below` is the path in the AnnData at which the elements will be stored.
        """
        shapes = {path: getattr(value, "shape", ()) for path, (value, _) in self.arrays.items()}
        shapes |= {path: matrix.shape for path, (matrix, _) in self.matrices.items()}
        for path, shape in shapes.items():
            if (
                has_cells(f"{below}/{path}".lstrip("/"))
                and shape
                and (shape[0] == count or path.endswith(CATEGORIES))
            ):
                self.extensible.add(path)

    @property
    def names(self) -> set[str]:
        """The names of the top-level elements, which become links of the group that they are stored in."""
        paths = (*self.groups, *self.arrays, *self.matrices, *self.bodies)
        return {path.partition("/")[0] for path in paths if path}

    def below(self, path: str) -> EncodedElements:
        """Return the elements with their paths moved below `path`, and with a group for each component of `path`."""
        if not path:
            return self
        parts = path.split("/")
        above: dict[str, Attributes] = {"/".join(parts[:count]): {} for count in range(1, len(parts) + 1)}

        def moved(some: dict[str, T]) -> dict[str, T]:
            return {f"{path}/{inner}".rstrip("/"): value for inner, value in some.items()}

        groups = above | moved(self.groups)
        extensible = {f"{path}/{inner}" for inner in self.extensible}
        return EncodedElements(
            groups, moved(self.arrays), moved(self.matrices), moved(self.bodies), extensible
        )

    def add(self, path: str, value: Any) -> None:
        """Add an object; raise `WrongType`, with the path in its message, if AnnData has no encoding for it."""
        encode = _encoder(value)
        if encode is None:
            raise WrongType(
                f"{path}: AnnData's file format cannot store a {type(value).__name__}: "
                "convert it, for example to a numpy array, or leave it out."
            )
        encode(self, path, value)

    # --- frames ---------------------------------------------------------------------------------------

    def _frame(self, path: str, frame: Any) -> None:
        names = [checked_name(path, name) for name in frame.columns]
        if len(set(names)) < len(names):
            raise InvalidValue(f"{path} has two columns of the same name, of {names}: rename one of the two.")
        index = frame.index.name
        if index is not None and index in names and not np.array_equal(frame.index, frame[index]):
            raise InvalidValue(
                f"{path}: the index and a column with other values are named {index!r}: rename one of the two."
            )
        key = "_index" if index is None else checked_name(path, index)
        if key == "_index" and "_index" in names:
            raise InvalidValue(f"{path}: a column cannot be called _index: rename it.")
        order = np.array(names, object) if names else np.zeros(0)
        self.groups[path] = _type("dataframe", "0.2.0") | {"column-order": order, "_index": key}
        self.add(f"{path}/{key}", _array_of(frame.index))
        for name in names:
            if name != key:
                self.add(f"{path}/{name}", _array_of(frame[name]))

    def _categorical(self, path: str, value: Any) -> None:
        self.groups[path] = _type("categorical", "0.2.0") | {"ordered": bool(value.ordered)}
        self.add(f"{path}/codes", np.asarray(value.codes))
        self.add(f"{path}/categories", value.categories.to_numpy())

    def _nullable(self, path: str, value: Any) -> None:
        pandas = PANDAS.load()
        if isinstance(value, pandas.arrays.IntegerArray | pandas.arrays.BooleanArray):
            kind = "boolean" if isinstance(value, pandas.arrays.BooleanArray) else "integer"
            values = value.to_numpy(na_value=0, dtype=value.dtype.numpy_dtype)
            self.groups[path] = _type(f"nullable-{kind}", "0.1.0")
        else:
            values = value.to_numpy(dtype=object, na_value="")
            self.groups[path] = _type("nullable-string-array", "0.1.0")
        self.add(f"{path}/values", values)
        self.add(f"{path}/mask", np.asarray(value.isna()))

    # --- arrays ---------------------------------------------------------------------------------------

    def _array(self, path: str, value: Any) -> None:
        array = np.asarray(value)
        if array.ndim == 0 and array.dtype.names is None:
            self.add(path, array.item() if array.dtype.kind in "OUT" else array[()])
        elif array.dtype.names is not None:
            self.arrays[path] = _with_text_fields(array), _type("rec-array", "0.2.0")
        elif array.dtype.kind in "UTO":
            texts = array.astype(object)
            wrong = [one for one in texts.reshape(-1) if not isinstance(one, str)]
            if wrong:
                raise WrongType(
                    f"{path} contains {wrong[0]!r:.40}, which is not text: give text, numbers or a categorical."
                )
            self.arrays[path] = texts, _type("string-array", "0.2.0")
        else:
            self.arrays[path] = _with_complex_parts(array), _type("array", "0.2.0")

    def _lazy_array(self, path: str, value: Any) -> None:
        """Add a dask array, or a dataset of a backed AnnData's file."""
        kind = getattr(getattr(value, "_meta", None), "format", "")
        if kind in ("csr", "csc"):
            self.matrices[path] = value, kind
        else:
            self.arrays[path] = value, _type("array", "0.2.0")

    def _matrix(self, path: str, value: Any) -> None:
        """Add a sparse matrix; with a dimension of length 0, it becomes a group of its three arrays, as in a file."""
        if value.format not in ("csr", "csc"):
            value = value.tocsr()
        if 0 not in value.shape:
            self.matrices[path] = value, value.format
            return
        self.groups[path] = matrix_attributes(value.format) | {"shape": np.array(value.shape, np.int64)}
        for name in ("data", "indices", "indptr"):
            self.arrays[f"{path}/{name}"] = getattr(value, name), _type("array", "0.2.0")

    def _awkward(self, path: str, value: Any) -> None:
        awkward = OptionalModule("awkward", "anndata").load()
        form, length, buffers = awkward.to_buffers(awkward.to_packed(value))
        self.groups[path] = _type("awkward-array", "0.1.0") | {"length": length, "form": form.to_json()}
        for name, buffer in buffers.items():
            self.add(f"{path}/{name}", np.asarray(buffer))

    # --- other ----------------------------------------------------------------------------------------

    def _mapping(self, path: str, value: Mapping[str, Any]) -> None:
        self.groups[path] = _type("dict", "0.1.0")
        for name, one in named_arrays(value).items():
            self.add(f"{path}/{checked_name(path, name)}", one)

    def _text(self, path: str, value: str) -> None:
        self.arrays[path] = np.array(str(value), object), _type("string", "0.2.0")

    def _scalar(self, path: str, value: Any) -> None:
        self.arrays[path] = _with_complex_parts(np.asarray(value)), _type("numeric-scalar", "0.2.0")

    def _null(self, path: str, value: None) -> None:
        self.arrays[path] = None, _type("null", "0.1.0")


def has_cells(path: str) -> bool:
    """Return whether a path is in a part of an AnnData that has a row for each cell."""
    return any(path == part or path.startswith(f"{part}/") for part in OF_CELLS)


def named_arrays(arrays: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a mapping without X, which AnnData 0.13 has in its layers under the name None."""
    of_anndata = type(arrays).__module__.partition(".")[0] == "anndata"
    return {name: one for name, one in arrays.items() if name is not None or not of_anndata}


def matrix_attributes(kind: str) -> Attributes:
    """Return the attributes that mark a matrix of the form csr or csc in AnnData's format."""
    return _type(f"{kind}_matrix", "0.1.0")


def _encoder(value: Any) -> Callable[[EncodedElements, str, Any], None] | None:
    pandas = PANDAS.load()
    nullable = [pandas.arrays.IntegerArray, pandas.arrays.BooleanArray]
    nullable += [pandas.arrays.StringArray, pandas.arrays.ArrowStringArray]
    if value is None:
        return EncodedElements._null
    if isinstance(value, str):
        return EncodedElements._text
    if isinstance(value, SCALARS):
        return EncodedElements._scalar
    if isinstance(value, Mapping):
        return EncodedElements._mapping
    if isinstance(value, pandas.DataFrame):
        return EncodedElements._frame
    if isinstance(value, pandas.Categorical):
        return EncodedElements._categorical
    if isinstance(value, tuple(nullable)):
        return EncodedElements._nullable
    if SCIPY_SPARSE.load().issparse(value):
        return EncodedElements._matrix
    if isinstance(value, np.ndarray | np.generic | list | tuple):
        return EncodedElements._array
    if hasattr(value, "to_memory"):  # a matrix of a backed AnnData's file
        return lambda elements, path, one: elements._matrix(path, one.to_memory())
    if all(hasattr(value, name) for name in ("shape", "dtype", "__getitem__")) and hasattr(value, "chunks"):
        return EncodedElements._lazy_array
    return EncodedElements._awkward if type(value).__module__.partition(".")[0] == "awkward" else None


def _array_of(column: Any) -> Any:
    """Return the array of a Series or an Index: a numpy array, or a pandas extension array that has an encoding."""
    values = column.array
    # The text of pandas 3 without missing values is a string array, not a nullable one.
    if str(values.dtype) == "str" and not values.isna().any():
        return values.to_numpy(dtype=object)
    return values.to_numpy() if type(values).__name__ == "NumpyExtensionArray" else values


def _with_text_fields(array: NDArray[Any]) -> NDArray[Any]:
    """Convert the text fields of compounds to objects, which are stored with variable length."""
    names = array.dtype.names or ()
    fields: list[Any] = [
        (name, object if array.dtype[name].kind in "UTO" else array.dtype[name]) for name in names
    ]
    result = np.empty(array.shape, np.dtype(fields))
    for name in names:
        result[name] = array[name]
    return result


def _with_complex_parts(array: NDArray[Any]) -> NDArray[Any]:
    """Return complex numbers as compounds of their two parts, as h5py writes them."""
    if array.dtype.kind != "c":
        return array
    part = np.dtype(f"{array.dtype.byteorder}f{array.dtype.itemsize // 2}")
    return np.ascontiguousarray(array).view(np.dtype([("r", part), ("i", part)])).reshape(array.shape)


def checked_name(path: str, name: Any) -> str:
    """Return `name`; raise `WrongType` if it is no text, and `InvalidValue` if it is empty, "." or has a slash."""
    if not isinstance(name, str):
        raise WrongType(f"{path}: the name {name!r:.40} is not text: rename it.")
    if not name or "/" in name or name == ".":
        raise InvalidValue(
            f"{path}: {name!r:.40} cannot be the name of an object: rename it, without slashes."
        )
    return name


def _type(name: str, version: str) -> Attributes:
    return {"encoding-type": name, "encoding-version": version}
