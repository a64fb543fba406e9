"""The contract: what its version has does not change."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from hsparse.errors import Outdated
from hsparse.wire.codec import KINDS, MESSAGE_VERSION, check_version

RECORDED = Path(__file__).parent.parent / "data" / "messages.json"
"""The fields of each kind with their types."""


def kinds() -> dict[str, dict[str, str]]:
    return {
        name: {field.name: str(field.type) for field in dataclasses.fields(kind)}
        for name, kind in sorted(KINDS.items())
    }


def test_a_version_stays_as_it_was_recorded() -> None:
    assert kinds() == json.loads(RECORDED.read_text()), (
        f"The messages have changed: raise VERSION, if {MESSAGE_VERSION} is in a release, and record them by "
        "`python -m tests.wire.test_contract`."
    )


def test_another_version_is_refused_with_both_numbers() -> None:
    check_version(MESSAGE_VERSION)
    for other in (MESSAGE_VERSION - 1, MESSAGE_VERSION + 1):
        with pytest.raises(
            Outdated, match=f"version {other} of the messages, this node {MESSAGE_VERSION}: install one"
        ):
            check_version(other)


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(kinds(), indent=1, sort_keys=True) + "\n")
