"""A TLS line without a socket: whatever way the records are cut, it says what the line inside says of the plain bytes."""

from __future__ import annotations

import itertools
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import gevent.socket
import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocols.test_websocket_line import RECORDED, a_line, drawn
from voicebench.events import AgentAudio, AgentClosed, AgentEvent
from voicebench.protocols.frames import client_frame, server_frame
from voicebench.worker.adapters.connect import Deadline
from voicebench.worker.adapters.tls import TlsLine, TlsWire

PLACE = "the agent at agent:80"
CA = trustme.CA()
SERVER = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
CA.issue_cert("agent").configure_cert(SERVER)
USUAL = server_frame(bytes(range(256)) * 2 + bytes(128))
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@dataclass
class Agent:
    """The server's end, in memory."""

    incoming: ssl.MemoryBIO = field(default_factory=ssl.MemoryBIO)
    outgoing: ssl.MemoryBIO = field(default_factory=ssl.MemoryBIO)

    def __post_init__(self) -> None:
        self.tls = SERVER.wrap_bio(self.incoming, self.outgoing, server_side=True)

    def record(self, plain: bytes) -> bytes:
        """What goes on the wire for these bytes, written at once: a record for each 16 KB."""
        self.tls.write(plain)
        return self.outgoing.read()

    def hears(self, wire: bytes) -> bytes:
        self.incoming.write(wire)
        heard = b""
        while True:
            try:
                heard += self.tls.read(65536)
            except ssl.SSLWantReadError:
                return heard


def fresh(version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3, **more) -> tuple[TlsLine, Agent, bytes]:
    """Line and agent after the handshake, and what the agent has sent behind it: in TLS 1.3 two session tickets."""
    context = ssl.create_default_context()
    CA.configure_trust(context)
    context.maximum_version = version
    wire, agent = TlsWire(None, context, "agent", PLACE), Agent()
    ours = theirs = False
    while not (ours and theirs):
        ours = ours or shaken(wire.tls)
        agent.incoming.write(wire.outgoing.read())
        theirs = shaken(agent.tls)
        if not ours:
            wire.incoming.write(agent.outgoing.read())
    return TlsLine(a_line(**more), wire, PLACE), agent, agent.outgoing.read()


def connected(version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3, **more) -> tuple[TlsLine, Agent]:
    """The same, when that has been read."""
    line, agent, behind = fresh(version, **more)
    if behind:
        assert line.receive(behind, 0.0) == []
    return line, agent


def shaken(tls: ssl.SSLObject) -> bool:
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


@dataclass
class Wire:
    """A socket that has these reads to give."""

    left: list[bytes]

    def recvmsg(self, size: int, ancillary_bytes: int) -> tuple[bytes, list, int, None]:
        data = self.left[0][:size]
        self.left[0] = self.left[0][size:]
        if not self.left[0]:
            del self.left[0]
        return data, [], 0, None


def heard(line: TlsLine, reads: Sequence[bytes], size: int = 1 << 20) -> tuple[list[AgentEvent], int]:
    """The events, as the pacer comes by them, and how many took the short way."""
    events, short, wire = [], 0, Wire(list(reads))
    read = line.reading(wire)
    while wire.left:
        data = read(size, 0)[0]
        samples = line.audio(data)
        if samples is None:
            events += line.receive(data, 1.5)
        else:
            short += 1
            events.append(AgentAudio(samples, 1.5))
            assert line.head(data) == data[:4]
    return events, short


def cut_at(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges) if a < b]


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 10**6), max_size=12),
    st.lists(st.integers(0, 10**6), max_size=12),
    st.integers(0, 8),
    st.booleans(),
    st.sampled_from([100, 666, 667, 1024, 1 << 20]),
)
def test_however_records_and_reads_are_cut_the_events_are_those_of_the_plain_bytes(
    version, record_cuts, read_cuts, n_usual, end_first, size
):
    """Records that end inside a message, that hold several; reads that end inside a record, that hold several."""
    plain = RECORDED + USUAL if end_first else USUAL * n_usual + RECORDED
    line, agent, behind = fresh(version)
    records = [agent.record(part) for part in [USUAL] * n_usual + cut_at(plain, record_cuts)]
    reads = cut_at(behind + b"".join(records), read_cuts)
    events, _ = heard(line, reads, size)
    expected = a_line().receive(USUAL * n_usual + plain, 1.5)
    assert drawn(events) == drawn(expected)
    assert line.closed


@pytest.mark.parametrize("version", VERSIONS)
def test_a_usual_record_takes_the_short_way_and_nothing_else_does(version):
    line, agent = connected(version)
    usual, two = agent.record(USUAL), agent.record(USUAL * 2)
    halves = agent.record(USUAL)
    together = agent.record(USUAL) + agent.record(USUAL)
    events, short = heard(line, [usual, two, halves[:10], halves[10:], together])
    assert (len(events), short) == (6, 2)  # the record that was whole, and the one whose second half made it whole
    assert {event.samples.tobytes() for event in events} == {USUAL[4:]}


def test_tickets_that_come_with_the_first_audio_are_no_audio():
    line, agent, tickets = fresh()
    assert tickets
    events, short = heard(line, [tickets[:50], tickets[50:] + agent.record(USUAL), agent.record(USUAL)])
    assert (len(events), short) == (2, 2)


