"""The transport for WebSocket agents: ready frames once, a connected line for each session (docs/websocket.md)."""

from __future__ import annotations

import re
import secrets
import ssl
import urllib.parse
from typing import Any

from websockets.exceptions import InvalidURI
from websockets.frames import Opcode
from websockets.uri import WebSocketURI, parse_uri

from voicebench import __version__
from voicebench.errors import AdapterError, AgentError
from voicebench.events import AgentEvent, Samples
from voicebench.protocols import pcm
from voicebench.protocols.frames import MASK_BYTES, client_frame
from voicebench.protocols.upgrade import Upgrade
from voicebench.protocols.websocket import WebSocketLine
from voicebench.scenario.adapter_options import WebSocketOptions
from voicebench.worker.adapters.base import LiveSocket, SessionInfo
from voicebench.worker.adapters.connect import (
    Deadline,
    PlainWire,
    agent_error,
    connect_tcp,
    native,
    place_of,
    send_all,
)
from voicebench.worker.adapters.proxy import proxy_for
from voicebench.worker.adapters.tls import TlsLine, TlsWire, client_context


class WebSocketTransport:
    """Sessions with an agent that speaks PCM over WebSocket."""

    def __init__(self, options: WebSocketOptions) -> None:
        """Check what can be checked before the first session.

        Raises:
            AdapterError: The URL, start message, certificate file or proxy of the environment can't be used.
        """
        self._options = options
        uri = self._uri("0", 0)
        self._place = f"the agent at {place_of(uri.host, uri.port)}"
        self._proxy = proxy_for(secure=uri.secure, host=uri.host, port=uri.port)
        self._context: ssl.SSLContext | None = None
        if uri.secure:
            self._context = client_context(
                ca_file=options.ca_file,
                client_cert_file=options.client_cert_file,
                client_key_file=options.client_key_file,
            )
        self._start_text(SessionInfo("0", 0, 16000, 320, "", ""))

    def ready_frame(self, samples: Samples) -> bytes:
        """A frame as a binary message under a random mask, which all sessions share (unless mask_per_session)."""
        return client_frame(pcm.frame_payload(samples), fresh_mask())

    def open(self, session: SessionInfo) -> LiveSocket:
        """Connect, shake hands, send the start message; see `base.Transport.open`."""
        uri = self._uri(session.session_id, session.number)
        deadline = Deadline(self._options.connect_timeout_s)
        sock = connect_tcp(uri.host, uri.port, deadline=deadline, place=self._place, proxy=self._proxy)
        try:
            wire = self._secured(sock, uri, deadline)
            line, early = self._upgraded(wire, sock, uri, session)
            if line.failure is not None:
                raise line.failure
            plain_sock = native(sock)
            return LiveSocket(plain_sock, line, early, line.reading(plain_sock) if isinstance(line, TlsLine) else None)
        except TimeoutError as error:
            raise self._too_late() from error
        except OSError as error:
            raise agent_error(error, self._place) from error
        finally:
            sock.close()  # what is left of it: its descriptor lives on in the native socket

    def _secured(self, sock: Any, uri: WebSocketURI, deadline: Deadline) -> PlainWire | TlsWire:
        if self._context is None:
            return PlainWire(sock)
        wire = TlsWire(sock, self._context, uri.host, self._place)
        try:
            wire.handshake(deadline)
        except TimeoutError as error:
            raise AgentError(
                "timeout",
                f"{self._place} accepted the connection, but TLS was not set up within {deadline.timeout_s:g} s of"
                " dialling: does it speak TLS (wss)?",
            ) from error
        return wire

    def _upgraded(
        self, wire: PlainWire | TlsWire, sock: Any, uri: WebSocketURI, session: SessionInfo
    ) -> tuple[WebSocketLine | TlsLine, tuple[AgentEvent, ...]]:
        deadline = Deadline(self._options.handshake_timeout_s)
        upgrade = Upgrade(
            uri,
            headers=self._headers(session.session_id, session.number),
            subprotocols=self._options.subprotocols,
            place=self._place,
        )
        wire.send(upgrade.request, deadline)
        while not upgrade.receive(wire.receive(deadline)):
            pass
        text = self._start_text(session)
        if text is not None:
            wire.send(client_frame(text.encode(), fresh_mask(), Opcode.TEXT), deadline)
        inner = self._line(upgrade, session)
        early = inner.receive(upgrade.leftover, 0.0) if upgrade.leftover else []
        line: WebSocketLine | TlsLine = inner
        if isinstance(wire, TlsWire):
            # Records may be here that are not decrypted yet, and no readable socket would tell the pacer of them.
            line = TlsLine(inner, wire, self._place)
            early += line.pending(0.0)
        send_all(sock, line.outgoing(), deadline)
        return line, tuple(early)

    def _line(self, upgrade: Upgrade, session: SessionInfo) -> WebSocketLine:
        codec = pcm.PcmCodec(
            agent_rate_hz=self._options.agent_sample_rate or session.sample_rate_hz,
            session_rate_hz=session.sample_rate_hz,
        )
        mask = fresh_mask if self._options.mask_per_session else None
        return WebSocketLine(upgrade.protocol, codec, place=self._place, fresh_mask=mask)

    def _uri(self, session_id: str, number: int) -> WebSocketURI:
        quoted = urllib.parse.quote(session_id, safe="")
        url = pcm.fill_in(self._options.url, session_id=quoted, session_number=number)
        # The library's messages quote the whole url, which may carry a token: ours name what is wrong instead.
        try:
            uri = parse_uri(url)
        except InvalidURI as error:
            raise AdapterError(f"adapter.options.url: {error.msg}; expected ws://HOST:PORT/PATH or wss://...") from None
        except ValueError:
            raise AdapterError("adapter.options.url: host, port or user info can't be read") from None
        if re.search(r"[\x00-\x20\x7f]", uri.resource_name):
            raise AdapterError("adapter.options.url: it contains spaces or control characters: percent-encode them")
        return uri

    def _headers(self, session_id: str, number: int) -> dict[str, str]:
        headers = {"User-Agent": f"voicebench/{__version__}"}
        for name, template in self._options.headers.items():
            value = pcm.fill_in(str(template), session_id=session_id, session_number=number)
            headers = {key: kept for key, kept in headers.items() if key.lower() != name.lower()}
            headers[name] = value
        return headers

    def _start_text(self, session: SessionInfo) -> str | None:
        if self._options.start_message is None:
            return None
        try:
            return pcm.start_message(
                self._options.start_message,
                sample_rate_hz=session.sample_rate_hz,
                session_id=session.session_id,
                session_number=session.number,
            )
        except (TypeError, ValueError) as error:
            raise AdapterError(f"adapter.options.start_message can't be written as JSON: {error}") from error

    def _too_late(self) -> AgentError:
        return AgentError(
            "timeout",
            f"{self._place} accepted the connection, but did not answer the WebSocket upgrade within"
            f" {self._options.handshake_timeout_s:g} s: is it overloaded, or no WebSocket server?",
        )


def fresh_mask() -> bytes:
    """4 bytes nobody can predict, as RFC 6455 wants a frame's mask."""
    return secrets.token_bytes(MASK_BYTES)
