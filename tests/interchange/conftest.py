from __future__ import annotations

from tests.clients.conftest import sockets_left

__all__ = ["sockets_left"]