def test_a_record_longer_than_its_last_piece_keeps_its_second_message():
    """The read behind it asks for no more than that piece is long: what is left stays with TLS, and must be asked for."""
    line, agent = connected()
    record = agent.record(USUAL * 2)
    rest = len(USUAL)
    events, _ = heard(line, [record[:-rest], record[-rest:]])
    assert len(events) == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_a_close_notify_is_the_end_without_a_websocket_close(version):
    line, agent = connected(version)
    usual = agent.record(USUAL)
    with pytest.raises(ssl.SSLWantReadError):
        agent.tls.unwrap()
    events, _ = heard(line, [usual + agent.outgoing.read()])
    audio, closed = events
    assert isinstance(audio, AgentAudio)
    assert isinstance(closed, AgentClosed)
    assert (closed.reason, line.closed) == ("dropped", True)
    assert heard(line, [b"\x17\x03\x03\x00\x01a", b""])[0] == []


def test_a_close_notify_of_its_own_is_told_once():
    line, agent = connected()
    with pytest.raises(ssl.SSLWantReadError):
        agent.tls.unwrap()
    events, _ = heard(line, [agent.outgoing.read(), b""])
    assert [event.reason for event in events] == ["dropped"]


def test_a_connection_cut_inside_a_record_is_dropped():
    line, agent = connected()
    events, _ = heard(line, [agent.record(USUAL), agent.record(USUAL)[:-1], b""])
    assert [type(event) for event in events] == [AgentAudio, AgentClosed]
    assert line.failure is not None
    assert line.failure.reason == "dropped"


@pytest.mark.parametrize("short_way", [True, False])
def test_a_forged_record_breaks_tls_and_says_why_and_what_was_heard_before_stays(short_way):
    line, agent = connected()
    good, record = agent.record(USUAL), bytearray(agent.record(USUAL))
    record[-1] ^= 1
    events, _ = heard(line, [good, bytes(record)] if short_way else [good + bytes(record)])
    audio, closed = events
    assert isinstance(audio, AgentAudio)
    assert (closed.reason, closed.text) == ("protocol", f"{PLACE} broke TLS: decryption failed or bad record mac")
    assert heard(line, [good]) == ([], 0)
    assert line.outgoing()  # the alert
    assert line.wrap(b"frame") == b""


@given(st.lists(st.binary(min_size=1, max_size=2000), max_size=10), st.booleans())
def test_frames_reach_the_agent_in_order_under_the_mask_they_should_have(payloads, masked_anew):
    more = {"fresh_mask": lambda: b"abcd"} if masked_anew else {}
    line, agent = connected(**more)
    frames = [client_frame(payload, b"1234") for payload in payloads]
    told = b"".join(line.wrap(frame) for frame in frames) + line.hang_up()
    expected = [client_frame(payload, b"abcd") for payload in payloads] if masked_anew else frames
    assert not line.sends_as_is
    got = agent.hears(told)
    assert got.startswith(b"".join(expected))
    assert got[sum(map(len, expected))] == 0x88  # the close, behind them


# ---------------------------------------------------------------- new keys in the middle of a conversation


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    CA.issue_cert("agent").private_key_and_cert_chain_pem.write_to_path(tmp_path / "agent.pem")
    return tmp_path / "agent.pem"


@pytest.fixture(params=["-tls1_3", "-tls1_2"])
def talking(request: pytest.FixtureRequest, pem: Path) -> Iterator[tuple[TlsLine, socket.socket, subprocess.Popen]]:
    """A line to `openssl s_server`, which sends what it is told to and changes its keys when told `K` (1.3) or `r` (1.2)."""
    if not shutil.which("openssl"):
        pytest.skip("there is no `openssl` to be the agent")
    server = subprocess.Popen(
        ["openssl", "s_server", "-accept", "127.0.0.1:0", "-cert", str(pem), "-key", str(pem), request.param],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert server.stdout is not None
    try:
        while not (said := server.stdout.readline()).startswith(b"ACCEPT"):
            assert said, "the agent did not come up"
        port = int(said.rpartition(b":")[2])
        sock = gevent.socket.create_connection(("127.0.0.1", port))
        context = ssl.create_default_context()
        CA.configure_trust(context)
        wire = TlsWire(sock, context, "agent", PLACE)
        wire.handshake(Deadline(5))
        with sock:
            sock.settimeout(5)
            yield TlsLine(a_line(), wire, PLACE), sock, server
    finally:
        server.kill()
        server.communicate()


@pytest.mark.slow
def test_new_keys_in_the_middle_lose_nothing_in_either_direction(talking, request):
    line, sock, server = talking
    version = request.node.callspec.params["talking"]

    def types(data: bytes) -> None:
        server.stdin.write(data)
        server.stdin.flush()

    def hear_until(n: int) -> None:
        while len(events) < n and not line.closed:
            events.extend(heard(line, [sock.recv(65536)])[0])
            sock.sendall(line.outgoing())

    events: list[AgentEvent] = []
    types(USUAL)
    hear_until(1)
    sock.sendall(line.wrap(client_frame(b"before", bytes(4))))
    types(b"K\n" if version == "-tls1_3" else b"r\n")
    if version == "-tls1_2":  # a new handshake is refused, and the conversation ends or goes on, but is never stuck
        data = sock.recv(65536)
        events += heard(line, [data])[0]
        sock.sendall(line.outgoing() + line.wrap(client_frame(b"behind", bytes(4))))
        assert not any(isinstance(event, AgentClosed) and event.reason == "protocol" for event in events)
        return
    gevent.sleep(0.1)
    types(USUAL)
    hear_until(2)
    assert [type(event) for event in events] == [AgentAudio, AgentAudio]
    sock.sendall(line.wrap(client_frame(b"behind", bytes(4))))
    said = b""
    while b"behind" not in said:
        said += server.stdout.readline() if b"before" not in said else server.stdout.read1(1000)
    assert b"before" in said
