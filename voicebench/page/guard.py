"""Who may ask for what. The page listens on this machine alone, but every web site that is open in a browser here can
send requests to it: they are told apart by headers that no site can forge.
"""

from __future__ import annotations

import hmac
import secrets
from urllib.parse import urlsplit

from flask import Request

CSRF_HEADER = "X-CSRF-Token"
MAX_BODY_BYTES = 1024
LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class RefusedError(Exception):
    """A request that is not answered. The sentence says why and what would be."""

    def __init__(self, why: str, status: int = 403) -> None:
        self.status = status
        super().__init__(why)


class Guard:
    """The rules, with the token that changes are asked for with."""

    def __init__(self, listens_at: str) -> None:
        """
        Args:
            listens_at: The host the page listens at.
        """
        self.csrf = secrets.token_urlsafe(24)
        self._names = LOOPBACK_NAMES | {listens_at}

    def check(self, request: Request) -> None:
        """Raises:
        RefusedError: The request came by another name, from another site, or without the token.
        """
        host = _host_of(f"//{request.headers.get('Host', '')}")
        if host not in self._names:
            # A site may point its own name at this address; what it then calls "its own page" would be this one.
            raise RefusedError(f"this page answers to localhost, not to {host or 'a request without a host'}")
        site = request.headers.get("Sec-Fetch-Site", "same-origin")
        navigates = request.method == "GET" and request.headers.get("Sec-Fetch-Mode") == "navigate"
        if site not in ("same-origin", "none") and not navigates:
            raise RefusedError("this request came from another site")
        if request.method not in ("GET", "HEAD"):
            self._check_change(request)

    def _check_change(self, request: Request) -> None:
        origin = request.headers.get("Origin")
        if origin is None or origin.partition("://")[2] != request.headers.get("Host"):
            raise RefusedError(f"changes are taken from the page itself, not from {origin or 'nowhere (no Origin)'}")
        token = request.headers.get(CSRF_HEADER, "")
        if not hmac.compare_digest(token.encode(), self.csrf.encode()):
            raise RefusedError(f"the {CSRF_HEADER} is missing or of another master: load the page again")
        if (request.content_length or 0) > MAX_BODY_BYTES:
            raise RefusedError(f"more than {MAX_BODY_BYTES} bytes are not taken", 413)
        if request.mimetype != "application/json":
            raise RefusedError("write the body as application/json", 415)


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
