"""Witnesses count for a moment: who was asked, and then cut off, has none."""

from __future__ import annotations

import asyncio

import pytest

from hsparse.dn.membership import peers as module
from hsparse.dn.membership.peers import Witnesses


async def test_who_has_just_asked_is_a_witness_about_that_member_alone() -> None:
    witnesses = Witnesses()
    await witnesses.note("a")
    assert await witnesses.ask_about("a", 0.01)
    assert not await witnesses.ask_about("b", 0.01)


async def test_who_asked_before_has_to_ask_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUESTION_SECONDS", -1.0)
    witnesses = Witnesses()
    await witnesses.note("a")
    assert not await witnesses.ask_about("a", 0.01)
    monkeypatch.undo()
    asking = asyncio.create_task(witnesses.ask_about("a", 20.0))
    await asyncio.sleep(0)
    await witnesses.note("b")
    await witnesses.note("a")
    assert await asking
