"""Flags made from the settings, so that a flag, its variable and its help are written once."""

from __future__ import annotations

import argparse
from typing import Any

from hsparse.config import Settings, load_settings


def add_flags(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add the flags of these settings to a command's parser."""
    for name in names:
        field = Settings.model_fields[name]
        variable = f"HSPARSE_{name.upper()}"
        default = ",".join(field.default) if isinstance(field.default, tuple) else field.default
        shown = "" if default in (None, "", False) or name == "node_token" else f", default {default}"
        kind: dict[str, Any] = {"metavar": name.rpartition("_")[2].upper(), "default": None}
        if field.annotation is bool:
            kind = {"action": argparse.BooleanOptionalAction, "default": None}
        parser.add_argument(
            f"--{name.replace('_', '-')}", help=f"{field.description} [{variable}{shown}]", **kind
        )


def settings_of(args: argparse.Namespace) -> Settings:
    """Return the settings that a command's flags, and the environment behind them, give."""
    return load_settings(
        **{name: value for name, value in vars(args).items() if name in Settings.model_fields}
    )
