from __future__ import annotations

import socket

import pytest

from hsparse.storage.wal.wal_process import send_replies


@pytest.mark.parametrize("unread", [True, False])
def test_a_reply_to_one_that_was_killed(unread: bool) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        if unread:
            ours.send(b"a reply that was never read")
        theirs.close()
        assert not send_replies(ours, iter([b"another"]))
