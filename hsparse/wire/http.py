"""The contract over HTTP: the path and the headers of messages between nodes, and the status of each error kind.

The statuses are those of service nodes for clients too.
"""

from __future__ import annotations

from hsparse.errors import ErrorKind

PATH = "/messages"
VERSION_HEADER = "X-Hsparse-Version"
"""The version of the messages that the sender of one speaks."""
TOKEN_HEADER = "X-Hsparse-Token"  # noqa: S105
"""The secret that the nodes of one installation share."""
REQUEST_HEADER = "X-Hsparse-Request"
"""The id of the client's request that a message is sent for, for the data node's log."""
USER_HEADER = "X-Hsparse-User"
"""Whom the work counts for when users have turns, percent-encoded."""
TIMEOUT_HEADER = "X-Hsparse-Timeout"
"""The seconds that the client's request has left: clocks are not compared."""
FRAME_TYPE = "application/vnd.hsparse.frame"


STATUS: dict[ErrorKind, int] = {
    ErrorKind.BAD_REQUEST: 400,
    ErrorKind.UNAUTHENTICATED: 401,
    ErrorKind.FORBIDDEN: 403,
    ErrorKind.NOT_FOUND: 404,
    ErrorKind.GONE: 410,
    ErrorKind.CONFLICT: 409,
    ErrorKind.TOO_LARGE: 413,
    ErrorKind.BUSY: 503,
    ErrorKind.MOVED: 503,
    ErrorKind.PRECONDITION_FAILED: 412,
    ErrorKind.CORRUPT: 500,
    ErrorKind.STORE_FAILED: 500,
    ErrorKind.MISCONFIGURED: 500,
    ErrorKind.INTERNAL: 500,
    ErrorKind.UNSUPPORTED: 400,
    ErrorKind.RATE_LIMITED: 429,
    ErrorKind.MISDIRECTED: 421,
    ErrorKind.UNANSWERED: 503,
    ErrorKind.OUTDATED: 501,
    ErrorKind.OVER_QUOTA: 413,
}
