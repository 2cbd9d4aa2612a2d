"""The page's addresses, asked over a real socket: what they give, and what they refuse to whom."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent.event import AsyncResult

from voicebench.errors import UsageError
from voicebench.master.picture import Picture
from voicebench.page.app import FILE_TYPES
from voicebench.page.guard import Guard
from voicebench.page.server import Page, listen, page_address, url_of
from voicebench.page.source import NotNowError


@dataclass
class FakeRun:
    """A source that does what a test says."""

    picture: Picture | None = field(default_factory=lambda: a_picture(1))
    folder: Path | None = None
    asked: list[str] = field(default_factory=list)
    refuses: str = ""

    def history(self) -> bytes:
        if self.refuses == "crash":
            raise RuntimeError("no history")
        return b'{"version": 1}'

    def start(self) -> None:
        self._take("start")

    def stop(self, how: str) -> None:
        self._take(how)

    def _take(self, what: str) -> None:
        if self.refuses:
            raise NotNowError(self.refuses)
        self.asked.append(what)

    def file(self, name: str) -> Path | None:
        path = None if self.folder is None else self.folder / name
        return path if path is not None and path.is_file() else None


def a_picture(seq: int, size: int = 0) -> Picture:
    return Picture(seq, b'{"seq":%d,"fill":"%s"}' % (seq, b"x" * size), b'{"rows":[%d]}' % seq)


class Running:
    """A page in a thread of its own, as it would be in a process of its own."""

    def __init__(self, run: FakeRun) -> None:
        self.run = run
        self.guard = Guard("127.0.0.1")
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        assert self._ready.wait(10)

    def _serve(self) -> None:
        listener = listen("127.0.0.1", 0, exactly=True)
        self.port = listener.getsockname()[1]
        self.page = Page(self.run, self.guard, listener)
        self._ended = gevent.get_hub().loop.async_()
        over = AsyncResult()
        self._ended.start(lambda: over.set(None))
        self._ready.set()
        over.get()
        self.page.close()
        listener.close()

    def close(self) -> None:
        self._ended.send()
        self._thread.join(10)

    def ask(self, method: str, path: str, body: Any = None, **headers: str | None) -> Answer:
        host = f"127.0.0.1:{self.port}"
        sent = {"Host": host}
        if method == "POST":
            sent |= {
                "Origin": f"http://{host}", "X-CSRF-Token": self.guard.csrf, "Content-Type": "application/json",
                "Sec-Fetch-Site": "same-origin",
            }  # fmt: skip
        for name, value in headers.items():
            sent[name.replace("_", "-")] = value or ""
            if value is None:
                del sent[name.replace("_", "-")]
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)) as connection:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
            for name, value in {**sent, "Content-Length": str(len(content))}.items():
                connection.putheader(name, value)
            connection.endheaders(content)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@pytest.fixture
def page(tmp_path) -> Iterator[Running]:
    running = Running(FakeRun(folder=tmp_path))
    yield running
    running.close()


# --- what is given ---


def test_the_page_its_style_and_its_modules_are_there_under_a_strict_policy(page):
    index = page.ask("GET", "/")
    assert index.status == 200
    policy = index.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    assert index.headers["X-Content-Type-Options"] == "nosniff"
    assert b"<script" in index.body
    assert page.ask("GET", "/js/main.js").headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert page.ask("GET", "/style.css").status == 200


def test_what_is_compressed_is_the_same_and_what_is_known_is_not_sent_again(page):
    plain = page.ask("GET", "/style.css")
    packed = page.ask("GET", "/style.css", Accept_Encoding="gzip, br")
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    again = page.ask("GET", "/style.css", If_None_Match=plain.headers["ETag"])
    assert (again.status, again.body) == (304, b"")


def test_the_api_gives_what_the_master_has_made(page):
    assert page.ask("GET", "/api/run").json == {"version": 1}
    snapshot = page.ask("GET", "/api/snapshot")
    assert (snapshot.body, snapshot.headers["Cache-Control"]) == (page.run.picture.snapshot, "no-store")


def test_before_the_first_snapshot_it_says_so(page):
    page.run.picture = None
    answer = page.ask("GET", "/api/snapshot")
    assert answer.status == 409
    assert "no snapshot yet" in answer.json["error"]


def test_reports_are_given_by_name_and_nothing_else_of_the_folder(page, tmp_path):
    (tmp_path / "report.html").write_text("<p>report</p>")
    (tmp_path / "run.db").write_text("secret")
    assert page.ask("GET", "/files/report.html").body == b"<p>report</p>"
    assert "script" not in page.ask("GET", "/files/report.html").headers["Content-Security-Policy"]
    for name in ("run.db", "report.md", "..%2frun.db", "%2e%2e/run.db", "report.html%00"):
        assert page.ask("GET", f"/files/{name}").status == 404, name
    assert "run.db" not in FILE_TYPES


@pytest.mark.parametrize(
    "path", ["/nothing", "/js/../../pyproject.toml", "/%2e%2e/pyproject.toml", "/package.json", "/api/"]
)
def test_what_is_not_there_is_not_there(page, path):
    answer = page.ask("GET", path)
    assert answer.status == 404
    assert answer.json["error"]


def test_start_and_stop_are_passed_on(page):
    assert page.ask("POST", "/api/start").status == 200
    assert page.ask("POST", "/api/stop", {"how": "drain"}).status == 200
    assert page.ask("POST", "/api/stop", {"how": "cut"}).status == 200
    assert page.ask("POST", "/api/stop").status == 200
    assert page.run.asked == ["start", "drain", "cut", "drain"]


def test_what_the_master_would_not_do_is_refused_with_its_sentence(page):
    page.run.refuses = "the run has begun already"
    answer = page.ask("POST", "/api/start")
    assert (answer.status, answer.json) == (409, {"error": "the run has begun already"})


def test_a_fault_of_our_own_is_an_answer_and_on_stderr(page, capfd):
    page.run.refuses = "crash"
    answer = page.ask("GET", "/api/run")
    assert answer.status == 500
    assert "RuntimeError: no history" in capfd.readouterr().err


# --- what is refused ---


@pytest.mark.parametrize(
    ("headers", "status", "why"),
    [
        ({"Origin": None}, 403, "no Origin"),
        ({"Origin": "http://evil.example"}, 403, "not from http://evil.example"),
        ({"Origin": "null"}, 403, "not from null"),
        ({"Origin": "http://127.0.0.1:1"}, 403, "not from"),
        ({"X_CSRF_Token": None}, 403, "X-CSRF-Token is missing"),
        ({"X_CSRF_Token": "guess"}, 403, "X-CSRF-Token is missing"),
        ({"Sec_Fetch_Site": "cross-site"}, 403, "another site"),
        ({"Sec_Fetch_Site": "same-site"}, 403, "another site"),
        ({"Content_Type": "text/plain"}, 415, "application/json"),
        ({"Host": "evil.example:8089"}, 403, "not to evil.example"),
        ({"Host": None}, 403, "without a host"),
        ({"Host": "[::1"}, 403, "answers to localhost"),
    ],
)
def test_a_change_that_is_not_the_pages_own_is_refused(page, headers, status, why):
    answer = page.ask("POST", "/api/stop", {"how": "cut"}, **headers)
    assert answer.status == status
    assert why in answer.json["error"]
    assert page.run.asked == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b'{"how": 1}', 400),
        (b'{"how": "x"}', 400),
        (b'{"path": "/"}', 400),
        (b"{" * 2000, 413),
    ],
)
def test_a_body_that_makes_no_sense_is_refused(page, body, status):
    assert page.ask("POST", "/api/stop", body).status == status
    assert page.run.asked == []


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8089", "127.0.0.1.evil.example"])
def test_a_name_that_was_pointed_here_reads_nothing(page, host):
    for path in ("/", "/api/run", "/api/snapshot", "/api/events"):
        assert page.ask("GET", path, Host=host).status == 403


def test_another_site_reads_nothing_but_may_link_here(page):
    assert page.ask("GET", "/api/snapshot", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors").status == 403
    assert page.ask("GET", "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate").status == 200
    assert "Access-Control-Allow-Origin" not in page.ask("GET", "/api/run").headers


def test_a_tunnels_port_and_ipv6_are_fine(page):
    for host in ("localhost:9000", "[::1]:8089", "127.0.0.1"):
        assert page.ask("GET", "/api/snapshot", Host=host).status == 200


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_change_nothing(page, method):
    assert page.ask(method, "/api/stop").status in (403, 405)
    assert page.run.asked == []


def test_garbage_on_the_socket_harms_nobody(page):
    for garbage in (
        b"\x00\xff" * 500,
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET " + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01",
    ):
        with socket.create_connection(("127.0.0.1", page.port), timeout=5) as raw:
            raw.sendall(garbage)
            raw.settimeout(0.3)
            with suppress(OSError):
                raw.recv(1000)
    assert page.ask("GET", "/api/snapshot").status == 200


# --- where it listens ---


@pytest.mark.parametrize(
    "text", ["0.0.0.0", "0.0.0.0:80", "10.0.0.7:8089", "[::]:8089", "example.org:80", "127.0.0.1:x", "localhost:99999"]
)
def test_an_address_that_is_not_of_this_machine_or_none_is_refused(text):
    with pytest.raises(UsageError, match=r"--page .*: "):
        page_address(text)


def test_a_port_that_was_asked_for_and_is_taken_is_refused_and_another_gives_way():
    first = listen("127.0.0.1", 0, exactly=True)
    port = first.getsockname()[1]
    with pytest.raises(UsageError, match="--headless"):
        listen("127.0.0.1", port, exactly=True)
    second = listen("127.0.0.1", port, exactly=False)
    assert url_of(second) != url_of(first)
    first.close()
    second.close()
