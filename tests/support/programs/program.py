"""A program of h5py calls as data: steps in sessions.

What a step means is in `program_verb` and the modules of its verbs, how programs are drawn in `random_program`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Step:
    """A call: the verb's name, and what it is called with."""

    verb: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.verb}({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"


@dataclass(frozen=True)
class Session:
    """What is done between opening a file and closing it. With `eager`, each change is flushed."""

    mode: str
    eager: bool
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Program:
    seed: int
    sessions: tuple[Session, ...]

    def __str__(self) -> str:
        lines = [f"program {self.seed}"]
        for session in self.sessions:
            lines += [f"open {session.mode!r}{', flushing' * session.eager}"]
            lines += [f"    {step}" for step in session.steps]
        return "\n".join(lines)
