"""Export of OpenTelemetry spans, if the environment asks for it."""

from hsparse.extension import Extension
from hsparse.optional_module import OptionalModule

EXTENSION = Extension(tracer=OptionalModule("hsparse.telemetry.open_telemetry"))
