"""One session on its socket: what goes out, what comes in, and how it ends."""

import contextlib
import fcntl
import resource
import socket
import struct
from unittest import mock

import gevent
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.protocol import State
from websockets.uri import parse_uri

from tests.support.hearing_agent import Heard, HearingAgent
from tests.support.placing import Placing, ask, script
from voicebench import session as session_module
from voicebench.events import AgentAudio, AgentClear, AgentClosed, AgentTranscript
from voicebench.playout import Playout
from voicebench.protocols.frames import Opcode, server_frame
from voicebench.protocols.pcm import PcmCodec
from voicebench.protocols.websocket import WebSocketLine
from voicebench.recording import Recording
from voicebench.records import Outcome
from voicebench.scenario.model import VadSettings
from voicebench.script import Script
from voicebench.session import Session
from voicebench.worker import call as call_module
from voicebench.worker.adapters.base import LiveSocket
from voicebench.worker.call import Call, make_ready
from voicebench.worker.routes import _say_goodbye

LOUD = np.full(320, 4000, np.int16)


class Line:
    """A protocol of which nothing matters here: bytes are frames."""

    closed = False
    failure = None
    sends_as_is = True

    def audio(self, data: bytes):
        return None

    def head(self, data: bytes) -> bytes:
        return b""

    def receive(self, data: bytes, time_s: float):
        return [AgentAudio(LOUD, time_s)] if data else [AgentClosed(time_s, None, "gone")]

    def broken(self, why: str, time_s: float):
        return [AgentClosed(time_s, None, why)]

    def wrap(self, ready: bytes) -> bytes:
        return ready

    def outgoing(self) -> bytes:
        return b""

    def hang_up(self) -> bytes:
        return b"bye"


@pytest.fixture
def pair():
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def call(pair) -> Call:
    made = Call(make_ready(script(), lambda samples: samples.tobytes()), LiveSocket(pair[0], Line()))
    made.start(0.0)
    return made


def tick(call: Call, n: int = 1) -> bool:
    """So many frames, each exactly when it is due."""
    goes_on = True
    for _ in range(n):
        goes_on = call.due(call.due_s, 1.0)
    return goes_on


# ---------------------------------------------------------------- ready frames


def test_each_frame_is_encoded_once_and_silence_is_shared():
    of, encoded = script(), []
    ready = make_ready(of, lambda samples: encoded.append(samples.copy()) or samples.tobytes())
    assert len(encoded) == sum(of.clip_frames) + 1
    assert b"".join(ready.frames[0])[: len(of.clips[0]) * 2] == of.clips[0].tobytes()
    assert ready.silence == bytes(2 * of.frame_samples)


# ---------------------------------------------------------------- a call, tick by tick


def test_frames_are_due_on_the_scripts_grid_counted_from_time_0(call):
    call.start(7.0)
    tick(call, 3)
    assert call.due_s == pytest.approx(7.06)


def test_lateness_has_one_value_for_each_frame_sent(call):
    tick(call, 5)
    call.ending = Outcome("cut")
    assert not tick(call)
    late = call.lateness()
    assert len(late.send_ms) == len(late.drain_gap_ms) == call.session.ticks == 5
    assert late.drain_gap_ms.tolist() == [1.0] * 5


def test_a_cut_ends_the_session_before_the_next_frame(call):
    tick(call, 2)
    call.ending = Outcome("cut", None, "cut by the end of the run")
    assert not tick(call)
    assert call.session.outcome == Outcome("cut", None, "cut by the end of the run")
    assert call.session.ticks == 2


def test_a_second_late_is_our_own_failure_and_says_how_late(call):
    tick(call, 3)
    assert not call.due(call.due_s + 1.5, 1.0)
    assert call.session.outcome.reason == "generator"
    assert "1500 ms late" in call.session.outcome.detail
    assert "at 0.1 s, in turn 1 of 1" in call.session.outcome.detail


