"""What AnnData's specification makes of objects: groups and datasets with attributes, by path.

Nothing is sent here: `hsparse.client.integrations.anndata.element_writer` does that.
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
SCALARS = (bool, int, float, complex, np.number, np.bool_)


@dataclass
class EncodedElements:
    """Elements by their paths: `groups` have their attributes, `arrays` values and attributes, None for a null one.

    `matrices` are scipy's sparse matrices, or what has slices of them, with the name of their form, csr or csc;
    `bodies` create datasets that have no values of their own.
    """

    groups: dict[str, Attributes] = field(default_factory=dict)
    arrays: dict[str, tuple[NDArray[Any] | Any, Attributes]] = field(default_factory=dict)
    matrices: dict[str, tuple[Any, str]] = field(default_factory=dict)
    bodies: dict[str, Json] = field(default_factory=dict)

    def add_anndata(self, data: Any) -> None:
        """Add the parts of an AnnData, whose group has no path here."""
        self.groups[""] = _type("anndata", "0.1.0")
        if data.X is not None:
            self.add("X", data.X)
        self.add("obs", data.obs)
        self.add("var", data.var)
        for part in PARTS:
            self.add(part, dict(getattr(data, part)))
        if data.raw is not None:
            self.groups["raw"] = _type("raw", "0.1.0")
            self.add("raw/X", data.raw.X)
            self.add("raw/var", data.raw.var)
            self.add("raw/varm", dict(data.raw.varm))

    @property
    def names(self) -> set[str]:
        """The names that these elements take in the group that they are for."""
        paths = (*self.groups, *self.arrays, *self.matrices, *self.bodies)
        return {path.partition("/")[0] for path in paths if path}

    def below(self, path: str) -> EncodedElements:
        """Return the elements as they are below a path, with the groups that lead to it."""
        if not path:
            return self
        parts = path.split("/")
        above: dict[str, Attributes] = {"/".join(parts[:count]): {} for count in range(1, len(parts) + 1)}

        def moved(some: dict[str, T]) -> dict[str, T]:
            return {f"{path}/{inner}".rstrip("/"): value for inner, value in some.items()}

        groups = above | moved(self.groups)
        return EncodedElements(groups, moved(self.arrays), moved(self.matrices), moved(self.bodies))

    def add(self, path: str, value: Any) -> None:
        """Add an object; `WrongType` for one that has no encoding, which names the path."""
        encode = _encoder(value)
        if encode is None:
            raise WrongType(f"{path}: AnnData's files have no form for a {type(value).__name__}.")
        encode(self, path, value)

    # --- frames ---------------------------------------------------------------------------------------

    def _frame(self, path: str, frame: Any) -> None:
        names = [checked_name(path, name) for name in frame.columns]
        if len(set(names)) < len(names):
            raise InvalidValue(f"{path} has two columns of one name: {names}.")
        index = frame.index.name
        if index is not None and index in names and not np.array_equal(frame.index, frame[index]):
            raise InvalidValue(
                f"{path}: the index has the name of a column with other values, {index!r}: rename it."
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
                    f"{path} has {wrong[0]!r:.40} among texts: give text alone, numbers, or a categorical."
                )
            self.arrays[path] = texts, _type("string-array", "0.2.0")
        else:
            self.arrays[path] = _with_complex_parts(array), _type("array", "0.2.0")

    def _lazy_array(self, path: str, value: Any) -> None:
        """Add a dask array, or a dataset of a file that an AnnData is backed by."""
        kind = getattr(getattr(value, "_meta", None), "format", "")
        if kind in ("csr", "csc"):
            self.matrices[path] = value, kind
        else:
            self.arrays[path] = value, _type("array", "0.2.0")

    def _matrix(self, path: str, value: Any) -> None:
        """Add a matrix; one without room for elements is the group of its arrays, as in a file."""
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
        for name, one in value.items():
            self.add(f"{path}/{checked_name(path, name)}", one)

    def _text(self, path: str, value: str) -> None:
        self.arrays[path] = np.array(str(value), object), _type("string", "0.2.0")

    def _scalar(self, path: str, value: Any) -> None:
        self.arrays[path] = _with_complex_parts(np.asarray(value)), _type("numeric-scalar", "0.2.0")

    def _null(self, path: str, value: None) -> None:
        self.arrays[path] = None, _type("null", "0.1.0")


def matrix_attributes(kind: str) -> Attributes:
    """Return the attributes of a matrix of the form csr or csc."""
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
    if hasattr(value, "to_memory"):  # a matrix of a file that an AnnData is backed by
        return lambda elements, path, one: elements._matrix(path, one.to_memory())
    if all(hasattr(value, name) for name in ("shape", "dtype", "__getitem__")) and hasattr(value, "chunks"):
        return EncodedElements._lazy_array
    return EncodedElements._awkward if type(value).__module__.partition(".")[0] == "awkward" else None


def _array_of(column: Any) -> Any:
    """Return the array of a Series or an Index: numpy's, or one of pandas' own that has an encoding."""
    values = column.array
    return values.to_numpy() if type(values).__name__ == "NumpyExtensionArray" else values


def _with_text_fields(array: NDArray[Any]) -> NDArray[Any]:
    """Return compounds whose text is objects, which have any length."""
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
    """Return a name; `InvalidValue` for one that is no text, or would be a path."""
    if not isinstance(name, str):
        raise WrongType(f"{path}: the name {name!r:.40} is no text: rename it.")
    if not name or "/" in name or name == ".":
        raise InvalidValue(
            f"{path}: {name!r:.40} cannot be the name of an object: rename it, without slashes."
        )
    return name


def _type(name: str, version: str) -> Attributes:
    return {"encoding-type": name, "encoding-version": version}
