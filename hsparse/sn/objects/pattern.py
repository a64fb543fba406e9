"""Patterns of names in listings: `*`, `?` and `[a-z]`."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate

from hsparse.errors import BadRequest

MAX_PATTERN = 256


def matcher(pattern: str | None) -> Callable[[str], bool]:
    """Return what says whether a name matches; everything does without a pattern."""
    if not pattern:
        return lambda name: True
    if len(pattern) > MAX_PATTERN:
        raise BadRequest(f"The pattern has {len(pattern)} characters; the limit is {MAX_PATTERN}.")
    if pattern.count("[") != pattern.count("]"):
        raise BadRequest(f"The pattern {pattern!r} has a bracket without its partner.")
    try:
        compiled = re.compile(translate(pattern))
    except re.error as error:
        raise BadRequest(f"The pattern {pattern!r} is not valid: {error}.") from error
    return lambda name: compiled.match(name) is not None