def test_a_second_late_wins_over_what_the_agent_did_meanwhile(call, pair):
    tick(call, 3)
    pair[1].close()
    gevent.sleep(0.01)
    call.look(0.0, 0.0)
    assert not call.due(call.due_s + 1.5, 1.0)
    assert call.session.outcome.reason == "generator"


def test_bytes_the_kernel_did_not_take_follow_in_order(call, pair, monkeypatch):
    of, sent = call.session.script, []

    class Reluctant:
        """Takes 100 bytes at a time, and now and then none."""

        def __getattr__(self, name):
            return getattr(pair[0], name)

        def send(self, data: bytes) -> int:
            if len(sent) % 3 == 2:
                sent.append(b"")
                raise BlockingIOError
            sent.append(bytes(data[:100]))
            return len(sent[-1])

    call.live = LiveSocket(Reluctant(), Line())
    tick(call, 12)
    got = b"".join(sent)
    expected = np.concatenate([np.zeros(5 * of.frame_samples, np.int16), of.clips[0]]).tobytes()
    assert got == expected[: len(got)]
    assert len(call.unsent) == 12 * 640 - len(got)


def test_a_backlog_of_a_second_ends_the_session_as_the_agents_doing(call, monkeypatch):
    monkeypatch.setattr(call_module, "_queued_bytes", lambda sock: 40_000)
    tick(call, call_module.QUEUE_TICKS)
    assert call.session.outcome.reason == "protocol"
    assert "does not read" in call.session.outcome.detail


def test_what_the_kernel_holds_and_the_other_side_has_not_taken_is_counted(pair):
    ours, theirs = pair
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sent = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            sent += ours.send(bytes(4096))
    assert 0 < call_module._queued_bytes(ours) <= sent


def test_a_look_reads_a_burst_whole(call, pair):
    pair[1].sendall(bytes(100_000))
    gevent.sleep(0.02)
    call.look(0.0, 0.0)
    with pytest.raises(BlockingIOError):
        pair[0].recv(1)


def test_a_look_stops_after_a_while_and_the_rest_keeps_its_earliest_arrival(call, pair, monkeypatch):
    pair[1].sendall(bytes(5000))
    gevent.sleep(0.02)
    clock = iter(np.arange(1000) * 0.01)
    monkeypatch.setattr(call_module, "monotonic_s", lambda: float(next(clock)))
    call.look(-3.0, 0.0)
    assert call._unread_since_s == -3.0
    assert pair[0].recv(8192)


def test_a_reset_that_our_send_meets_first_still_lets_the_agents_last_words_be_read(call, pair):
    theirs = pair[1]
    theirs.sendall(b"last words")
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()
    gevent.sleep(0.01)
    tick(call, 3)
    assert not call.session.over
    call.look(0.0, 0.0)
    assert call.session._log.n_packets == 1


