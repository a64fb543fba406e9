"""Flags made from the settings, so that a flag, its variable and its help are written once."""

from __future__ import annotations

import argparse
from typing import Any

from hsparse.config import SETTINGS, Settings, load_settings


def add_flags(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add the flags of these settings to a command's parser."""
    for name in names:
        one = SETTINGS[name]
        default = ",".join(one.default) if isinstance(one.default, tuple) else one.default
        shown = "" if default in (None, "", False) else f", default {default}"
        kind: dict[str, Any] = {"metavar": name.rpartition("_")[2].upper(), "default": None}
        if one.annotation is bool:
            kind = {"action": argparse.BooleanOptionalAction, "default": None}
        parser.add_argument(one.flag, help=f"{one.description} [{one.variable}{shown}]", **kind)


def settings_of(args: argparse.Namespace) -> Settings:
    """Return the settings that a command's flags, and the environment behind them, give."""
    return load_settings(**{name: value for name, value in vars(args).items() if name in SETTINGS})
