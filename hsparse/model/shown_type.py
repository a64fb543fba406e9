"""Types as answers show them: what clients of either dialect look for is in."""

from __future__ import annotations

from typing import Any


def shown_type(item: Any) -> Any:
    """Return a type's JSON with an enum's names both as `mapping` (0.9: an object, which H5Web needs) and as
    `members` (1.0: a list), at any depth; the same object when it holds no enum."""
    if not isinstance(item, dict):
        return item
    shown = item
    if item.get("class") == "H5T_ENUM":
        shown = item | _names(item.get("mapping", item.get("members")))
    if (base := item.get("base")) is not None and (inner := shown_type(base)) is not base:
        shown = shown | {"base": inner}
    if isinstance(fields := item.get("fields"), list):
        types = [shown_type(field["type"]) for field in fields]
        if any(one is not field["type"] for one, field in zip(types, fields, strict=True)):
            pairs = zip(types, fields, strict=True)
            shown = shown | {"fields": [field | {"type": one} for one, field in pairs]}
    return shown


def _names(names: Any) -> dict[str, Any]:
    if isinstance(names, list):
        names = {member["name"]: member["value"] for member in names}
    return {"mapping": names, "members": [{"name": name, "value": value} for name, value in names.items()]}
