"""Creations and attributes that wait to be sent together, see `Group.batch`."""

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
"""Of values in base64 that wait: then all is sent."""


class Batch:
    """What the thread that made it creates in a domain: ids are chosen here, so that it can be used.

    All is sent before the next request that is not one of these, by whichever thread.
    """

    def __init__(self, request: Callable[..., Json], member: str) -> None:
        """`request` is the `json` of a connection, `member` the id of any object of the domain."""
        self._request = request
        self._member = member
        self._thread = threading.get_ident()
        self._lock = threading.RLock()
        self._forget()

    @property
    def is_of_this_thread(self) -> bool:
        return self._thread == threading.get_ident()

    def create(self, collection: str, body: Json, path: str) -> Json:
        """Keep a creation and return the record of the object, which has the server's answer once it is sent.

        `path` is from the root. `AlreadyExists` if it has an object that waits.
        """
        with self._lock:
            if path in self._ids:
                raise AlreadyExists(f"There is an object at {path} already.")
            id = new_id(collection, self._member, SystemClock())
            self._bodies[id] = body | {"id": id} | self._place(path)
            self._ids[path] = id
            self._nbytes += len(body.get("value_base64", ""))
            self._records[id] = record = {"id": id} | _described(body)
            if len(self._bodies) >= MOST_OBJECTS or self._nbytes >= MOST_BYTES:
                self.send()
            return record

    def put_attributes(self, id: str, attributes: Mapping[str, Json]) -> None:
        """Keep attributes of an object, which may wait itself."""
        with self._lock:
            body = self._bodies.get(id)
            waiting = (
                self._attributes.setdefault(id, {}) if body is None else body.setdefault("attributes", {})
            )
            waiting.update(attributes)

    def send(self) -> None:
        """Send what waits; each request is done wholly or not at all, and none after one that fails."""
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
        """Forget what waits."""
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        self._bodies: dict[str, Json] = {}
        self._records: dict[str, Json] = {}
        self._ids: dict[str, str] = {}
        self._attributes: dict[str, dict[str, Json]] = {}
        self._nbytes = 0

    def _place(self, path: str) -> Json:
        """Return where an object is linked: from the nearest group above that waits, else from the root."""
        above, names = path, list[str]()
        while above:
            above, _, name = above.rpartition("/")
            names.insert(0, name)
            if above in self._ids:
                return {"parent_id": self._ids[above], "h5path": "/".join(names)}
        return {"h5path": path}


def _described(body: Json) -> Json:
    """Return what a record has of the body of a creation, until the server has answered."""
    if "type" not in body:
        return {}
    record = {name: body[name] for name in ("type", "creationProperties") if name in body}
    if "shape" not in body:
        return record | {"shape": {"class": "H5S_SCALAR"}}
    limits = {name: body[name] for name in ("maxdims", "lower", "minlower") if name in body}
    return record | {"shape": {"class": "H5S_SIMPLE", "dims": body["shape"]} | limits}
