"""The master's socket: one ROUTER for all workers, control and bulk. Bytes in, messages out.

Used in the master's own native thread. Nothing is ever sent with waiting: whoever can't take a message now hears the
newest state with his next beat, or asks for his piece again.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections import Counter
from typing import Any

import zmq

from voicebench.errors import UsageError, WireError, WrongProtocolError
from voicebench.wire import codec
from voicebench.wire.messages import FromMaster, FromWorker

LINGER_MS = 1000
AT_ONCE = 500
"""Messages taken in before the rest of the master has its turn."""
GARBAGE_TAKEN = 10
"""A connection with so many messages that are none of ours is not listened to any more."""
QUARANTINED_KEPT = 10_000


class MasterLink:
    """Opened, used and closed in one thread; `ring` may be called from any."""

    def __init__(self, address: str) -> None:
        """
        Args:
            address: Where to listen, as ZeroMQ has it; a port of * takes a free one.

        Raises:
            UsageError: Nobody can listen there.
        """
        self._context = zmq.Context()
        self._socket: Any = self._context.socket(zmq.ROUTER)
        for option, value in (
            (zmq.LINGER, LINGER_MS),
            (zmq.ROUTER_MANDATORY, 1),
            (zmq.IPV6, int("[" in address)),
            (zmq.MAXMSGSIZE, codec.MAX_BYTES),
            (zmq.SNDHWM, 1000),
            (zmq.HEARTBEAT_IVL, 1000),
            (zmq.HEARTBEAT_TIMEOUT, 3000),
        ):
            self._socket.setsockopt(option, value)
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            self._socket.close()
            self._context.term()
            why = os.strerror(error.errno) if error.errno else str(error)
            raise UsageError(f"can't listen at {address.removeprefix('tcp://')}: {why}") from None
        self.address = str(self._socket.getsockopt_string(zmq.LAST_ENDPOINT))
        self.n_garbage = 0
        self._garbage: Counter[bytes] = Counter()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._bell, zmq.POLLIN)

    def ring(self) -> None:
        """Make `receive` return at once."""
        with contextlib.suppress(OSError):
            os.eventfd_write(self._bell, 1)

    def receive(self, timeout_s: float) -> list[tuple[bytes, FromWorker | WrongProtocolError]]:
        """What has come, each with whom an answer goes to; waits at most `timeout_s` for the first."""
        ready = dict(self._poller.poll(math.ceil(1000 * max(0.0, timeout_s))))
        if self._bell in ready:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._bell)
        heard: list[tuple[bytes, FromWorker | WrongProtocolError]] = []
        while self._socket in ready and len(heard) < AT_ONCE:
            try:
                parts = self._socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                break
            sender = parts[0]
            if self._garbage[sender] >= GARBAGE_TAKEN:
                continue
            try:
                if len(parts) != 2:
                    raise WireError(f"{len(parts)} parts")
                heard.append((sender, codec.decode_from_worker(parts[1])))
            except WrongProtocolError as error:
                heard.append((sender, error))
            except WireError:
                self._count_garbage(sender)
        return heard

    def send(self, receiver: bytes, message: FromMaster) -> None:
        """To whoever has this routing id, if he is still there and takes it."""
        with contextlib.suppress(zmq.Again):
            try:
                self._socket.send_multipart([receiver, codec.encode(message)], zmq.DONTWAIT)
            except zmq.ZMQError as error:
                if error.errno != zmq.EHOSTUNREACH:
                    raise

    def close(self) -> None:
        """Let go; what was sent last has a second to go out."""
        self._socket.close()
        self._context.term()
        os.close(self._bell)

    def _count_garbage(self, sender: bytes) -> None:
        self.n_garbage += 1
        if len(self._garbage) >= QUARANTINED_KEPT:
            self._garbage.clear()
        self._garbage[sender] += 1
