"""One snapshot a second to every open page: each at its own pace, and none in another's way."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from tests.page.test_addresses import FakeRun, Running, a_picture
from voicebench.page import feed as feed_module
from voicebench.page import server as server_module


@pytest.fixture
def page() -> Iterator[Running]:
    running = Running(FakeRun())
    yield running
    running.close()


class Reader:
    """A browser's end of a stream."""

    def __init__(self, page: Running, *, buffer_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        if buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        self.socket.settimeout(10)
        self.socket.connect(("127.0.0.1", page.port))
        self.socket.sendall(f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1:{page.port}\r\n\r\n".encode())
        self._heard = b""

    def until(self, wanted: bytes) -> bytes:
        """Everything heard, once this is in it."""
        while wanted not in self._heard:
            more = self.socket.recv(65536)
            assert more, f"the stream ended without {wanted!r}: {self._heard[-200:]!r}"
            self._heard += more
        return self._heard

    def ended(self) -> bool:
        try:
            while self.socket.recv(1 << 20):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    def close(self) -> None:
        self.socket.close()


def test_a_stream_begins_with_the_latest_and_goes_on_with_each_new_one(page):
    page.run.picture = a_picture(7)
    reader = Reader(page)
    heard = reader.until(b'event: turns\ndata: {"rows":[7]}')
    assert b"Content-Type: text/event-stream" in heard
    assert b'id: 7\nevent: snapshot\ndata: {"seq":7,' in heard
    page.run.picture = a_picture(8)
    reader.until(b"id: 8\n")
    page.run.picture = a_picture(9)
    reader.until(b"id: 9\n")
    reader.close()


def test_the_table_of_turns_comes_with_every_second_snapshot(page):
    reader = Reader(page)
    reader.until(b"id: 1\n")
    for seq in range(2, 8):
        page.run.picture = a_picture(seq)
        reader.until(b"id: %d\n" % seq)
        time.sleep(0.1)
    heard = reader.until(b"id: 7\n")
    assert [n for n in range(1, 8) if b'{"rows":[%d]}' % n in heard] == [1, 2, 4, 6]
    reader.close()


def test_pages_that_never_read_are_let_go_and_hold_up_nobody(monkeypatch):
    monkeypatch.setattr(server_module, "SILENT_S", 1.0)
    page = Running(FakeRun())
    silent = [Reader(page, buffer_bytes=4096) for _ in range(20)]
    reader = Reader(page)
    reader.until(b"id: 1\n")
    late_s = []
    for seq in range(2, 60):
        page.run.picture = a_picture(seq, 16_000)
        began_s = time.monotonic()
        reader.until(b"id: %d\n" % seq)
        late_s.append(time.monotonic() - began_s)
        time.sleep(0.05)
    assert max(late_s) < 1.0
    deadline = time.monotonic() + 10
    while page.page.n_streams > 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert page.page.n_streams == 1
    assert all(each.ended() for each in silent)
    for each in (reader, *silent):
        each.close()
    page.close()


def test_there_are_so_many_streams_and_no_more(monkeypatch, page):
    monkeypatch.setattr(feed_module, "MAX_STREAMS", 3)
    readers = [Reader(page) for _ in range(3)]
    for reader in readers:
        reader.until(b"id: 1\n")
    refused = page.ask("GET", "/api/events")
    assert refused.status == 503
    assert "asks every two seconds" in refused.json["error"]
    readers[0].close()
    deadline = time.monotonic() + 10
    while page.page.n_streams == 3 and time.monotonic() < deadline:
        page.run.picture = a_picture(page.run.picture.seq + 1)  # a page that has gone is noticed when it is written to
        time.sleep(0.1)
    again = Reader(page)
    again.until(b"event: snapshot\n")
    for reader in (*readers, again):
        reader.close()


def test_the_last_picture_reaches_open_pages_before_the_master_goes(page):
    reader = Reader(page)
    reader.until(b"id: 1\n")
    page.run.picture = a_picture(2)
    page.close()
    reader.until(b"id: 2\n")
    assert reader.ended()
    reader.close()


def test_a_page_that_reads_nothing_does_not_keep_the_master(page):
    reader = Reader(page, buffer_bytes=4096)
    for seq in range(2, 40):
        page.run.picture = a_picture(seq, 16_000)
        time.sleep(0.06)
    began_s = time.monotonic()
    page.close()
    assert time.monotonic() - began_s < 5.0
    reader.close()
