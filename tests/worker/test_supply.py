"""A worker's bulk: what it keeps of a session and hands out, what it fetches, and what it says when it can't."""

from __future__ import annotations

import gevent
import pytest

from tests.support.made import ignore, respond, session
from tests.test_virtual import CONVERSATION, script_of
from voicebench import bundle
from voicebench.clock import monotonic_s
from voicebench.errors import WireError
from voicebench.records import FINISHED, Outcome
from voicebench.scenario.shipping import sha_of
from voicebench.virtual import run_virtual
from voicebench.wire.messages import PIECE_BYTES, AssetPiece, Fetched, RunPlan, WantFile
from voicebench.worker import spool as spool_module
from voicebench.worker import supply as supply_module
from voicebench.worker.clerk import Shelf
from voicebench.worker.engine import Placed
from voicebench.worker.settling import Settled, is_wanted, went_wrong
from voicebench.worker.spool import FULL
from voicebench.worker.supply import Supply

FAILED = Outcome("failed", "dropped", "reset")
CUT = Outcome("cut", None, "cut by the end of the run")


@pytest.fixture(scope="module")
def recording():
    script, options = script_of(CONVERSATION)
    return run_virtual(script, options).recording("run-000001", clock="virtual")


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(spool_module.tempfile, "gettempdir", lambda: str(tmp_path))


@pytest.fixture
def supply():
    """One that has its plan, and somewhere to keep recordings."""
    made = Supply()
    made.begin(plan())
    made.desk([], [])
    yield made
    made.close()


def plan(keep: str = "all", scenarios: tuple[str, ...] = ("0" * 64,)) -> RunPlan:
    return RunPlan(
        run_id="run", scenarios=scenarios, weights=(1.0,) * len(scenarios), callers=1, sessions=1, spawn_rate_per_s=None,
        run_time_s=None, stop_timeout_s=1.0, pause_s=(0.0, 0.0), warmup_s=0.0, seed=0, keep=keep, preflight=False,
    )  # fmt: skip


def placed(files: dict[str, int] | None, why_not_kept: str = "") -> Placed:
    settled = Settled(session(respond(500.0), session_id="run-000001"), {}, files, why_not_kept)
    return Placed(0, 0, 0.0, settled, None, 100, False)


def keep(supply: Supply, recording) -> dict[str, int] | None:
    """What the clerk has written, and what becomes of it."""
    files = bundle.encode(recording, recording.scenario.document)
    return supply.keep(placed(Shelf(supply._spool.folder, 1 << 30, ()).keep("run-000001", files)))


def pieces(supply: Supply, session_id: str, file: str, offset: int = 0):
    supply.hear(WantFile(session_id=session_id, file=file, offset=offset), 0.0)
    return [each for each in supply.sends(7, 0.0) if each.__class__.__name__ == "FilePiece"]


@pytest.mark.parametrize(
    ("record", "wrong"),
    [
        (session(respond(500.0)), False),
        (session(respond(None)), True),
        (session(ignore(spurious=True)), True),
        (session(ignore()), False),
        (session(respond(500.0), outcome=FAILED), True),
        (session(respond(500.0), outcome=CUT), False),
    ],
    ids=["answered", "missed", "spurious", "ignored", "failed", "cut"],
)
def test_what_is_worth_listening_to(record, wrong):
    assert went_wrong(record) is wrong


@pytest.mark.parametrize(
    ("keep", "turn_ms", "outcome", "sent_frames", "kept"),
    [
        ("all", 500.0, FINISHED, 100, True),
        ("failed", 500.0, FINISHED, 100, False),
        ("failed", None, FINISHED, 100, True),
        ("failed", 500.0, FAILED, 100, True),
        ("failed", None, FAILED, 0, False),
        ("all", 500.0, FINISHED, 0, False),
        ("none", None, FAILED, 100, False),
    ],
)
def test_a_session_is_kept_as_the_plan_says(keep, turn_ms, outcome, sent_frames, kept):
    assert is_wanted(keep, session(respond(turn_ms), outcome=outcome), sent_frames) is kept


