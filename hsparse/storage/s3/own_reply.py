"""Checks that a reply comes from the store, and not from a proxy, an ingress or a captive portal on the way.

An error is the store's if its body has one of S3's codes (Amazon S3 API Reference, "Error responses"); for any other
body, botocore reports the HTTP status as the code. A success is the store's if it has the etag or the document with
which S3 answers the operation. A reply in HTML counts only with S3's request id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

REQUEST_IDS = ("x-amz-request-id", "x-amz-id-2", "x-amzn-requestid", "x-guploader-uploadid")
"""Request id headers of S3 and of compatible servers; the last header is Google's. CDNs use other headers."""
OF_OBJECTS = ("GetObject", "HeadObject", "PutObject", "UploadPart")
"""Operations whose replies have the etag of the object or of the part."""
ELEMENTS = {
    "ListObjectsV2": b"ListBucketResult",
    "ListParts": b"<UploadId>",
    "CreateMultipartUpload": b"<UploadId>",
    "CompleteMultipartUpload": b"<ETag>",
}
"""Bytes that the document of an operation's reply contains. botocore's parser detects truncated documents."""
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9.]*")


class ForeignReply(Exception):
    """The reply, with HTTP `status`, is not from the store: the request may or may not have reached the store."""

    def __init__(self, status: int) -> None:
        super().__init__(f"a reply with status {status} that is not the store's")
        self.status = status


def is_own_code(code: str) -> bool:
    """Tell whether an error code looks like S3's codes; botocore sets the numeric status if the reply has no code."""
    return _CODE.fullmatch(code) is not None


def has_request_id(headers: Mapping[str, str]) -> bool:
    """Tell whether the headers of a reply, with names in lower case, contain a request id of S3."""
    return any(headers.get(name) for name in REQUEST_IDS)


def check_reply(operation_model: Any, response_dict: dict[str, Any], **_: Any) -> None:
    """Raise `ForeignReply` for a success reply that is not from the store; botocore calls this before parsing."""
    status, headers, body = response_dict["status_code"], response_dict["headers"], response_dict["body"]
    if status < 300 and not _is_own(operation_model.name, headers, body):
        if not isinstance(body, bytes):
            body.close()
        raise ForeignReply(status)


def _is_own(operation: str, headers: Mapping[str, str], body: Any) -> bool:
    if headers.get("content-type", "").startswith("text/html") and not has_request_id(headers):
        return False
    if operation in OF_OBJECTS and not headers.get("etag", "").strip('"'):
        return False
    if operation == "GetObject":  # without either header, a truncated body would look complete
        return "content-length" in headers or "chunked" in headers.get("transfer-encoding", "")
    element = ELEMENTS.get(operation)
    return element in body if element is not None else operation not in OF_OBJECTS or not body
