"""Who is asked to sign in, and how: the `WWW-Authenticate` of answers (RFC 9110, section 11.6.1).

A browser shows its own window for a password when it meets a `Basic` challenge. That is right for a page that a person
opens, and wrong for a script of a page, which shows a form of its own.
"""

from __future__ import annotations

from aiohttp import hdrs, web

from hsparse.sn.http.request import named_types

FETCH_MODE = "Sec-Fetch-Mode"
NAVIGATE = "navigate"
REQUESTED_WITH = "X-Requested-With"
HTML = "text/html"
BASIC = "Basic "
UNKNOWN_BASIC = "xBasic "
"""The scheme's name for scripts: no browser knows it, so none shows a window."""


def is_page(request: web.BaseRequest) -> bool:
    """Say whether a person opens the URL in a browser.

    Browsers send `Sec-Fetch-Mode` to HTTPS and to this machine; elsewhere only pages are asked for as HTML.
    """
    mode = request.headers.get(FETCH_MODE)
    if mode is not None:
        return mode == NAVIGATE
    return HTML in named_types(request, hdrs.ACCEPT) and not _is_script(request)


def _is_script(request: web.BaseRequest) -> bool:
    """Say whether a script of a page sends the request."""
    mode = request.headers.get(FETCH_MODE)
    return (
        mode != NAVIGATE
        if mode is not None
        else hdrs.ORIGIN in request.headers or REQUESTED_WITH in request.headers
    )


def add_challenges(
    request: web.BaseRequest, response: web.StreamResponse, challenges: tuple[str, ...]
) -> None:
    """Add the challenges to a 401: for a script, `Basic` by a name that no browser knows."""
    for challenge in challenges:
        if _is_script(request) and challenge.startswith(BASIC):
            challenge = UNKNOWN_BASIC + challenge.removeprefix(BASIC)
        response.headers.add(hdrs.WWW_AUTHENTICATE, challenge)


def would_sign_in(request: web.BaseRequest, challenges: tuple[str, ...]) -> bool:
    """Say whether a sign-in helps with a 403: a person opened a page without credentials, and a window will ask."""
    asks = any(challenge.startswith(BASIC) for challenge in challenges)
    return asks and is_page(request) and hdrs.AUTHORIZATION not in request.headers