def test_the_pieces_that_are_asked_for_make_the_bundle_and_what_was_fetched_is_gone(supply, recording):
    sizes = keep(supply, recording)
    files = bundle.encode(recording, recording.scenario.document)
    assert sizes == {name: len(content) for name, content in files.items()}
    for name, content in files.items():
        got = b""
        while len(got) < len(content):
            (piece,) = pieces(supply, "run-000001", name, len(got))
            assert (piece.epoch, piece.session_id, piece.file, piece.offset) == (7, "run-000001", name, len(got))
            assert 0 < len(piece.data) <= PIECE_BYTES
            got += piece.data
        assert got == content
    supply.hear(Fetched(session_id="run-000001"), 0.0)
    (piece,) = pieces(supply, "run-000001", "user.wav")
    assert (piece.data, piece.why) == (b"", "this worker has no such recording")


def test_a_piece_of_nothing_is_answered_with_why(supply, recording):
    (piece,) = pieces(supply, "run-000001", "user.wav")
    assert piece.why == "this worker has no such recording"  # nothing was kept at all so far
    sizes = keep(supply, recording)
    (piece,) = pieces(supply, "run-000001", "user.wav", sizes["user.wav"])
    assert piece.data == b""
    assert f"{sizes['user.wav']} bytes" in piece.why


def test_one_piece_is_sent_at_a_time_and_it_says_that_there_are_more(supply, recording):
    keep(supply, recording)
    for _ in range(3):
        supply.hear(WantFile(session_id="run-000001", file="user.wav", offset=0), 0.0)
    for _ in range(3):
        assert supply.due_s(5.0) == 5.0
        assert len([each for each in supply.sends(1, 5.0) if each.__class__.__name__ == "FilePiece"]) == 1
    assert supply.due_s(5.0) > 5.0


def test_recordings_that_could_not_be_kept_are_counted_and_the_reason_is_told(supply):
    assert supply.trouble == ""
    assert supply.keep(placed(None)) is None  # nobody wanted it
    assert supply.trouble == ""
    assert [supply.keep(placed(None, FULL)) for _ in range(3)] == [None] * 3
    assert supply.trouble == f"3 recordings could not be kept ({FULL}); the numbers are whole"


def test_where_nothing_can_be_written_the_desk_is_told_why(monkeypatch):
    monkeypatch.setattr(spool_module.tempfile, "gettempdir", lambda: "/nowhere")
    supply = Supply()
    supply.begin(plan())
    assert supply.desk([], [])._why_no_folder == "No such file or directory"
    supply.close()


def test_scenarios_that_never_come_are_not_waited_for_for_ever(supply, monkeypatch):
    monkeypatch.setattr(supply_module, "NOTHING_COMES_S", 0.1)
    supply.begin(plan())
    with pytest.raises(WireError, match=r"nothing of the scenarios for 0\.1 s"):
        supply.wait()


def test_scenarios_that_come_slowly_are_waited_for(supply, monkeypatch):
    monkeypatch.setattr(supply_module, "NOTHING_COMES_S", 0.3)
    data = b"x" * (3 * PIECE_BYTES)
    supply.begin(plan(scenarios=(sha_of(data),)))

    def trickle() -> None:
        for offset in (0, PIECE_BYTES):
            gevent.sleep(0.2)
            piece = AssetPiece(
                sha=sha_of(data), offset=offset, size=len(data), data=data[offset : offset + PIECE_BYTES]
            )
            supply.hear(piece, monotonic_s())

    began_s = monotonic_s()
    greenlet = gevent.spawn(trickle)
    with pytest.raises(WireError, match="nothing of the scenarios"):
        supply.wait()
    greenlet.get()
    assert monotonic_s() - began_s > 0.6  # each piece was progress


def test_what_is_not_what_was_promised_ends_the_wait_with_its_reason(supply):
    supply.begin(plan(scenarios=("a" * 64,)))
    supply.hear(AssetPiece(sha="a" * 64, offset=0, size=3, data=b"abc"), monotonic_s())
    with pytest.raises(WireError):
        supply.wait()
    assert supply.sends(1, monotonic_s()) == []  # and it asks for nothing more
