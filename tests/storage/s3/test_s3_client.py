from __future__ import annotations

import pytest
from botocore.utils import parse_timestamp

from hsparse.errors import (
    BadRequest,
    Misconfigured,
    NotFound,
    PreconditionFailed,
    StoreFailed,
    StoreFull,
    Unsupported,
)
from hsparse.storage.bucket_client import AccessRefused, RetryReason
from hsparse.storage.s3.s3_client import parse_time, translate_error_reply


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("NoSuchKey", 404, NotFound),
        ("NoSuchUpload", 404, NotFound),
        ("NoSuchBucket", 404, Misconfigured),
        ("PreconditionFailed", 412, PreconditionFailed),
        ("InvalidRange", 416, BadRequest),
        ("AccessDenied", 403, AccessRefused),
        ("InvalidAccessKeyId", 403, AccessRefused),
        ("SignatureDoesNotMatch", 403, AccessRefused),
        ("ExpiredToken", 400, AccessRefused),
        ("RequestTimeTooSkewed", 403, Misconfigured),
        ("PermanentRedirect", 301, Misconfigured),
        ("NotImplemented", 501, Unsupported),
        ("MethodNotAllowed", 405, Unsupported),
        ("EntityTooLarge", 400, StoreFailed),
        ("XMinioStorageFull", 507, StoreFull),
        ("XMinioAdminBucketQuotaExceeded", 400, StoreFull),
        ("QuotaExceeded", 403, StoreFull),
        ("InsufficientStorage", 507, StoreFull),
    ],
)
def test_errors_name_the_key_or_the_bucket_and_a_remedy(code: str, status: int, expected: type) -> None:
    error = translate_error_reply(code, status, "some/key", "bucket")
    assert type(error) is expected
    assert "'some/key'" in error.message or "'bucket'" in error.message
    assert error.message.endswith(".")


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("ConditionalRequestConflict", 409, RetryReason.REFUSED),
        ("SlowDown", 503, RetryReason.REFUSED),
        ("RequestTimeout", 400, RetryReason.REFUSED),
        ("ServiceUnavailable", 503, RetryReason.UNCERTAIN),
        ("InternalError", 500, RetryReason.UNCERTAIN),
        ("502", 502, RetryReason.UNCERTAIN),
        ("", 504, RetryReason.UNCERTAIN),
        ("520", 520, RetryReason.UNCERTAIN),
    ],
)
def test_what_is_sent_again(code: str, status: int, expected: RetryReason) -> None:
    assert translate_error_reply(code, status, "key", "bucket") is expected


@pytest.mark.parametrize(
    "text",
    [
        "Sun, 22 Nov 2026 09:05:07 GMT",
        "2026-11-22T09:05:07.000Z",
        "2026-11-22T09:05:07Z",
        "2026-11-22T09:05:07.123456+02:00",
        "Sunday, 22-Nov-26 09:05:07 GMT",
        "1795338307",
        1795338307,
    ],
)
def test_times_are_those_of_botocore(text: str | int) -> None:
    assert parse_time(text) == parse_timestamp(text)
    assert parse_time(text).timestamp() == parse_timestamp(text).timestamp()


@pytest.mark.parametrize("text", ["", "Sun, 99 Nov 2026 09:05:07 GMT", "2026-11-22T99:05:07Z", "never"])
def test_a_text_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Invalid|day|hour"):
        parse_time(text)


@pytest.mark.parametrize(
    ("operation", "unsigned", "right", "remedy"),
    [
        ("GetObject", False, "s3:GetObject", "--requester-pays"),
        ("HeadObject", True, "s3:GetObject", "leave out --unsigned"),
        ("ListObjectsV2", False, "s3:ListBucket", "--unsigned"),
        ("ListObjectsV2", True, "s3:ListBucket", "leave out --unsigned"),
        ("PutObject", False, "s3:PutObject", "--read-only"),
        ("UploadPart", False, "s3:PutObject", "--read-only"),
        ("DeleteObject", False, "s3:DeleteObject", "--read-only"),
    ],
)
def test_what_is_denied_names_the_right_and_a_remedy(
    operation: str, unsigned: bool, right: str, remedy: str
) -> None:
    error = translate_error_reply("AccessDenied", 403, "key", "bucket", operation, unsigned=unsigned)
    assert isinstance(error, Misconfigured)
    assert f"denies {right} " in error.message
    assert remedy in error.message
