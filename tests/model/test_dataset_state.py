"""The state machine of a dataset's extent against a model, and what its record remembers for how long."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hsparse.errors import BadRequest, Conflict, HsparseError, Moved
from hsparse.model.dataset_state import (
    MOST_DROPPED,
    MOST_REMEMBERED,
    Extent,
    Record,
    abandon_appends,
    appended_before,
    appended_parts,
    begin_append,
    end_append,
    end_trim,
    extents_of_change,
    generation,
    is_trimmed,
    lowers_of_change,
    part_starts,
    part_with_key,
    set_extent,
)
from tests.support.endurance import repeats

ID = "d-01234567-89abcdef-0123-456789-abcdef"
HOUR = 3600.0
MOST = 5
"""The most elements along the second dimension."""
LEAST = -6
"""The least lower bound of the second dimension, at first."""


def dataset(*extent: int, maxdims: tuple[int, ...] = (0,)) -> Record:
    return {"id": ID, "shape": {"class": "H5S_SIMPLE", "dims": list(extent), "maxdims": list(maxdims)}}


@dataclass
class Part:
    token: str
    count: int
    key: str
    until: float
    below: bool = False
    written: bool = False


@dataclass
class Model:
    """What is visible, what is being appended, and whether something is left to erase."""

    extent: Extent = (4, 3)
    lower: Extent = (0, 0)
    least: int = LEAST
    """The least lower bound of the second dimension."""
    generation: int = 0
    trimmed: bool = False
    dim: int = 0
    parts: list[Part] = field(default_factory=list)
    dropped: set[str] = field(default_factory=set)
    shown: set[str] = field(default_factory=set)
    made: dict[str, tuple[Extent, Extent, Extent, Extent]] = field(default_factory=dict)
    """The changes of the extent, and of the lower bounds, by token."""
    appended: dict[str, tuple[int, int, int, bool]] = field(default_factory=dict)
    """Dimension, first place, count and side of what was appended with a key."""
    reach: tuple[set[int], set[int]] = field(default_factory=lambda: (set(), set()))
    """The places of each dimension that elements may have had since the dataset was at rest."""

    def outside(self, extent: Extent, lower: Extent) -> set[tuple[int, str, int]]:
        """Return the places on the outer side of each bound: of an empty extent all are on both."""
        return {
            one
            for dim, (low, count) in enumerate(zip(lower, extent, strict=True))
            for one in (
                *((dim, "below", at) for at in range(-60, low)),
                *((dim, "above", at) for at in range(low + count, 60)),
            )
        }

    def set_extent(self, after: Extent, token: str, lower: Extent | None = None) -> None:
        lower = self.lower if lower is None else lower
        if token in self.made:
            return
        if min(after) < 0:
            raise BadRequest("beyond the upper bound")
        if lower[1] < self.least:
            raise Conflict("least")
        if after[1] > MOST:
            raise Conflict("limit")
        if (after, lower) == (self.extent, self.lower):
            return
        if self.parts:
            raise Moved("appended")
        outside, before = self.outside(after, lower), self.outside(self.extent, self.lower)
        if before - outside and self.trimmed:
            raise Conflict("trimmed")
        self.made[token] = (self.extent, after, self.lower, lower)
        if outside - before:
            self._trim()
        self.extent, self.lower = after, lower

    def set_least(self, least: int, token: str) -> None:
        if token in self.made:
            return
        down = sum(part.count for part in self.parts if part.below and self.dim == 1)
        if least > self.lower[1] - down:
            raise Conflict("above the bound")
        if least != self.least:
            self.made[token] = (self.extent, self.extent, self.lower, self.lower)
        self.least = least

    def end_trim(self, of_generation: int) -> None:
        if self.trimmed and of_generation == self.generation:
            self.trimmed = False
            self.generation += 1

    def begin(self, part: Part, slab: Extent, dim: int) -> None:
        if part.token in self.dropped:
            raise Moved("dropped")
        for known in self.parts:
            if known.token == part.token:
                known.until = part.until
                return
        if part.key and (part.key in self.appended or any(one.key == part.key for one in self.parts)):
            raise Moved("key")
        if self.trimmed or slab[1 - dim] != self.extent[1 - dim] or (self.parts and dim != self.dim):
            raise Moved("another extent")
        end = self.extent[dim] + sum(one.count for one in self.parts) + part.count
        down = sum(one.count for one in (*self.parts, part) if one.below)
        if dim == 1 and (end > MOST or self.lower[1] - down < self.least):
            raise Conflict("limit")
        self.dim = dim
        self.parts.append(part)

    def end(self, token: str) -> None:
        if token in self.dropped:
            raise Moved("dropped")
        for part in self.parts:
            part.written |= part.token == token
        for below in (False, True):
            while side := [part for part in self.parts if part.below == below]:
                part = side[0]
                if not part.written:
                    break
                self.parts.remove(part)
                self.shown.add(part.token)
                low, count = self.lower[self.dim], self.extent[self.dim]
                start = low - part.count if below else low + count
                if part.key:
                    self.appended[part.key] = (self.dim, start, part.count, below)
                self.extent = self._with(self.extent, count + part.count)
                self.lower = self._with(self.lower, min(low, start))

    def _with(self, values: Extent, value: int) -> Extent:
        return (value, values[1]) if self.dim == 0 else (values[0], value)

    def abandon(self, chosen: Callable[[Part], bool]) -> None:
        if any(map(chosen, self.parts)):
            self.dropped |= {part.token for part in self.parts}
            self.parts = []
            self._trim()

    def _trim(self) -> None:
        self.trimmed = True
        self.generation += 1


LENGTHS = st.integers(0, 6)
TOKENS = st.integers(0, 5).map("t{}".format)
KEYS = st.sampled_from(["", "k1", "k2"])
DIMS = st.sampled_from([0, 0, 0, 1])


class DatasetState(RuleBasedStateMachine):
    """Changes in any order, each sent once or more, by service nodes that know an old extent."""

    signed = False

    def __init__(self) -> None:
        super().__init__()
        self.record = dataset(4, 3, maxdims=(0, MOST))
        if self.signed:
            self.record["shape"] |= {"lower": [0, 0], "minlower": ["H5S_UNLIMITED", LEAST]}
        self.model = Model()
        self.now = 1e9
        self.extents: dict[str, Extent] = {}
        self.slabs: dict[str, tuple[Extent, int, str, bool]] = {}

    def both(self, change: Callable[[Record], Record], expected: Callable[[], None]) -> None:
        """Apply a transition to the record and to the model: the same error, or a new state of both."""
        before, known = self.record, copy.deepcopy(self.record)
        error: type[HsparseError] | None = None
        try:
            expected()
        except HsparseError as refused:
            error = type(refused)
        if error is None:
            self.record = change(before)
        else:
            with pytest.raises(error):
                change(before)
        assert before == known, "a transition has modified the record that it was given"

    @rule(dims=st.tuples(LENGTHS, LENGTHS), token=TOKENS)
    def set(self, dims: Extent, token: str) -> None:
        dims = self.extents.setdefault(token, dims)
        self.both(
            lambda record: set_extent(record, dims, token=token), lambda: self.model.set_extent(dims, token)
        )

    @rule(count=st.integers(0, 3), dim=DIMS, token=TOKENS.map("x{}".format))
    def extend(self, count: int, dim: int, token: str) -> None:
        lengths = list(self.model.extent)
        lengths[dim] += count
        after = (lengths[0], lengths[1])
        self.both(
            lambda record: set_extent(record, (count,), dim, token=token),
            lambda: self.model.set_extent(after, token),
        )

    @rule(
        lower=st.tuples(st.integers(-8, 6), st.integers(-8, 6)),
        dims=st.sampled_from([(), (3, 2), (5, 4)]),
        token=TOKENS.map("l{}".format),
    )
    def move(self, lower: Extent, dims: Extent, token: str) -> None:
        if not self.signed:
            return
        after = dims or tuple(
            low + count - place
            for low, count, place in zip(self.model.lower, self.model.extent, lower, strict=True)
        )
        self.both(
            lambda record: set_extent(record, dims, lower=lower, token=token),
            lambda: self.model.set_extent(after, token, lower),
        )

    @rule(count=st.integers(0, 3), dim=DIMS, token=TOKENS.map("d{}".format))
    def extend_down(self, count: int, dim: int, token: str) -> None:
        if not self.signed:
            return
        lengths, lower = list(self.model.extent), list(self.model.lower)
        lengths[dim] += count
        lower[dim] -= count
        self.both(
            lambda record: set_extent(record, (count,), dim, token=token, below=True),
            lambda: self.model.set_extent((lengths[0], lengths[1]), token, (lower[0], lower[1])),
        )

    @rule(least=st.integers(-9, 3), token=TOKENS.map("m{}".format))
    def limit(self, least: int, token: str) -> None:
        if not self.signed:
            return
        self.both(
            lambda record: set_extent(record, (), token=token, minlower=("H5S_UNLIMITED", least)),
            lambda: self.model.set_least(least, token),
        )

    @rule(behind=st.sampled_from([0, 0, 0, 1, 2]))
    def erased(self, behind: int) -> None:
        of_generation = self.model.generation - behind
        self.both(lambda record: end_trim(record, of_generation), lambda: self.model.end_trim(of_generation))

    @rule(
        token=TOKENS,
        count=st.integers(1, 3),
        longer=st.booleans(),
        dim=DIMS,
        key=KEYS,
        lease=st.sampled_from([0, 2, 20]),
        below=st.booleans(),
    )
    def begin(
        self, token: str, count: int, longer: bool, dim: int, key: str, lease: int, below: bool
    ) -> None:
        if token in self.model.shown:
            token = f"{token}x{len(self.model.shown)}"  # who was answered does not begin again
        other = self.model.extent[1 - dim] + (longer and count == 1)
        slab = (count, other) if dim == 0 else (other, count)
        slab, dim, key, below = self.slabs.setdefault(token, (slab, dim, key, below and self.signed))
        part = Part(token, slab[dim], key, self.now + lease, below)
        keys = ((key, 0, slab[dim]),) if key else ()
        self.both(
            lambda record: begin_append(record, token, slab, dim, lease, self.now, keys, below=below),
            lambda: self.model.begin(part, slab, dim),
        )

    @rule()
    def end_first(self) -> None:
        for part in self.model.parts[:1]:
            self.end(part.token)

    @rule(token=TOKENS)
    def end(self, token: str) -> None:
        self.both(lambda record: end_append(record, token, self.now), lambda: self.model.end(token))

    @rule(token=TOKENS)
    def abandon(self, token: str) -> None:
        self.both(
            lambda record: abandon_appends(record, self.now, token),
            lambda: self.model.abandon(lambda part: part.token == token),
        )

    @rule(expired=st.sampled_from([True, True, True, False]))
    def abandon_any(self, expired: bool) -> None:
        self.both(
            lambda record: abandon_appends(record, self.now, expired=expired),
            lambda: self.model.abandon(
                lambda part: not expired or (part.until < self.now and not part.written)
            ),
        )

    @rule(seconds=st.sampled_from([1, 5]))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @invariant()
    def same(self) -> None:
        record, model = self.record, self.model
        assert tuple(record["shape"]["dims"]) == model.extent
        assert tuple(record["shape"].get("lower", (0, 0))) == model.lower
        assert (is_trimmed(record), generation(record)) == (model.trimmed, model.generation)
        assert not (is_trimmed(record) and appended_parts(record)), "two states at once"
        parts = [(one["token"], one["count"], one["done"]) for one in appended_parts(record)]
        assert parts == [(one.token, one.count, one.written) for one in model.parts]
        starts, low = part_starts(record), model.lower[model.dim]
        end = low + model.extent[model.dim]
        for part in model.parts:
            low -= part.count * part.below
            assert starts.pop(part.token) == (low if part.below else end)
            end += part.count * (not part.below)
        assert not starts

    @invariant()
    def what_is_to_be_erased_is_within_bounds(self) -> None:
        record, model = self.record, self.model
        for dim, reach in enumerate(model.reach):
            low, high = model.lower[dim], model.lower[dim] + model.extent[dim]
            if dim == model.dim:
                low -= sum(part.count for part in model.parts if part.below)
                high += sum(part.count for part in model.parts if not part.below)
            if not model.trimmed:
                reach.clear()
            reach.update(range(low, high))
            assert not model.trimmed or reach <= set(range(*record["trim"][dim]))
            assert not model.trimmed or {*map(type, record["trim"])} == {list}  # as JSON has it

    @invariant()
    def what_was_made_is_remembered(self) -> None:
        for token, extents in list(self.model.made.items())[-MOST_REMEMBERED:]:
            assert extents_of_change(self.record, token) == extents[:2]
            assert lowers_of_change(self.record, token) == (extents[2:] if self.signed else ((), ()))
        for key in ("k1", "k2"):
            found = appended_before(self.record, key)
            known = found and (found["dim"], found["start"], found["count"], "side" in found)
            assert known == self.model.appended.get(key)
            being = [one for one in self.model.parts if one.key == key]
            part = part_with_key(self.record, key)
            sides = [{"side": "lower"} if one.below else {} for one in being]
            expected = [{"token": one.token, "count": one.count} for one in being]
            assert [part] == [one | side for one, side in zip(expected, sides, strict=True)] or not (
                part or being
            )


class SignedDatasetState(DatasetState):
    """The same of a dataset that grows and shrinks at both ends."""

    signed = True


TestDatasetState = DatasetState.TestCase
TestSignedDatasetState = SignedDatasetState.TestCase
TestDatasetState.settings = settings(max_examples=repeats(200, short=60), stateful_step_count=50)
TestSignedDatasetState.settings = settings(max_examples=repeats(400, short=40), stateful_step_count=50)


def test_the_last_changes_of_the_extent_are_remembered() -> None:
    record = dataset(0)
    for number in range(MOST_REMEMBERED + 2):
        record = set_extent(record, (1,), 0, token=f"t{number}")
    assert extents_of_change(record, "t1") is None
    assert extents_of_change(record, "t2") == ((2,), (3,))
    assert set_extent(record, (1,), 0, token="t2") is record
    assert "extents" not in set_extent(dataset(0), (1,), 0)


@pytest.mark.parametrize("behind", [-HOUR, HOUR])
def test_a_dropped_append_is_not_taken_for_a_visible_one_by_another_clock(behind: float) -> None:
    """Servers change the record in turn, and their times differ."""
    now = 1e9
    record = abandon_appends(begin_append(dataset(4), "a", (2,), 0, 10.0, now), now - behind)
    record = end_trim(record, 1)
    for number in range(3):
        record = end_append(begin_append(record, f"b{number}", (1,), 0, 10.0, now), f"b{number}", now)
    with pytest.raises(Moved):
        end_append(record, "a", now)
    assert record["shape"]["dims"] == [7]
    assert MOST_DROPPED > 100


def test_a_slab_that_begins_elsewhere_beside_its_dimension_is_refused() -> None:
    record = dataset(4, 3, maxdims=(0, 0))
    record["shape"] |= {"lower": [-2, 1], "minlower": ["H5S_UNLIMITED"] * 2}
    with pytest.raises(Moved):
        begin_append(record, "a", (1, 3), 0, 10.0, 1e9, lower=(0, 0))
    assert appended_parts(begin_append(record, "a", (1, 3), 0, 10.0, 1e9, lower=(0, 1)))
