"""Programs are drawn from their seed alone, and of every verb that is drawn."""

from __future__ import annotations

from tests.support.programs.all_verbs import CHANGES, VERBS
from tests.support.programs.draft import DRAWINGS, REFUSED
from tests.support.programs.random_program import draw_program


def test_the_same_seed_draws_the_same_program() -> None:
    assert str(draw_program(7)) == str(draw_program(7)) != str(draw_program(8))


def test_every_verb_is_drawn_and_known() -> None:
    sessions = [session for seed in range(150) for session in draw_program(seed).sessions]
    assert {step.verb for session in sessions for step in session.steps} == set(DRAWINGS)
    assert set(DRAWINGS) <= set(VERBS)
    for session in sessions:
        assert session.mode != "r" or not {step.verb for step in session.steps} & (CHANGES - REFUSED)