def test_a_reset_without_last_words_drops_the_session(call, pair):
    pair[1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    pair[1].close()
    gevent.sleep(0.01)
    assert not tick(call, 3)
    assert call.session.outcome.reason == "dropped"
    assert "Connection reset by peer" in call.session.outcome.detail


@pytest.mark.parametrize("high", [False, True])
def test_a_broken_send_asks_no_select_that_knows_only_a_thousand_descriptors(call, pair, high):
    """`select.select` raises above 1023: with a thousand sessions that took the whole pacer down."""
    if high:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < 2000:
            pytest.skip("this system allows no descriptors above 1023")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
        moved = socket.socket(fileno=fcntl.fcntl(pair[0], fcntl.F_DUPFD, 1500))
        pair[0].close()
        moved.setblocking(False)
        call.live = LiveSocket(moved, Line())
    pair[1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    pair[1].close()
    gevent.sleep(0.01)
    tick(call, 3)
    call.hang_up()
    call.live.sock.close()
    assert call.session.outcome.reason == "dropped"


# ---------------------------------------------------------------- on the wire


@pytest.mark.slow
@pytest.mark.alone
def test_the_agent_gets_every_frame_of_the_recorded_user_track_bit_for_bit_and_a_clean_close():
    def on_frame(heard: Heard) -> None:
        if 40 <= len(heard.frames) < 55:
            heard.say(LOUD.tobytes())

    with HearingAgent(on_frame).listening() as agent, Placing() as placing:
        placed = placing.run([placing.way(agent.url, script())] * 5).placed
        gevent.sleep(0.05)
    by_audio = sorted(b"".join(heard.frames) for heard in agent.connections)
    assert by_audio == sorted(each.recording.user.tobytes() for each in placed)
    assert all(len(each.recording.lateness.send_ms) == each.sent_frames for each in placed)
    assert sorted(len(heard.frames) for heard in agent.connections) == sorted(each.sent_frames for each in placed)
    assert [heard.close_code for heard in agent.connections] == [1000] * 5


@pytest.mark.slow
@pytest.mark.alone
def test_frames_and_the_close_that_wait_in_our_own_queue_are_delivered_after_the_session(pair):
    ours, theirs = pair
    theirs.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while ours.send(bytes(65536)):
            pass
    waiting, got = bytearray(b"x" * 300_000 + b"bye"), []

    def read_late() -> None:
        gevent.sleep(0.1)
        while not got or not got[-1].endswith(b"bye"):
            gevent.sleep(0.001)
            with contextlib.suppress(BlockingIOError):
                got.append(theirs.recv(65536))

    reader = gevent.spawn(read_late)
    _say_goodbye(LiveSocket(ours, Line()), waiting)
    reader.join(timeout=5)
    assert not waiting
    assert b"".join(got).endswith(b"x" * 300_000 + b"bye")


# ---------------------------------------------------------------- what a session lets an agent send


def fresh(**rest) -> Session:
    return Session(script(**rest))


def ended(session: Session) -> Outcome:
    session.step(0)
    assert session.outcome is not None
    return session.outcome


def test_ten_minutes_of_audio_may_wait_to_be_heard_and_no_more():
    session = fresh()
    session.hear(AgentAudio(np.zeros(16000 * 600, np.int16), 0.0))
    assert not session.over
    session.hear(AgentAudio(LOUD, 0.0))
    assert ended(session).reason == "protocol"
    assert "more than 10 minutes of audio ahead" in ended(session).detail


def test_what_would_be_heard_after_the_sessions_end_takes_no_memory():
    session = fresh(max_duration_ms=10_000)
    session.hear(AgentAudio(np.full(16000 * 300, 1000, np.int16), 0.0))
    assert session._playout._track.nbytes <= 2 * 16000 * 20
    assert session._playout.queued_until == 16000 * 300


def test_a_clear_drops_what_was_not_kept_as_well():
    playout = Playout(8000, longest=100)
    playout.place(np.ones(80, np.int16), 0.0, horizon=0)
    playout.place(np.ones(80, np.int16), 0.0, horizon=0)
    playout.place(np.ones(80, np.int16), 0.0, horizon=0)
    assert playout.queued_until == 240
    assert playout.clear(50 / 8000, horizon=0) == 190
    playout.place(np.full(10, 2, np.int16), 0.0, horizon=0)
    assert playout.track(100).tolist() == [1] * 50 + [2] * 10 + [0] * 40


def test_messages_without_end_fail_the_session(monkeypatch):
    monkeypatch.setattr(session_module, "MAX_EVENTS", 100)
    session = fresh()
    for _ in range(150):
        session.hear(AgentClear(0.01))
    assert session._log.n_events < 130
    assert ended(session).reason == "protocol"
    assert "floods the line" in ended(session).detail


def test_transcripts_without_end_fail_the_session_but_interim_ones_do_not():
    session = fresh()
    for _ in range(20):
        session.hear(AgentTranscript("user", "x" * 10_000, 0.0, final=False))
        session.hear(AgentTranscript("agent", "x" * 10_000, 0.0))
    assert not session.over
    for _ in range(11):
        session.hear(AgentTranscript("user", "x" * 10_000, 0.0))
    assert ended(session).reason == "protocol"


def test_nothing_is_heard_after_the_agent_has_closed():
    session = fresh()
    session.hear(AgentClosed(0.0, 1000))
    session.hear(AgentAudio(LOUD, 0.0))
    assert session._log.n_packets == 0


def test_levels_measured_in_heaps_are_those_of_single_packets():
    session, rng = fresh(), np.random.default_rng(1)
    packets = [rng.integers(-9000, 9000, int(n)).astype(np.int16) for n in rng.integers(1, 900, 300)]
    packets[7][:] = 0
    for packet in packets:
        session.hear(AgentAudio(packet, 0.0))
    session.end(Outcome("cut"), 1)
    found = session.recording("x", clock="real").packets
    assert found.duration_s.tolist() == [len(packet) / 16000 for packet in packets]
    for packet, level_db in zip(packets, found.level_db, strict=True):
        expected = (
            -120.0 if not packet.any() else 10 * np.log10((packet.astype(float) ** 2).mean()) - 20 * np.log10(32768)
        )
        assert level_db == pytest.approx(max(-120.0, expected), abs=6e-5)


# ---------------------------------------------------------------- stepping only when there is something to decide

acts = st.lists(
    st.tuples(st.sampled_from(["packet", "burst", "quiet", "clear"]), st.integers(0, 20), st.integers(1, 900)),
    max_size=25,
)


def played(of: Script, what: list[tuple[str, int, int]], *, every_tick: bool) -> tuple[Recording, int]:
    """The recording of a session that is stepped at every tick, or only when it asks; and how many steps it took."""
    session, due, at, steps = Session(of), {}, 0, 0
    for kind, ticks, ms in what:
        at += ticks
        due.setdefault(at, []).append((kind, ms))
    tick = wake = 0
    while not session.ended:
        if every_tick or tick >= wake:
            wake, steps = session.step(tick).wake, steps + 1
        for kind, ms in due.get(tick, ()):
            n = round(ms * 16) if kind == "burst" else min(round(ms * 16), 320)
            audio = AgentAudio(np.full(n, 0 if kind == "quiet" else 4000, np.int16), tick * 0.02)
            if session.hear(AgentClear(tick * 0.02) if kind == "clear" else audio):
                wake = 0
        tick += 1
    return session.recording("x", clock="virtual"), steps


@settings(max_examples=150, deadline=None)
@given(acts, st.sampled_from([0, 5, 50]), st.sampled_from([10, 30]))
def test_a_session_asked_only_when_it_wants_to_be_does_what_it_does_when_asked_at_every_tick(
    what, min_speech_ms, vad_ms
):
    of = script(
        ask("ask", ms=300),
        ask("more", after="agent_speech_end", delay_ms=70, timeout_ms=900, ms=300),
        ask("stop", after="agent_speech_start", delay_ms=210, timeout_ms=700, ms=300, expect="stop"),
        max_duration_ms=15_000,
        tail_ms=400,
        vad_agent=VadSettings(frame_ms=vad_ms, min_speech_ms=min_speech_ms),
    )
    (lazy, few), (eager, many) = played(of, what, every_tick=False), played(of, what, every_tick=True)
    assert (lazy.turns, lazy.duration_s, lazy.outcome) == (eager.turns, eager.duration_s, eager.outcome)
    assert np.array_equal(lazy.user, eager.user)
    assert np.array_equal(lazy.agent, eager.agent)
    assert few <= many


def test_a_long_reply_asks_for_a_step_every_quarter_of_a_second_at_most():
    of = script(tail_ms=300)
    talk = [("packet", 60, 20)] + [("packet", 1, 20)] * 300
    _, steps = played(of, talk, every_tick=False)
    assert steps < 60


class Wire:
    """A socket on which the agent has said so much so far, one send a read."""

    def __init__(self) -> None:
        self.said: list[bytes] = []

    def recvmsg(self, n_bytes: int, ancillary_bytes: int):
        if not self.said:
            raise BlockingIOError
        data = self.said.pop(0)
        if len(data) > n_bytes:
            self.said.insert(0, data[n_bytes:])
        return data[:n_bytes], [], 0, None

    def setsockopt(self, *option) -> None:
        raise OSError

    def send(self, data: bytes) -> int:
        return len(data)

    def fileno(self) -> int:
        return 0  # no socket: nobody knows how much waits in it


class LongWay(WebSocketLine):
    """Takes every message through the whole parser."""

    def audio(self, data: bytes):
        return None


def packet(n_samples: int, level: int) -> bytes:
    return server_frame(np.full(n_samples, level, np.int16).tobytes())


PACKETS = [packet(320, 4000), packet(320, 0), packet(320, 3000), packet(160, 4000), packet(0, 0), packet(9000, 2500)]
SAID = [
    *PACKETS,
    PACKETS[0] + PACKETS[3],
    server_frame(b'{"type": "clear"}', Opcode.TEXT),
    server_frame(b'{"type": "transcript", "text": "hello"}', Opcode.TEXT),
    server_frame(b"", Opcode.PING),
    server_frame(bytes(3)),
    PACKETS[0][:100],
    PACKETS[0][100:],
    server_frame(b"\x03\xe8", Opcode.CLOSE),
]
usual = st.sampled_from(PACKETS[:3])
anything = st.sampled_from(SAID)
minutes = st.lists(st.tuples(st.one_of(usual, usual, usual, anything), st.integers(0, 25)), max_size=150)


def held(line_class, said, cut_after: int) -> Recording:
    """A session of one call, the agent saying this, each so many ticks after the one before."""
    protocol = ClientProtocol(parse_uri("ws://agent/"), state=State.OPEN)
    line = line_class(protocol, PcmCodec(agent_rate_hz=16000, session_rate_hz=16000), place="the agent at agent:80")
    call = Call(
        make_ready(
            script(ask("one"), ask("two", after="agent_speech_end"), max_duration_ms=8000),
            lambda samples: samples.tobytes(),
        ),
        LiveSocket(Wire(), line),
    )
    call.start(0.0)
    for data, ticks in said:
        for _ in range(ticks):
            if call.session.ended or not call.due(call.due_s, 1.0):
                break
        if call.session.ended:
            break
        with mock.patch.object(call_module, "monotonic_s", lambda at_s=call.due_s - 0.013: at_s):
            call.live.sock.said.append(data)
            call.look(-1.0, 0.0)
    for _ in range(cut_after):
        if call.session.ended or not call.due(call.due_s, 1.0):
            break
    call.end(Outcome("cut", None, "cut"))
    return call.session.recording("s", clock="real")


@given(minutes, st.integers(0, 500))
def test_packets_that_wait_to_be_heard_together_change_nothing(said, cut_after):
    short, long = held(WebSocketLine, said, cut_after), held(LongWay, said, cut_after)
    assert np.array_equal(short.agent, long.agent)
    for column in ("time_s", "level_db", "duration_s"):
        assert np.array_equal(getattr(short.packets, column), getattr(long.packets, column)), column
    assert (short.turns, short.clears_s, short.transcripts) == (long.turns, long.clears_s, long.transcripts)
    assert (short.outcome, short.duration_s) == (long.outcome, long.duration_s)


def test_the_usual_packets_do_wait_to_be_heard_together():
    heard = []
    with mock.patch.object(Session, "hear_packets", lambda self, packets, times_s: heard.append(len(packets)) or False):
        held(WebSocketLine, [(PACKETS[0], 1)] * 50, 0)
    assert max(heard) > 5
    assert sum(heard) >= 40
