"""The worker's sockets: one DEALER for control and one for bulk, in a native thread of their own.

The thread is no greenlet and touches nothing of gevent but `async_.send`, so that beats go on when the loop that holds
the sessions is busy or blocked; for that reason it doesn't log, and it doesn't sleep but in `poll`. What it has for the
loop lies in deques; what the loop has for it, too.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import gevent.monkey
import zmq
from gevent.hub import get_hub

from voicebench.clock import monotonic_s
from voicebench.errors import WireError
from voicebench.wire import codec
from voicebench.wire.messages import AssetPiece, BulkHello, Fetched, FromMaster, FromWorker, WantFile
from voicebench.worker.adapters.base import describe
from voicebench.worker.member import Member

start_native_thread = gevent.monkey.get_original("_thread", "start_new_thread")

LONGEST_POLL_S = 0.1
BULK_HELLO_EVERY_S = 1.0
LINGER_MS = 500
GARBAGE_TAKEN = 100
"""A master that sends this many messages that are none is none."""
CONNECT_EVERY_MS, CONNECT_AT_MOST_EVERY_MS = 100, 2000


class Bulk(Protocol):
    """What goes over the bulk socket. Called in the link's thread."""

    def hear(self, message: AssetPiece | WantFile | Fetched, now_s: float) -> None: ...

    def sends(self, epoch: int, now_s: float) -> list[FromWorker]: ...

    def due_s(self, now_s: float) -> float: ...


class Watch(Protocol):
    """What looks after the loop. Called in the link's thread."""

    def look(self, now_s: float) -> None: ...


class Link:
    """The thread and what leads to it. `close` ends it; `error` is what it died of."""

    def __init__(
        self, address: str, member: Member, bulk: Bulk, on_news: Callable[[], None], watch: Watch | None = None
    ) -> None:
        """
        Args:
            address: Of the master, as ZeroMQ has it.
            watch: Is asked to look ten times a second at least.
            on_news: Called in the loop when there is news: notices of the member, the gate, the end of the thread.
        """
        self.error: str | None = None
        self.garbage = 0
        self._address = address
        self._member = member
        self._bulk = bulk
        self._watch = watch
        self._told: deque[Callable[[Member], None]] = deque()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closing = False
        self._async = get_hub().loop.async_()
        self._async.start(on_news)
        self._done = gevent.monkey.get_original("_thread", "allocate_lock")()
        self._done.acquire()

    def start(self) -> None:
        start_native_thread(self._run, ())

    def tell(self, what: Callable[[Member], None]) -> None:
        """Have something done to the member, in its thread. From the loop."""
        self._told.append(what)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self._bell, 1)

    def close(self, timeout_s: float = 2.0) -> None:
        """End the thread; what was sent may take half a second to go out."""
        self._closing = True
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self._bell, 1)
        if self._done.acquire(timeout=timeout_s):
            os.close(self._bell)
        self._async.stop()
        self._async.close()

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            context = zmq.Context()
            try:
                with _dealer(context, self._address) as control, _dealer(context, self._address) as bulk:
                    self._serve(control, bulk)
            finally:
                context.term()
        except BaseException as error:  # noqa: BLE001 - a thread that dies unheard would leave the worker deaf
            self.error = describe(error)
        finally:
            self._done.release()
            self._ring()

    def _serve(self, control: Any, bulk: Any) -> None:
        poller = zmq.Poller()
        for each in (control, bulk, self._bell):
            poller.register(each, zmq.POLLIN)
        hello_due_s = float("-inf")
        while not self._closing:
            now_s = monotonic_s()
            wait_s = min(self._member.due_s(now_s), self._bulk.due_s(now_s), now_s + LONGEST_POLL_S) - now_s
            ready = dict(poller.poll(math.ceil(1000 * max(0.0, wait_s))))
            if self._bell in ready:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._bell)
            heard = self._hear(control) if control in ready else False
            heard = (self._hear(bulk) if bulk in ready else False) or heard
            while self._told:
                self._told.popleft()(self._member)
            now_s = monotonic_s()
            if self._watch is not None:
                self._watch.look(now_s)
            for message in self._member.sends(now_s):
                _send(control, message)
            epoch = self._member.epoch
            if epoch is not None and not self._member.over:
                if now_s >= hello_due_s:
                    hello_due_s = now_s + BULK_HELLO_EVERY_S
                    _send(bulk, BulkHello(epoch=epoch))
                for message in self._bulk.sends(epoch, now_s):
                    _send(bulk, message)
            if heard or self._member.notices:
                self._ring()

    def _hear(self, socket: Any) -> bool:
        heard = False
        while True:
            try:
                data = socket.recv(zmq.DONTWAIT)
            except zmq.Again:
                return heard
            try:
                message = codec.decode_from_master(data)
            except WireError as error:
                self._garbage(error)
                continue
            self._take(message)
            heard = True

    def _take(self, message: FromMaster) -> None:
        now_s = monotonic_s()
        if isinstance(message, AssetPiece | WantFile | Fetched):
            self._bulk.hear(message, now_s)
        else:
            self._member.hear(message, now_s)

    def _garbage(self, error: WireError) -> None:
        self.garbage += 1
        if self.garbage > GARBAGE_TAKEN:
            raise WireError(f"what answers at {self._address} is no master of voicebench: {error}")

    def _ring(self) -> None:
        with contextlib.suppress(Exception):  # the loop may be gone already
            self._async.send()


def _dealer(context: zmq.Context[Any], address: str) -> Any:
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, LINGER_MS)
    socket.setsockopt(zmq.IMMEDIATE, 1)  # nothing piles up for a master that is not there
    socket.setsockopt(zmq.IPV6, 1)
    socket.setsockopt(zmq.SNDHWM, 1000)
    socket.setsockopt(zmq.MAXMSGSIZE, codec.MAX_BYTES)
    socket.setsockopt(zmq.HEARTBEAT_IVL, 1000)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3000)
    socket.setsockopt(zmq.RECONNECT_IVL, CONNECT_EVERY_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, CONNECT_AT_MOST_EVERY_MS)
    socket.connect(address)
    return socket


def _send(socket: Any, message: FromWorker) -> None:
    """Never waits: whatever can't go now is said again, or asked for again."""
    with contextlib.suppress(zmq.Again):
        socket.send(codec.encode(message), zmq.DONTWAIT)
