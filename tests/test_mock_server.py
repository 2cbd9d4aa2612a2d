"""The mock agent behind a real socket, and its command."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gevent
import numpy as np
import pytest
from click.testing import CliRunner

from tests.support.sockets import SESSION, Caller, calling, transport
from voicebench import cli, errors
from voicebench.clock import monotonic_s
from voicebench.errors import AgentError
from voicebench.events import AgentAudio, AgentClear, AgentClosed, AgentTranscript
from voicebench.mock_delivery import ServerOptions
from voicebench.mock_server import MockServer, serve
from voicebench.scenario.adapter_options import MockOptions

pytestmark = pytest.mark.slow

FRAME = 320
SPEECH = (8000 * np.sin(np.arange(FRAME))).astype(np.int16)
SILENCE = np.zeros(FRAME, dtype=np.int16)


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch):
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


class Truth(io.StringIO):
    """A truth log in memory."""

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]

    def events(self) -> list[str]:
        return [line["event"] for line in self.lines()]


@contextmanager
def mock(
    truth: Truth | None = None, sample_rate_hz: int = 16000, tester: dict | None = None, **options: Any
) -> Iterator[MockServer]:
    server = serve(
        "127.0.0.1",
        0,
        sample_rate_hz=16000,
        options=MockOptions(**options),
        tester=ServerOptions(**(tester or {})),
        truth=truth,
    )
    try:
        yield server
    finally:
        server.stop()


def say(caller: Caller, server: MockServer, samples: np.ndarray, times: int = 1) -> None:
    """Send frames as fast as they go: the agent's clock is the audio, not the wall."""
    ready = transport(server.url).ready_frame(samples)
    for _ in range(times):
        caller.send(caller.live.line.wrap(ready))


def audio_samples(events: list) -> int:
    return sum(len(event.samples) for event in events if isinstance(event, AgentAudio))


def hang_up(caller: Caller) -> None:
    caller.send(caller.live.line.hang_up())
    caller.listen_until(lambda _: False)


def test_a_turn_is_answered_with_transcript_and_reply():
    truth = Truth()
    with mock(truth, transcripts=("hello there",), response_ms=400) as server, calling(transport(server.url)) as caller:
        say(caller, server, SPEECH, 10)
        say(caller, server, SILENCE, 100)
        events = caller.listen_until(lambda events: audio_samples(events) >= 6400)
        hang_up(caller)
    transcript, *audio, _closed = events
    assert isinstance(transcript, AgentTranscript)
    assert transcript.text == "hello there"
    assert audio_samples(audio) == 6400
    assert max(np.abs(event.samples).max() for event in audio) > 1000
    assert truth.events() == ["connected", "user_speech_end", "first_audio", "last_audio", "ended"]
    assert truth.lines()[-1]["why"] == "caller closed, code 1000"


def test_the_truths_clock_is_ours_and_its_order_is_that_of_things():
    truth = Truth()
    before_s = monotonic_s()
    options = {"endpoint_silence_ms": 40, "response_delay_ms": 40, "response_ms": 100}
    with mock(truth, **options) as server, calling(transport(server.url)) as caller:
        say(caller, server, SPEECH, 5)
        say(caller, server, SILENCE, 20)
        caller.listen_until(lambda events: audio_samples(events) >= 1600)
        hang_up(caller)
    at_s = {line["event"]: line["t"] for line in truth.lines()}
    order = [at_s[event] for event in ("connected", "user_speech_end", "first_audio", "last_audio", "ended")]
    assert order == sorted(order)
    assert before_s - 1e-6 <= order[0]
    assert order[-1] <= monotonic_s() + 1e-6


def test_a_barge_in_is_answered_with_a_clear():
    truth = Truth()
    with mock(truth, greeting_ms=3000) as server, calling(transport(server.url)) as caller:
        say(caller, server, SILENCE, 10)
        say(caller, server, SPEECH, 30)
        events = caller.listen_until(lambda events: any(isinstance(event, AgentClear) for event in events))
        hang_up(caller)
    assert isinstance(events[0], AgentAudio)
    assert truth.events() == ["connected", "first_audio", "barge_in", "clear", "ended"]


