"""Export of OpenTelemetry spans, if the environment asks for it."""

from hsparse.api import Extension, OptionalModule

EXTENSION = Extension(tracer=OptionalModule("hsparse.telemetry.open_telemetry"))
