"""Spans of OpenTelemetry, where the environment asks for them."""

from hsparse.extension import Extension
from hsparse.optional_module import OptionalModule

EXTENSION = Extension(tracer=OptionalModule("hsparse.telemetry.open_telemetry"))
