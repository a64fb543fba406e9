"""Batched creation of objects and attributes; see `Group.batch`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from hsparse.client.errors import AlreadyExists
from hsparse.clock import SystemClock
from hsparse.model.ids import COLLECTIONS, new_id

Json: TypeAlias = dict[str, Any]
MOST_OBJECTS = 2000
MOST_BYTES = 8 << 20
"""The batch is sent when its values have this many bytes, encoded in base64."""


class PendingCreations:
    """The objects and attributes of a domain that one thread has created and that are not sent yet.

    The client chooses the ids of objects, so new objects are usable at once. Before any other request, of any thread,
    the batch is sent.
    """

    def __init__(self, request: Callable[..., Json], member: str) -> None:
        """`request` is the method `json` of a connection; `member` is the id of any object of the domain."""
        self._request = request
        self._member = member
        self._thread = threading.get_ident()
        self._lock = threading.RLock()
        self._forget()

    @property
    def is_of_this_thread(self) -> bool:
        return self._thread == threading.get_ident()

    def create(self, collection: str, body: Json, path: str) -> Json:
        """Queue the creation of an object and return the record of the object, which the server's answer updates later.

        `path` is absolute. Raises `AlreadyExists` if the batch already has an object at the path.
        """
        with self._lock:
            if path in self._ids:
                raise AlreadyExists(f"There is an object at {path} already: choose another path.")
            id = new_id(collection, self._member, SystemClock())
            self._bodies[id] = body | {"id": id} | self._place(path)
            self._ids[path] = id
            self._nbytes += len(body.get("value_base64", ""))
            self._records[id] = record = {"id": id} | _described(body)
            if len(self._bodies) >= MOST_OBJECTS or self._nbytes >= MOST_BYTES:
                self.send()
            return record

    def put_attributes(self, id: str, attributes: Mapping[str, Json]) -> None:
        """Queue attributes of an object; the object may exist on the server, or be queued in the batch."""
        with self._lock:
            body = self._bodies.get(id)
            waiting = (
                self._attributes.setdefault(id, {}) if body is None else body.setdefault("attributes", {})
            )
            waiting.update(attributes)

    def send(self) -> None:
        """Send all queued objects and attributes. Each request is atomic; after a failed request no more are sent."""
        with self._lock:
            bodies, records, attributes = self._bodies, self._records, self._attributes
            self._forget()
            for collection in ("groups", "datatypes", "datasets"):
                some = [body for id, body in bodies.items() if COLLECTIONS[id[0]] == collection]
                if some:
                    answer = self._request("POST", f"/{collection}", some, implicit=1, follow_soft_links=1)
                    for made in answer["objects"] if len(some) > 1 else [answer]:
                        records[made["id"]].update(made)
            if attributes:
                body = {"obj_ids": {id: {"attributes": some} for id, some in attributes.items()}}
                first = next(iter(attributes))
                path = f"/{COLLECTIONS[first[0]]}/{first}/attributes"
                self._request("PUT", path, body, replace=1)

    def drop(self) -> None:
        """Discard all queued objects and attributes."""
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        self._bodies: dict[str, Json] = {}
        self._records: dict[str, Json] = {}
        self._ids: dict[str, str] = {}
        self._attributes: dict[str, dict[str, Json]] = {}
        self._nbytes = 0

    def _place(self, path: str) -> Json:
        """Return the members of a creation body that give the path, from an ancestor in the batch or from the root."""
        above, names = path, list[str]()
        while above:
            above, _, name = above.rpartition("/")
            names.insert(0, name)
            if above in self._ids:
                return {"parent_id": self._ids[above], "h5path": "/".join(names)}
        return {"h5path": path}


def _described(body: Json) -> Json:
    """Return the members of an object's record that follow from its creation body; used until the server answers."""
    if "type" not in body:
        return {}
    record = {name: body[name] for name in ("type", "creationProperties") if name in body}
    if "shape" not in body:
        return record | {"shape": {"class": "H5S_SCALAR"}}
    limits = {name: body[name] for name in ("maxdims", "lower", "minlower") if name in body}
    return record | {"shape": {"class": "H5S_SIMPLE", "dims": body["shape"]} | limits}
