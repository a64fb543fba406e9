"""A program run over two libraries side by side, each step's outcomes compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.programs.all_verbs import CHANGES, VERBS
from tests.support.programs.program import Program, Session, Step
from tests.support.programs.verb import Failure, attempt


@dataclass(frozen=True)
class Side:
    """A library, and how it opens the program's file in a mode."""

    library: Any
    open: Callable[[str], Any]


@dataclass(frozen=True)
class Difference:
    """Where two outcomes of a step differ: the way to it inside the outcome, and what either has there."""

    step: Step
    trail: tuple[Any, ...]
    expected: Any
    found: Any

    def __str__(self) -> str:
        way = "".join(f"[{part!r}]" for part in self.trail)
        return f"{self.step}\n  at {way or 'all'}\n  expected {self.expected!r}\n  found    {self.found!r}"


@dataclass(frozen=True)
class Known:
    """A difference that has a name: whose limit it is, and why. After one that `ends`, the files differ."""

    name: str
    whose: str
    why: str
    applies: Callable[[Difference], bool]
    ends: bool = False


@dataclass
class Verdict:
    """What came of a program: how many steps were compared, the known differences met, and what has no name."""

    steps: int = 0
    met: list[Known] = field(default_factory=list)
    unnamed: list[Difference] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Whether a difference, known or not, ended the program early."""
        return bool(self.unnamed) or any(known.ends for known in self.met)


def run_program(program: Program, model: Side, subject: Side, table: Sequence[Known]) -> Verdict:
    """Run a program over both sides until its end, or until the two files differ."""
    verdict = Verdict()
    for session in program.sessions:
        _run_session(session, model, subject, table, verdict)
        if verdict.ended:
            break
    return verdict


def _run_session(
    session: Session, model: Side, subject: Side, table: Sequence[Known], verdict: Verdict
) -> None:
    files = [(side.library, side.open(session.mode)) for side in (model, subject)]
    try:
        for step in session.steps:
            expected, found = (_outcome(step, session, *of) for of in files)
            _judge(step, expected, found, table, verdict)
            if verdict.ended:
                return
    finally:
        expected, found = (attempt(file.close) for _, file in files)
    _judge(Step("close", {}), expected, found, table, verdict)


def _outcome(step: Step, session: Session, library: Any, file: Any) -> Any:
    def call() -> Any:
        outcome = VERBS[step.verb](library, file, **step.arguments)
        if session.eager and step.verb in CHANGES:
            file.flush()
        return outcome

    return attempt(call)


def _judge(step: Step, expected: Any, found: Any, table: Sequence[Known], verdict: Verdict) -> None:
    verdict.steps += 1
    for trail, one, other in differences(expected, found):
        difference = Difference(step, trail, one, other)
        known = next((row for row in table if row.applies(difference)), None)
        if known is None:
            verdict.unnamed.append(difference)
        else:
            verdict.met.append(known)


def differences(expected: Any, found: Any, trail: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where two outcomes differ, as deep inside as it can be told: (trail, expected, found)."""
    if isinstance(expected, dict) and isinstance(found, dict) and list(expected) == list(found):
        for key in expected:
            yield from differences(expected[key], found[key], (*trail, key))
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for place, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from differences(one, other, (*trail, place))
    elif type(expected) is not type(found) or expected != found:
        yield trail, expected, found


def refused(outcome: Any, *texts: str) -> bool:
    """Whether an outcome is an error that says one of some texts, or any error."""
    return isinstance(outcome, Failure) and (not texts or any(text in outcome.text for text in texts))
