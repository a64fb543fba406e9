"""An extension of a server: a route, a policy, a setting and a command, in modules imported when they are used.

A package that has this names it in its `pyproject.toml`:

    [project.entry-points."hsparse.extensions"]
    greeting = "greeting:EXTENSION"
"""

from hsparse.api import Command, Extension, OptionalModule

GREET = Command("greeting.command", help="say hello")
EXTENSION = Extension(
    {"greet": GREET},
    service=OptionalModule("greeting.service"),
    settings=OptionalModule("greeting.settings"),
)
