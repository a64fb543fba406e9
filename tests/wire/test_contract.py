"""The contract: what each version has does not change, a newer node reads it, and says nothing else to an older one."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Outdated
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.selections.selection import Orthogonal, Points, Span
from hsparse.model.vlen_array import VlenArray
from hsparse.wire.chunk_message import EraseChunks, ReadChunks, WriteChunks
from hsparse.wire.codec import decode_frame, encode_frame
from hsparse.wire.contract import CONTRACT, NEWER, OLDEST, VERSION, Contract, Since
from hsparse.wire.membership_message import AdoptMembership, CheckMember, Routed
from hsparse.wire.message import Failure, InBucket, NodeInfo
from hsparse.wire.record_message import (
    ChangeObjects,
    CreateObject,
    DeleteLinks,
    ListKeys,
    Outcome,
    PutAttributes,
    ReadObjects,
    SetExtent,
)
from tests.support import newer_contract
from tests.support.newer_contract import NEXT, NEXT_CONTRACT, as_next

VERSIONS = Path(__file__).parent.parent / "data" / "messages"
"""A file for each version, `VERSION.json`: the fields of each kind with their types, as they were released."""
SPEC = ChunkSpec("d-1", {"class": "H5T_FLOAT", "base": "H5T_IEEE_F64LE"}, (4, 5), True, b"", ((), ()))


def contract_in(contract: Contract, version: int) -> dict[str, dict[str, str]]:
    """Return the kinds of a version, and of each the fields with their types."""
    types = {
        name: {field.name: str(field.type) for field in dataclasses.fields(kind)}
        for name, kind in contract.kinds.items()
    }
    return {
        name: {field: types[name][field] for field in contract.fields_in(name, version)}
        for name in sorted(contract.kinds)
        if contract.has_in(name, version)
    }


@pytest.mark.parametrize("version", range(OLDEST, VERSION + 1))
def test_a_version_stays_as_it_was_released(version: int) -> None:
    path = VERSIONS / f"{version}.json"
    released = json.loads(path.read_text()) if path.exists() else None
    assert released == contract_in(CONTRACT, version), (
        "A kind or a field that is new needs a line in `NEWER`; one that was released must not change. While version "
        f"{version} is in no release, write what it has to {path}, by `python -m tests.wire.test_contract`."
    )


def test_the_newest_version_has_all_that_is_new() -> None:
    assert max([1, *(since.version for since in NEWER.values())]) == VERSION
    for contract, newer in ((CONTRACT, NEWER), (NEXT_CONTRACT, {"ReadObjects.purpose": Since(NEXT)})):
        for name in newer:
            kind, _, field = name.partition(".")
            defaults = {one.name: one for one in dataclasses.fields(contract.kinds[kind])}
            if field:
                one = defaults[field]
                missing = one.default is one.default_factory is dataclasses.MISSING
                assert not missing, f"{name} has no default, which is what older versions mean"


# --- what versions say to each other ----------------------------------------------------------------------

TEXTS = st.sampled_from(["", "a", "b", "\u00e9", "d-1", "/home/x.h5"])
IDS = st.lists(TEXTS, max_size=3).map(tuple)
RECORDS = st.dictionaries(TEXTS, st.integers(0, 9) | TEXTS | st.lists(TEXTS, max_size=2), max_size=3)
ARRAYS = st.sampled_from(
    [np.arange(3), np.zeros((2, 0), "f4"), np.array([b"a", b"bc"]), VlenArray.of([b"a", b""])]
)
SELECTIONS = st.sampled_from(
    [
        ChunkSelection((0, 1), Orthogonal((4, 5), (Span(0, 2, 1, 1), np.array([3], np.uint64))), True),
        ChunkSelection((1, 0), Points((4, 5), np.array([[1, 2]], np.uint64), (1,)), False),
    ]
)
CHANGES = st.one_of(
    st.builds(CreateObject, TEXTS, RECORDS),
    st.builds(PutAttributes, TEXTS, st.dictionaries(TEXTS, RECORDS, max_size=2), st.booleans()),
    st.builds(DeleteLinks, TEXTS, IDS, st.booleans()),
    st.builds(SetExtent, TEXTS, st.just((1, 2)), st.integers(-1, 3), st.none() | st.just((3,)), TEXTS),
)
MESSAGES = st.one_of(
    st.builds(ReadObjects, IDS),
    st.builds(ChangeObjects, st.lists(CHANGES, max_size=3).map(tuple), st.booleans()),
    st.builds(WriteChunks, st.just(SPEC), st.tuples(SELECTIONS), st.tuples(ARRAYS), st.booleans(), IDS),
    st.builds(ReadChunks, st.just(SPEC), st.tuples(SELECTIONS, SELECTIONS), IDS, st.integers(0, 2**40)),
    st.builds(EraseChunks, st.just(SPEC), st.tuples(SELECTIONS)),
    st.builds(ListKeys, TEXTS, st.booleans()),
    st.builds(AdoptMembership, TEXTS, st.integers(0, 9)),
    st.builds(CheckMember, st.integers(0, 9), TEXTS),
)
SENT = st.one_of(
    MESSAGES,
    st.builds(Routed, TEXTS, st.integers(0, 9), MESSAGES | st.builds(InBucket, TEXTS, MESSAGES), TEXTS),
    st.lists(
        st.builds(Outcome, st.none() | RECORDS, st.booleans(), failure=st.none() | st.builds(Failure, TEXTS)),
        max_size=3,
    ).map(tuple),
    st.builds(NodeInfo, TEXTS, TEXTS, st.floats(0, 1), TEXTS, st.dictionaries(TEXTS, st.integers(0, 9))),
)


def frame(value: object, version: int, contract: Contract) -> bytes:
    return b"".join(bytes(piece) for piece in encode_frame(value, version, contract))


def plain(value: Any) -> Any:
    """Return a value for comparison, without the classes."""
    if isinstance(value, VlenArray):
        return [bytes(one) for one in value]
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        return (value.shape, value.tobytes())
    return list(map(plain, value)) if isinstance(value, tuple | list) else value


@given(SENT)
def test_a_newer_node_reads_what_an_older_one_says(value: Any) -> None:
    read = decode_frame(frame(value, VERSION, CONTRACT), NEXT_CONTRACT)
    assert frame(read, VERSION, NEXT_CONTRACT) == frame(value, VERSION, CONTRACT)
    if isinstance(value, ReadObjects):
        assert (type(read), read.ids, read.purpose) == (newer_contract.ReadObjects, value.ids, "")


@given(SENT)
def test_a_newer_node_says_to_an_older_one_what_that_would_say_itself(value: Any) -> None:
    told = frame(as_next(value), VERSION, NEXT_CONTRACT)
    assert told == frame(value, VERSION, CONTRACT)
    assert plain(decode_frame(told)) == plain(value)


@given(SENT)
def test_newer_nodes_say_to_each_other_what_is_new(value: Any) -> None:
    assert plain(decode_frame(frame(as_next(value), NEXT, NEXT_CONTRACT), NEXT_CONTRACT)) == plain(
        as_next(value)
    )


@pytest.mark.parametrize(
    "message",
    [newer_contract.CountObjects("g-1"), newer_contract.EraseChunks(SPEC, (), unless="it is read")],
    ids=lambda message: type(message).__name__,
)
def test_what_has_no_older_form_is_not_sent(message: Any) -> None:
    """The error names both versions and the remedy, at any depth."""
    for sent in (message, InBucket("b", message), Routed("a", 1, InBucket("b", message))):
        with pytest.raises(Outdated, match=rf"since version {NEXT} .* version {VERSION}: finish the upgrade"):
            encode_frame(sent, VERSION, NEXT_CONTRACT)
        assert plain(decode_frame(frame(sent, NEXT, NEXT_CONTRACT), NEXT_CONTRACT)) == plain(sent)


def test_a_field_without_an_older_form_may_have_its_default() -> None:
    sent = newer_contract.EraseChunks(SPEC, ())
    assert plain(decode_frame(frame(sent, VERSION, NEXT_CONTRACT))) == plain(EraseChunks(SPEC, ()))


def test_an_older_form_may_have_one_itself() -> None:
    """Each version says only how the one before it puts what is new."""

    @dataclasses.dataclass(frozen=True, slots=True)
    class ReadLater:
        ids: tuple[str, ...]

    later = Contract(
        NEXT + 1,
        [*NEXT_CONTRACT.kinds.values(), ReadLater],
        {
            "ReadLater": Since(NEXT + 1, lambda message: newer_contract.ReadObjects(message.ids, "later")),
            "ReadObjects.purpose": Since(NEXT, lambda message: dataclasses.replace(message, purpose="")),
        },
    )
    message = ReadLater(("a",))
    assert decode_frame(frame(message, NEXT, later), NEXT_CONTRACT) == newer_contract.ReadObjects(
        ("a",), "later"
    )
    assert decode_frame(frame(message, VERSION, later)) == ReadObjects(("a",))


def test_nodes_speak_the_newest_version_that_both_understand() -> None:
    node = Contract(5, (), {}, oldest=3)
    assert [node.spoken_with(version, "dn") for version in (3, 4, 5, 6)] == [3, 4, 5, 5]
    with pytest.raises(Outdated, match=r"dn speaks version 2 .* this node 3 to 5"):
        node.spoken_with(2, "dn")
    for version in (2, 6):
        with pytest.raises(Outdated, match=f"version {version} .* this node 3 to 5: finish the upgrade"):
            node.check_spoken(version)


if __name__ == "__main__":
    (VERSIONS / f"{VERSION}.json").write_text(
        json.dumps(contract_in(CONTRACT, VERSION), indent=1, sort_keys=True) + "\n"
    )
