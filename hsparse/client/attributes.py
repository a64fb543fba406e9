"""The attributes of an object as a mapping from names to numpy's values, as h5py has them.

Tests: tests/client/test_group.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from hsparse.client.connection import Connection, Json
from hsparse.client.errors import MissingKey
from hsparse.client.types.hdf5_type import Hdf5Type, attribute_body, shape_of

SEPARATOR = "\0"
"""Between names in a list of them: no name has it."""


class Attributes(MutableMapping[str, Any]):
    """Attributes of the object at `path` (`/groups/g-...`), asked for once, when the first is needed.

    A value is a `str`, a numpy scalar or an array, None for a null dataspace. A change is durable when the method
    returns.
    """

    def __init__(self, connection: Connection, path: str, known: Json | None = None) -> None:
        """`known` are the object's attributes as the server listed them with it."""
        self._connection = connection
        self._path = path
        self._known = known

    def __getitem__(self, name: str) -> Any:
        try:
            return attribute_value(self._all()[name])
        except KeyError:
            raise self._missing(name) from None

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise self._missing(name)
        # In a list of names: a name in the URL's path could not have a slash.
        self._connection.json("DELETE", f"{self._path}/attributes", attr_names=name, separator=SEPARATOR)
        self._known = None

    def update(self, other: Any = (), /, **more: Any) -> None:
        """Set several attributes by one request."""
        bodies = {name: attribute_body(value) for name, value in dict(other, **more).items()}
        if bodies:
            self._connection.json("PUT", f"{self._path}/attributes", {"attributes": bodies}, replace=1)
            self._known = None

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return f"<Attributes {dict(self)!r}>"

    def refresh(self) -> None:
        """Forget what is known: others may have changed it."""
        self._known = None

    def _missing(self, name: str) -> MissingKey:
        return MissingKey(f"There is no attribute {name!r} at {self._path}; there are {list(self)}.")

    def _all(self) -> Mapping[str, Any]:
        if self._known is None:
            answer = self._connection.json("GET", f"{self._path}/attributes", IncludeData=1)
            self._known = {one["name"]: one for one in answer["attributes"]}
        return self._known


def attribute_value(record: Json) -> Any:
    """Return the value of an attribute's HDF5/JSON: of a scalar one a `str` or a numpy scalar."""
    shape = shape_of(record["shape"])
    if shape is None:
        return None
    array = Hdf5Type.parse(record["type"]).from_json(record["value"], shape)
    if array.dtype.kind == "S":
        array = array.astype("O")
        for place, one in enumerate(array.flat):
            array.flat[place] = one.decode(errors="surrogateescape")
    return array[()] if not shape else array
