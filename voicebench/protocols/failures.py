"""What an agent's refusal or goodbye means: HTTP statuses and WebSocket close codes to the fixed list of reasons."""

from __future__ import annotations

import http

from websockets.frames import CLOSE_CODE_EXPLANATIONS

from voicebench.errors import FailureReason

AUTH_STATUSES = frozenset({401, 403, 407})
LIMITED_STATUSES = frozenset({429, 503})
PROXY_CANNOT_REACH = frozenset({502, 503, 504})
"""At a CONNECT these speak of the agent, which the proxy could not reach, and not of the proxy's own load."""

NORMAL, GOING_AWAY, TRY_AGAIN_LATER = 1000, 1001, 1013


def reason_of_status(status: int) -> FailureReason:
    """Why a session failed whose WebSocket upgrade was answered with this HTTP status instead of 101.

    >>> reason_of_status(503), reason_of_status(401), reason_of_status(200)
    ('limited', 'auth', 'handshake')
    """
    if status in AUTH_STATUSES:
        return "auth"
    return "limited" if status in LIMITED_STATUSES else "handshake"


def reason_of_proxy_status(status: int) -> FailureReason:
    """Why a session failed whose HTTP proxy answered CONNECT with this status instead of 2xx.

    >>> reason_of_proxy_status(407), reason_of_proxy_status(502)
    ('auth', 'refused')
    """
    return "refused" if status in PROXY_CANNOT_REACH else reason_of_status(status)


def reason_of_close(code: int | None) -> FailureReason:
    """Why a session failed that the agent ended with this close code; None: the line broke without one.

    Whether 1000 and 1001 are a failure at all depends on the script: after the last turn they are not.

    >>> reason_of_close(1000), reason_of_close(1013), reason_of_close(1011), reason_of_close(None)
    ('agent_hangup', 'limited', 'dropped', 'dropped')
    """
    if code in (NORMAL, GOING_AWAY):
        return "agent_hangup"
    return "limited" if code == TRY_AGAIN_LATER else "dropped"


def status_name(status: int) -> str:
    """An HTTP status as people read it.

    >>> status_name(503), status_name(599)
    ('503 (Service Unavailable)', '599')
    """
    try:
        return f"{status} ({http.HTTPStatus(status).phrase})"
    except ValueError:
        return str(status)


def close_name(code: int) -> str:
    """A WebSocket close code as people read it.

    >>> close_name(1013), close_name(4001)
    ('1013 (try again later)', '4001 (private use)')
    """
    if code in CLOSE_CODE_EXPLANATIONS:
        return f"{code} ({CLOSE_CODE_EXPLANATIONS[code].removesuffix(' [internal]')})"
    return f"{code} ({'private use' if code >= 4000 else 'registered' if code >= 3000 else 'unknown'})"