@pytest.mark.parametrize("way", ["query", "start message"])
def test_a_connection_may_have_its_own_rate(way: str):
    truth = Truth()
    with mock(truth, greeting_ms=100) as server:
        url = server.url + ("/?rate=8000" if way == "query" else "")
        start = None if way == "query" else {"sample_rate": 8000}
        with calling(transport(url, start_message=start)) as caller:
            say(caller, server, SILENCE[:160], 10)
            events = caller.listen_until(lambda events: audio_samples(events) >= 800)
            hang_up(caller)
    assert audio_samples(events) == 800
    assert truth.lines()[2]["media_s"] == 0.1


@pytest.mark.parametrize("rate", ["100", "x", "1e9"])
def test_a_rate_that_makes_no_sense_is_refused(rate: str):
    with mock() as server, pytest.raises(AgentError, match="HTTP 400"):
        transport(f"{server.url}/?rate={rate}").open(SESSION)


def test_a_rate_that_makes_no_sense_in_a_start_message_closes_the_line():
    with mock() as server, calling(transport(server.url, start_message={"sample_rate": 7})) as caller:
        (closed,) = caller.listen_until(lambda _: False)
    assert isinstance(closed, AgentClosed)
    assert closed.code == 1008


@pytest.mark.parametrize("way", ["header", "query"])
def test_the_truth_names_the_session(way: str):
    truth = Truth()
    with mock(truth) as server:
        url = server.url + ("/?session={session_id}" if way == "query" else "")
        headers = {"X-Voicebench-Session": "{session_id}"} if way == "header" else {}
        with calling(transport(url, headers=headers)) as caller:
            hang_up(caller)
    assert [(line["event"], line["session"], line["connection"]) for line in truth.lines()] == [
        ("connected", "s-1", 0),
        ("ended", "s-1", 0),
    ]


def test_a_share_of_connections_is_refused_and_the_truth_says_which():
    def outcome(server: MockServer) -> str:
        try:
            with calling(transport(server.url)) as caller:
                hang_up(caller)
        except AgentError as error:
            return error.reason
        return "fine"

    truth = Truth()
    with mock(truth, tester={"fail_rate": 0.5}, seed=3) as server:
        first = [outcome(server) for _ in range(30)]
    with mock(tester={"fail_rate": 0.5}, seed=3) as server:
        assert [outcome(server) for _ in range(30)] == first
    assert set(first) == {"fine", "limited"}
    told = [line["connection"] for line in truth.lines() if line["event"] == "refused"]
    assert told == [number for number, reason in enumerate(first) if reason == "limited"]


@pytest.mark.parametrize("talking", [True, False])
def test_it_hangs_up_when_told_to(talking: bool):
    truth = Truth()
    with mock(truth, tester={"hangup_after_ms": 100}) as server, calling(transport(server.url)) as caller:

        def enough(_: list) -> bool:
            if talking:
                say(caller, server, SILENCE)
            return False

        (closed,) = caller.listen_until(enough)
    assert (closed.code, closed.reason) == (1000, "agent_hangup")
    connected, ended = truth.lines()
    assert 0.09 < ended["t"] - connected["t"] < 2.0
    assert "hangup-after-ms" in ended["why"]


def test_a_burst_of_zero_sends_the_reply_ahead():
    with mock(greeting_ms=2000, tester={"burst": 0.0}) as server, calling(transport(server.url)) as caller:
        say(caller, server, SILENCE)
        assert audio_samples(caller.listen_until(lambda events: audio_samples(events) >= 32000)) == 32000


def test_beyond_capacity_every_session_slows_the_answers_down():
    truth = Truth()
    with mock(truth, endpoint_silence_ms=20, tester={"capacity": 1}) as server:
        to = transport(server.url)
        with calling(to) as caller, calling(to) as another, calling(to) as third:
            say(caller, server, SPEECH, 5)
            say(caller, server, SILENCE, 40)
            caller.listen_until(audio_samples)
            for each in (caller, another, third):
                hang_up(each)
    (line,) = (line for line in truth.lines() if line["event"] == "user_speech_end")
    assert line["extra_delay_ms"] == 100.0
    (first,) = (line for line in truth.lines() if line["event"] == "first_audio")
    # 100 ms of speech, 20 ms endpoint, 400 ms delay, 100 ms for two sessions too many; and the frame being heard.
    assert first["media_s"] == 0.64


