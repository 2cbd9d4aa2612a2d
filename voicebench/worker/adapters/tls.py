"""TLS around a line, through memory: the socket stays a plain one, which the pacer reads and writes like any other."""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Any

from voicebench.errors import AdapterError, AgentError
from voicebench.events import AgentClosed, AgentEvent, Samples
from voicebench.worker.adapters.base import Line, RecvMsg
from voicebench.worker.adapters.connect import Deadline, read_some, send_all
from voicebench.worker.stamps import Ancillary

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
        self._masked = None if inner.sends_as_is else inner.wrap
        # Looked up once: of what a record costs in Python, a fifth.
        self._take, self._decrypt = wire.incoming.write, wire.tls.read
        self._encrypt, self._give = wire.tls.write, wire.outgoing.read
        self._taken: bytes | None = None
        """What was last read and has been decrypted, as `reading` returned it."""
        self._found: bytes | ssl.SSLError | None = None
        """What that was decrypted to, where `reading` could not return it: there is more behind it, or an error."""

    @property
    def closed(self) -> bool:
        return self._failure is not None or self._inner.closed

    @property
    def failure(self) -> AgentError | None:
        return self._failure or self._inner.failure

    @property
    def sends_as_is(self) -> bool:
        return False

    def reading(self, sock: socket.socket) -> RecvMsg:
        """`sock.recvmsg`, but a read that is one record comes decrypted, so that what follows costs as much as without
        TLS. Whatever it returns must be what `audio` or `receive` gets next; other reads of the socket go to `receive`.
        """
        recvmsg = sock.recvmsg

        def read(size: int, ancillary_bytes: int) -> tuple[bytes, Ancillary, int, Any]:
            data, ancillary, flags, address = recvmsg(size, ancillary_bytes)
            if 0 < len(data) < size and self._failure is None:
                data = self._opened(data)
            return data, ancillary, flags, address

        return read

    def _opened(self, data: bytes) -> bytes:
        """The plain bytes if all of it is one record; otherwise `data` itself, of which the rest is kept."""
        self._take(data)
        try:
            plain = self._decrypt(len(data))  # no record is longer decrypted
        except ssl.SSLError as error:
            self._taken, self._found = data, error
            return data
        if not plain or self._incoming.pending or self._tls.pending():
            self._taken, self._found = data, plain
            return data
        self._taken, self._found = plain, None
        return plain

    def audio(self, data: bytes) -> Samples | None:
        return self._inner.audio(data) if data is self._taken and self._found is None else None

    def head(self, data: bytes) -> bytes:
        return self._inner.head(data)  # a record begins otherwise than a message, so none passes for one

    def receive(self, data: bytes, time_s: float) -> list[AgentEvent]:
        if self.closed:
            return []
        if data is self._taken:
            self._taken = None
            if self._found is None:
                return self._inner.receive(data, time_s)
        elif data:
            self._take(data)
        else:
            self._incoming.write_eof()
        return self.pending(time_s)

    def pending(self, time_s: float) -> list[AgentEvent]:
        """What can be decrypted of the bytes already here."""
        events: list[AgentEvent] = []
        while not self.closed:
            try:
                plain = self._next()
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

    def _next(self) -> bytes:
        found, self._found = self._found, None
        if found is None:
            return self._decrypt(RECORD_BYTES)
        if isinstance(found, bytes):
            return found
        raise found

    def broken(self, why: str, time_s: float) -> list[AgentEvent]:
        return [] if self.closed else self._inner.broken(why, time_s)

    def wrap(self, ready: bytes) -> bytes:
        if self._failure is not None:
            return self._give()
        if self._masked is not None:
            ready = self._masked(ready)
        try:
            self._encrypt(ready)
        except ssl.SSLError:
            return self._give()  # the connection has ended; the next receive says how
        return self._give()

    def outgoing(self) -> bytes:
        return self._encrypted(self._inner.outgoing())

    def hang_up(self) -> bytes:
        return self._encrypted(self._inner.hang_up())

    def _encrypted(self, plain: bytes) -> bytes:
        if plain and self._failure is None:
            try:
                self._encrypt(plain)
            except ssl.SSLError:
                return self._give()  # the connection has ended; the next receive says how
        return self._give() if self._outgoing.pending else b""

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
