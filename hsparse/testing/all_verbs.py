"""All verbs of programs, by name."""

from __future__ import annotations

from hsparse.testing import attribute_verb, dataset_verb, link_verb
from hsparse.testing.program_verb import CHANGES, VERBS

MODULES = (attribute_verb, dataset_verb, link_verb)
"""The modules that register verbs."""

__all__ = ["CHANGES", "MODULES", "VERBS"]
