"""The attributes of an object as a mapping from names to numpy values, as in h5py."""

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
"""The character that separates names in a list of attribute names, because no name contains it."""


class Attributes(MutableMapping[str, Any]):
    """The attributes of the object whose URL is `path` (`/groups/g-...`); the first use fetches and caches them all.

    A value is a `str`, a numpy scalar or an array, or None if the attribute has a null dataspace. A change is durable
    when the method returns.

    >>> X.attrs["unit"] = "counts"
    >>> X.attrs.update(run=7, center=[1.5, 2.5])
    >>> X.attrs["run"], X.attrs["center"], sorted(X.attrs)
    (np.int64(7), array([1.5, 2.5]), ['center', 'run', 'unit'])
    """

    def __init__(self, connection: Connection, path: str, known: Json | None = None) -> None:
        """`known` maps the names of all attributes to HDF5/JSON records, or is None if they must be fetched."""
        self._connection = connection
        self._path = path
        self._known = known

    def __getitem__(self, name: str) -> Any:
        """Return the value of an attribute; if it does not exist, raise a `MissingKey` that lists all names.

        >>> f.attrs["title"]
        Traceback (most recent call last):
        hsparse.client.errors.MissingKey: There is no attribute 'title' at /groups/...; there are [].
        """
        try:
            return attribute_value(self._all()[name])
        except KeyError:
            raise self._missing(name) from None

    def __setitem__(self, name: str, value: ArrayLike | None) -> None:
        """Create or replace an attribute; the value is a text, a number, an array, or a list of texts or numbers.

        >>> f.attrs["axes"] = ["cell", "gene"]
        >>> f.attrs["axes"]
        array(['cell', 'gene'], dtype=object)
        """
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        """Remove an attribute; raise `MissingKey` if the attribute does not exist.

        >>> f.attrs["title"] = "draft"
        >>> del f.attrs["title"]
        >>> "title" in f.attrs
        False
        """
        if name not in self:
            raise self._missing(name)
        self._known = None  # before sending: the delete may succeed though its answer is lost
        # Sent as a list of names, because a name in the URL's path could not contain a slash.
        self._connection.json("DELETE", f"{self._path}/attributes", attr_names=name, separator=SEPARATOR)

    def update(self, other: Any = (), /, **more: Any) -> None:
        """Create or replace several attributes in one request.

        >>> f.attrs.update({"title": "cells"}, run=7)
        >>> dict(f.attrs)
        {'run': np.int64(7), 'title': 'cells'}
        """
        bodies = {name: attribute_body(value) for name, value in dict(other, **more).items()}
        batch, self._known = self._connection.open_batch, None
        if batch is not None:
            batch.put_attributes(self._path.rpartition("/")[2], bodies)
        elif bodies:
            self._connection.json("PUT", f"{self._path}/attributes", {"attributes": bodies}, replace=1)

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return f"<Attributes {dict(self)!r}>"

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def refresh(self) -> None:
        """Drop the cached attributes; the next use fetches them again, with the changes of other clients.

        >>> "run" in f.attrs
        False
        >>> f["/"].attrs["run"] = 7
        >>> f.attrs.refresh()
        >>> "run" in f.attrs
        True
        """
        self._known = None

    def bodies(self) -> Json:
        """Return a dict that maps the name of each attribute to the request body that creates the attribute.

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
    """Return the value in the HDF5/JSON record of an attribute: a `str` or numpy scalar for a scalar, or an array.

    Fixed-length text is decoded to `str` unless it is not valid UTF-8. The value of a null dataspace is None.
    """
    array = Hdf5Type.parse(record["type"]).attribute(record)
    if array is None:
        return None
    if array.dtype.kind == "S":
        with suppress(UnicodeDecodeError):
            array = object_array([one.decode() for one in array.flat]).reshape(array.shape)
    return array[()] if not array.shape else array


def attribute_bodies(attributes: Mapping[str, Any] | None) -> Json:
    """Return a dict with the member `attributes` of a creation body, or an empty dict if there are no attributes."""
    if not attributes:
        return {}
    return {"attributes": {name: attribute_body(value) for name, value in attributes.items()}}


def _body(record: Json) -> Json:
    body: Json = {name: record[name] for name in ("type", "value", "encoding") if name in record}
    kind = record["shape"]["class"]
    if kind == "H5S_NULL":
        return {"type": record["type"], "shape": kind}
    return body if kind == "H5S_SCALAR" else body | {"shape": record["shape"]["dims"]}
