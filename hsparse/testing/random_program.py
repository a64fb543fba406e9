"""Random programs: the same one for the same seed."""

from __future__ import annotations

import numpy as np

from hsparse.testing import attribute_step, dataset_step, link_step
from hsparse.testing.program import Program
from hsparse.testing.program_draft import Draft

STEPS = (attribute_step, dataset_step, link_step)
"""The modules that register what is drawn."""


def draw_program(seed: int) -> Program:
    """Return the program of a seed: one session that makes a file, and up to three that open it again."""
    draft = Draft(np.random.default_rng(seed))
    modes = ["w", *draft.some(["a", "r+", "r", "a"], 1, 4)]
    return Program(seed, tuple(draft.reading() if mode == "r" else draft.session(mode) for mode in modes))
