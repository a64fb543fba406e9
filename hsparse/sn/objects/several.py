"""Bodies about several objects at once: what is to be set, or which names are asked for, by object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hsparse.errors import BadRequest
from hsparse.sn.context import Context
from hsparse.sn.json_body import text_list
from hsparse.sn.objects.object_path import check_member
from hsparse.sn.objects.objects import requested_id
from hsparse.wire.message import Record


@dataclass(frozen=True, slots=True)
class Several:
    """The keys of such bodies: of the ids, of what is set, and of the names asked for."""

    ids: str
    items: str
    names: str
    collection: str | None = None

    def bodies(self, context: Context, body: Record) -> dict[str, Any]:
        """Return what is to be set, by id: of the request's object, of all in a list, or of each in a dict."""
        ids, items = body.get(self.ids), body.get(self.items)
        if ids is None:
            return {requested_id(context, self.collection): items}
        if isinstance(ids, list) and ids:
            return {self._check(context, id): items for id in ids}
        if not isinstance(ids, dict) or not ids or items is not None:
            raise BadRequest(
                f"{self.ids} must be a list of ids, with {self.items} beside it, or give them for each id."
            )
        return {
            self._check(context, id): one.get(self.items) if isinstance(one, dict) else None
            for id, one in ids.items()
        }

    def wanted(self, context: Context, body: Record) -> dict[str, list[str] | None]:
        """Return the names asked for, by id; None for all."""
        ids, names = body.get(self.ids), text_list(body, self.names)
        if ids is None:
            if names is None:
                raise BadRequest(f"The body must have {self.names} or {self.ids}.")
            return {requested_id(context, self.collection): names}
        if isinstance(ids, list) and ids:
            return {self._check(context, id): names for id in ids}
        if not isinstance(ids, dict) or not ids or names is not None or None in ids.values():
            raise BadRequest(f"{self.ids} must be a list of ids, or have a list of {self.names} for each id.")
        return {self._check(context, id): text_list(ids, id) for id in ids}

    def _check(self, context: Context, id: Any) -> str:
        return check_member(str(id), context.domain, self.collection)


def by_creation(bodies: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return named bodies in the order in which the client created them, as far as they say."""

    def created(item: tuple[str, Any]) -> float:
        time = item[1].get("created") if isinstance(item[1], dict) else None
        return time if isinstance(time, int | float) else 0.0

    return sorted(bodies.items(), key=created)
