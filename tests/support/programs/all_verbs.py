"""All verbs of programs, by name."""

from __future__ import annotations

from tests.support.programs import attribute_verbs, dataset_verbs, link_verbs
from tests.support.programs.verb import CHANGES, VERBS

MODULES = (attribute_verbs, dataset_verbs, link_verbs)
"""The modules that register verbs."""

__all__ = ["CHANGES", "MODULES", "VERBS"]