def test_stopping_the_server_says_goodbye_to_everybody():
    truth = Truth()
    with mock(truth) as server:
        caller = Caller(transport(server.url).open(SESSION))
        gevent.spawn(server.stop)
        (closed,) = caller.listen_until(lambda _: False)
        caller.live.sock.close()
    assert (closed.code, closed.reason) == (1001, "agent_hangup")
    assert truth.lines()[-1]["why"] == "server stopped"


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x00\x01\x02\r\n\r\n", b"POST / HTTP/1.1\r\n\r\n", b"", b"GET / HTTP/1.1\r\n" * 9],
)
def test_strangers_do_no_harm(garbage: bytes):
    with mock(greeting_ms=100) as server:
        with gevent.socket.create_connection(("127.0.0.1", server.port)) as stranger:
            stranger.sendall(garbage)
            stranger.shutdown(gevent.socket.SHUT_WR)
            while stranger.recv(1000):
                pass
        with calling(transport(server.url)) as caller:
            say(caller, server, SILENCE, 5)
            assert caller.listen_until(audio_samples)


@pytest.mark.parametrize(
    ("send", "why"),
    [
        (lambda caller: caller.send(b"\xff\xff\xff\xff"), "broke the protocol"),
        (lambda caller: caller.live.sock.close(), "without a close"),
    ],
)
def test_a_caller_that_misbehaves_is_told_apart_in_the_truth(send: Callable[[Caller], None], why: str):
    truth = Truth()
    with mock(truth) as server:
        caller = Caller(transport(server.url).open(SESSION))
        send(caller)
        with gevent.Timeout(5):
            while "ended" not in truth.events():
                gevent.sleep(0.005)
        caller.live.sock.close()
    assert why in truth.lines()[-1]["why"]


def test_a_hundred_callers_at_once_are_all_answered():
    with mock(greeting_ms=200) as server:
        to = transport(server.url)
        ready = to.ready_frame(SILENCE)

        def call() -> int:
            with calling(to) as caller:
                for _ in range(10):
                    caller.send(ready)
                    gevent.sleep(0.01)
                return audio_samples(caller.listen_until(lambda events: audio_samples(events) >= 3200))

        calls = [gevent.spawn(call) for _ in range(100)]
        gevent.joinall(calls, raise_error=True)
        assert {greenlet.get() for greenlet in calls} == {3200}
        assert server.service.sessions <= 100


def test_a_taken_port_is_our_own_trouble():
    with mock() as server, pytest.raises(errors.TesterError, match="is taken"):
        serve("127.0.0.1", server.port, sample_rate_hz=16000, options=MockOptions())


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_prints_its_url_and_ends_cleanly_on_a_signal(number: signal.Signals, tmp_path: Path):
    truth = tmp_path / "truth.jsonl"
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "voicebench",
            "mock-server",
            "--port",
            "0",
            "--truth",
            str(truth),
            "-o",
            "greeting_ms=100",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        listening, on, url = process.stdout.readline().split()
        assert (listening, on) == ("listening", "on")
        caller = Caller(transport(url).open(SESSION))
        process.send_signal(number)
        (closed,) = caller.listen_until(lambda _: False)
        caller.live.sock.close()
        assert closed.code == 1001
        assert process.wait(timeout=10) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert [json.loads(line)["event"] for line in truth.read_text().splitlines()] == ["connected", "ended"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "0.0.0.0"], "--insecure"),
        (["--host", "agent.example"], "--insecure"),
        (["--stutter", "200"], "GAP_MS@PLACE_MS"),
        (["-o", "response_delay_ms"], "KEY=VALUE"),
        (["-o", "response_dealy_ms=3"], "response_delay_ms"),
        (["--tls-key", "k.pem"], "--tls-cert"),
        (["--tls-cert", "/no/such/cert.pem"], "can't be used"),
        (["--truth", "/no/such/folder/truth.jsonl"], "can't be written"),
        (["--burst", "-1"], "--burst"),
        (["--fail-rate", "2"], "--fail-rate"),
    ],
)
def test_what_the_command_cannot_do_is_exit_code_2_with_a_remedy(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
):
    assert cli.main(["mock-server", "--port", "0", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_the_help_names_every_flag_and_option_of_the_agent():
    from voicebench.cli.mock_server import command

    text = CliRunner().invoke(command, ["--help"]).output
    flags = [parameter.opts[0] for parameter in command.params]
    for name in [*flags, *(field.name for field in dataclasses.fields(MockOptions))]:
        assert name in text, name
