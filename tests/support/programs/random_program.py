"""Random programs: the same one for the same seed."""

from __future__ import annotations

import numpy as np

from tests.support.programs import attribute_steps, dataset_steps, link_steps
from tests.support.programs.draft import Draft
from tests.support.programs.program import Program

STEPS = (attribute_steps, dataset_steps, link_steps)
"""The modules that register what is drawn."""


def draw_program(seed: int) -> Program:
    """Return the program of a seed: one session that makes a file, and up to three that open it again."""
    draft = Draft(np.random.default_rng(seed))
    modes = ["w", *draft.some(["a", "r+", "r", "a"], 1, 4)]
    return Program(seed, tuple(draft.reading() if mode == "r" else draft.session(mode) for mode in modes))
