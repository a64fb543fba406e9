"""The attributes of an object as a mapping from names to numpy's values, as h5py has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import suppress
from typing import Any

from numpy.typing import ArrayLike

from hsparse.client.connection import Connection, Json
from hsparse.client.errors import MissingKey
from hsparse.client.types.hdf5_type import Hdf5Type, attribute_body
from hsparse.client.types.text_compound import object_array

SEPARATOR = "\0"
"""Between names in a list of them: no name has it."""


class Attributes(MutableMapping[str, Any]):
    """Attributes of the object at `path` (`/groups/g-...`), asked for once, when the first is needed.

    A value is a `str`, a numpy scalar or an array, None for a null dataspace. A change is durable when the method
    returns.

    >>> X.attrs["unit"] = "counts"
    >>> X.attrs.update(run=7, center=[1.5, 2.5])
    >>> X.attrs["run"], X.attrs["center"], sorted(X.attrs)
    (np.int64(7), array([1.5, 2.5]), ['center', 'run', 'unit'])
    """

    def __init__(self, connection: Connection, path: str, known: Json | None = None) -> None:
        """`known` are the object's attributes as the server listed them with it."""
        self._connection = connection
        self._path = path
        self._known = known

    def __getitem__(self, name: str) -> Any:
        """Return the value of an attribute; `MissingKey` names those that there are.

        >>> f.attrs["title"]
        Traceback (most recent call last):
        hsparse.client.errors.MissingKey: There is no attribute 'title' at /groups/...; there are [].
        """
        try:
            return attribute_value(self._all()[name])
        except KeyError:
            raise self._missing(name) from None

    def __setitem__(self, name: str, value: ArrayLike | None) -> None:
        """Set an attribute to text, a number, an array, or a list of these; it replaces one of that name.

        >>> f.attrs["axes"] = ["cell", "gene"]
        >>> f.attrs["axes"]
        array(['cell', 'gene'], dtype=object)
        """
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        """Remove an attribute; `MissingKey` if there is none of that name.

        >>> f.attrs["title"] = "draft"
        >>> del f.attrs["title"]
        >>> "title" in f.attrs
        False
        """
        if name not in self:
            raise self._missing(name)
        # In a list of names: a name in the URL's path could not have a slash.
        self._connection.json("DELETE", f"{self._path}/attributes", attr_names=name, separator=SEPARATOR)
        self._known = None

    def update(self, other: Any = (), /, **more: Any) -> None:
        """Set several attributes by one request.

        >>> f.attrs.update({"title": "cells"}, run=7)
        >>> dict(f.attrs)
        {'run': np.int64(7), 'title': 'cells'}
        """
        bodies = {name: attribute_body(value) for name, value in dict(other, **more).items()}
        batch = self._connection.open_batch
        if batch is not None:
            batch.put_attributes(self._path.rpartition("/")[2], bodies)
            self._known = None
        elif bodies:
            self._connection.json("PUT", f"{self._path}/attributes", {"attributes": bodies}, replace=1)
            self._known = None

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return f"<Attributes {dict(self)!r}>"

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def refresh(self) -> None:
        """Forget what is known: others may have changed it.

        >>> "run" in f.attrs
        False
        >>> f["/"].attrs["run"] = 7
        >>> f.attrs.refresh()
        >>> "run" in f.attrs
        True
        """
        self._known = None

    def bodies(self) -> Json:
        """Return all attributes as the bodies that create them, by name.

        >>> X.attrs["unit"] = "counts"
        >>> X.attrs.bodies()["unit"]["value"]
        'counts'
        """
        return {name: _body(record) for name, record in self._all().items()}

    def _missing(self, name: str) -> MissingKey:
        return MissingKey(f"There is no attribute {name!r} at {self._path}; there are {list(self)}.")

    def _all(self) -> Mapping[str, Any]:
        self._connection.check_open()
        if self._known is None:
            answer = self._connection.json("GET", f"{self._path}/attributes", IncludeData=1)
            self._known = {one["name"]: one for one in answer["attributes"]}
        return self._known


def attribute_value(record: Json) -> Any:
    """Return the value of an attribute's HDF5/JSON: of a scalar one a `str` or a numpy scalar.

    Text of a fixed length is `str`, too, or bytes where it is no UTF-8.
    """
    array = Hdf5Type.parse(record["type"]).attribute(record)
    if array is None:
        return None
    if array.dtype.kind == "S":
        with suppress(UnicodeDecodeError):
            array = object_array([one.decode() for one in array.flat]).reshape(array.shape)
    return array[()] if not array.shape else array


def attribute_bodies(attributes: Mapping[str, Any] | None) -> Json:
    """Return the member of the body of a creation that has attributes, nothing without any."""
    if not attributes:
        return {}
    return {"attributes": {name: attribute_body(value) for name, value in attributes.items()}}


def _body(record: Json) -> Json:
    body: Json = {name: record[name] for name in ("type", "value", "encoding") if name in record}
    kind = record["shape"]["class"]
    if kind == "H5S_NULL":
        return {"type": record["type"], "shape": kind}
    return body if kind == "H5S_SCALAR" else body | {"shape": record["shape"]["dims"]}
