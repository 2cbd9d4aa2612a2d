"""TLS around a line, through memory: the socket stays a plain one, which the pacer reads and writes like any other."""

from __future__ import annotations

import contextlib
import ssl
from typing import Any

from voicebench.errors import AdapterError, AgentError
from voicebench.events import AgentClosed, AgentEvent, Samples
from voicebench.worker.adapters.base import Line
from voicebench.worker.adapters.connect import Deadline, read_some, send_all

RECORD_BYTES = 16384
"""OpenSSL gives one record at a time, and no record holds more."""


def client_context(
    *, ca_file: str | None = None, client_cert_file: str | None = None, client_key_file: str | None = None
) -> ssl.SSLContext:
    """How agents are verified (always: chain and host name), by the system's CAs or those of `ca_file` alone.

    Raises:
        AdapterError: A file is missing or not what its option wants.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise AdapterError(f"adapter.options.ca_file: {ca_file} is no PEM file of CA certificates: {error}") from error
    # Without renegotiation a write never has to wait for a read.
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    if client_cert_file is not None:
        try:
            # A password would be asked for on the terminal, by every worker: refuse instead.
            context.load_cert_chain(client_cert_file, client_key_file, password=_no_password)
        except (OSError, ssl.SSLError, ValueError) as error:
            raise AdapterError(
                f"adapter.options.client_cert_file: {client_cert_file} (key:"
                f" {client_key_file or 'in the same file'}) can't be used: {error}"
            ) from error
    return context


class TlsWire:
    """The handshake's side of a TLS connection: steps that wait on a gevent socket, up to a deadline."""

    def __init__(self, sock: Any, context: ssl.SSLContext, host: str, place: str) -> None:
        self._sock = sock
        self._place = place
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname=host)

    def handshake(self, deadline: Deadline) -> None:
        """Shake hands. Raises AgentError (`handshake`, `dropped`), OSError, TimeoutError."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush(deadline)
                self._read_more(deadline)
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:  # which of the two depends on the Python
                raise AgentError(
                    "dropped", f"{self._place} closed the connection during the TLS handshake: does it speak TLS (wss)?"
                ) from error
            except ssl.SSLError as error:
                with contextlib.suppress(OSError):
                    self._flush(deadline)  # the alert tells the agent why
                raise self._failed(error) from error
            else:
                self._flush(deadline)
                return

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Send it all. Raises AgentError, OSError, TimeoutError."""
        try:
            self.tls.write(data)
        except ssl.SSLError as error:
            raise self._failed(error) from error
        self._flush(deadline)

    def receive(self, deadline: Deadline) -> bytes:
        """The next decrypted bytes; b"" at the end. Raises AgentError, OSError, TimeoutError."""
        while True:
            try:
                return self.tls.read(RECORD_BYTES)
            except ssl.SSLWantReadError:
                self._flush(deadline)
                self._read_more(deadline)
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""
            except ssl.SSLError as error:
                raise self._failed(error) from error

    def _read_more(self, deadline: Deadline) -> None:
        data = read_some(self._sock, deadline)
        if data:
            self.incoming.write(data)
        else:
            self.incoming.write_eof()

    def _flush(self, deadline: Deadline) -> None:
        if self.outgoing.pending:
            send_all(self._sock, self.outgoing.read(), deadline)

    def _failed(self, error: ssl.SSLError) -> AgentError:
        return AgentError("handshake", f"{self._place}: TLS failed: {_explain(error)}")


class TlsLine:
    """A line whose bytes travel as TLS records."""

    def __init__(self, inner: Line, wire: TlsWire, place: str) -> None:
        """`wire` has finished the handshake and is used by nobody else any more."""
        self._inner = inner
        self._tls = wire.tls
        self._incoming = wire.incoming
        self._outgoing = wire.outgoing
        self._place = place
        self._failure: AgentError | None = None

    @property
    def closed(self) -> bool:
        return self._failure is not None or self._inner.closed

    @property
    def failure(self) -> AgentError | None:
        return self._failure or self._inner.failure

    @property
    def sends_as_is(self) -> bool:
        return False

    def audio(self, data: bytes) -> Samples | None:
        return None

    def head(self, data: bytes) -> bytes:
        return b""

    def receive(self, data: bytes, time_s: float) -> list[AgentEvent]:
        if self.closed:
            return []
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
        return self.pending(time_s)

    def pending(self, time_s: float) -> list[AgentEvent]:
        """What can be decrypted of the bytes already here."""
        events: list[AgentEvent] = []
        while not self.closed:
            try:
                plain = self._tls.read(RECORD_BYTES)
            except ssl.SSLWantReadError:
                break
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                plain = b""
            except ssl.SSLError as error:
                return [*events, self._violated(error, time_s)]
            events += self._inner.receive(plain, time_s)
            # Asking once more only to be told "wait" costs an exception, half the price of a frame.
            if plain and not self._incoming.pending and not self._tls.pending():
                break
        return events

    def broken(self, why: str, time_s: float) -> list[AgentEvent]:
        return [] if self.closed else self._inner.broken(why, time_s)

    def wrap(self, ready: bytes) -> bytes:
        return self._encrypted(self._inner.wrap(ready))

    def outgoing(self) -> bytes:
        return self._encrypted(self._inner.outgoing())

    def hang_up(self) -> bytes:
        return self._encrypted(self._inner.hang_up())

    def _encrypted(self, plain: bytes) -> bytes:
        if plain and self._failure is None:
            try:
                self._tls.write(plain)
            except ssl.SSLError:
                return self._outgoing.read()  # the connection has ended; the next receive says how
        return self._outgoing.read() if self._outgoing.pending else b""

    def _violated(self, error: ssl.SSLError, time_s: float) -> AgentClosed:
        why = f"{self._place} broke TLS: {_explain(error)}"
        self._failure = AgentError("protocol", why)
        return AgentClosed(time_s, None, why, "protocol")


def _explain(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate was not accepted ({error.verify_message.rstrip('.')}): give its CA in `ca_file`, and call"
            " it by a name the certificate is for"
        )
    reason = (error.reason or "").replace("_", " ").lower()
    if "wrong version number" in reason or "http request" in reason:
        return "it does not speak TLS there: use ws:// instead of wss://, or another port"
    if "certificate required" in reason or "handshake failure" in reason or "bad certificate" in reason:
        return f"it refused us ({reason}): it may want a client certificate (`client_cert_file`)"
    return reason or str(error)


def _no_password() -> str:
    raise ValueError("the key is encrypted; give one without a passphrase")
