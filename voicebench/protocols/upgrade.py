"""The opening handshake of a WebSocket, without a socket: HTTP request out, answer in, a verdict that helps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHeader, InvalidUpgrade, NegotiationError
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from voicebench.errors import AgentError
from voicebench.protocols.failures import reason_of_status, status_name

MAX_HEAD_BYTES: Final = 65536
STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] (\d{3})(?: [^\r\n]*)?\r?\n")
END_OF_HEAD: Final = re.compile(rb"\r?\n\r?\n")

WHAT_TO_TRY: Final = {
    "auth": "check the credentials in `headers` (and the environment variables they come from), and the url's path:"
    " some servers answer so to an unknown one",
    "limited": "the agent takes no more sessions: lower the load, or raise its limit",
    "handshake": "check host, port and path of the url",
}


class Upgrade:
    """One opening handshake. Send `request`, hand every answer to `receive` until it says that the line is open.

    The answer's body is never waited for: a server that keeps the connection open after a refusal would turn
    the refusal into a time-out.
    """

    def __init__(
        self, uri: WebSocketURI, *, headers: Mapping[str, str], subprotocols: Sequence[str] = (), place: str
    ) -> None:
        """`headers` replace our own of the same name; `place` names the agent in errors (`agent at host:port`)."""
        self._place = place
        self._subprotocols = tuple(subprotocols)
        offered = [Subprotocol(name) for name in subprotocols] or None
        # No extension is offered: compressing audio costs CPU on both sides and gains nothing.
        self.protocol = ClientProtocol(uri, subprotocols=offered, max_size=None)
        request = self.protocol.connect()
        for name, value in headers.items():
            if name in request.headers:
                del request.headers[name]
            request.headers[name] = value
        self.protocol.send_request(request)
        self.request = b"".join(self.protocol.data_to_send())
        self.leftover = b""
        """What came behind the answer: the agent's first messages, to be read by the line."""
        self._head = b""

    def receive(self, data: bytes) -> bool:
        """Take what the socket gave; b"" is its end. Returns True once the WebSocket is open.

        Raises:
            AgentError: It won't open. `reason` as `failures.reason_of_status`; `handshake` when the answer is
                not one to a WebSocket upgrade, `dropped` when there is none.
        """
        if not data:
            raise AgentError(
                "dropped",
                f"{self._place} closed the connection without answering the WebSocket upgrade: it may be"
                " overloaded, or want TLS (wss:// instead of ws://)",
            )
        self._head += data
        if not self._head.startswith(b"HTTP/"[: len(self._head)]) or len(self._head) > MAX_HEAD_BYTES:
            raise self._not_websocket("does not speak HTTP there")
        end = END_OF_HEAD.search(self._head)
        if end is None:
            return False
        head, self.leftover = self._head[: end.end()], self._head[end.end() :]
        self._judge(head)
        return True

    def _judge(self, head: bytes) -> None:
        line = STATUS_LINE.match(head)
        if line is None:
            raise self._not_websocket("does not speak HTTP/1.1 there")
        status = int(line[1])
        if status != 101:
            reason = reason_of_status(status)
            hint = "use the address it points to" if 300 <= status < 400 else WHAT_TO_TRY[reason]
            raise AgentError(
                reason, f"{self._place} answered the WebSocket upgrade with HTTP {status_name(status)}: {hint}"
            )
        self.protocol.receive_data(head)
        self.protocol.events_received()
        if self.protocol.handshake_exc is not None:
            raise self._not_websocket(self._why(self.protocol.handshake_exc))

    def _not_websocket(self, why: str) -> AgentError:
        return AgentError("handshake", f"{self._place} is no WebSocket server for us: it {why}; check the url's port")

    def _why(self, error: Exception) -> str:
        # Never the library's own text: it quotes header values.
        if isinstance(error, InvalidUpgrade):
            return "answered 101 without upgrading to websocket"
        if isinstance(error, NegotiationError):
            offered = ", ".join(self._subprotocols) or "none"
            return f"chose a sub-protocol or extension that was not offered (sub-protocols offered: {offered})"
        if isinstance(error, InvalidHeader):
            return f"answered 101 with a wrong or missing {error.name} header"
        return "answered 101 with headers that can't be read"
