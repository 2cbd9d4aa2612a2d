"""Sessions settled by a sibling process: the same as in the loop, each once, whatever becomes of the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import gevent
import numpy as np
import pytest

from tests.test_virtual import CONVERSATION
from voicebench import bundle
from voicebench import session as session_module
from voicebench.audio.synth import render
from voicebench.clock import monotonic_s
from voicebench.events import AgentAudio
from voicebench.recording import lateness_of
from voicebench.records import Outcome
from voicebench.scenario.adapter_options import mock_options
from voicebench.scenario.parse import parse_scenario
from voicebench.scenario.prepared import PreparedScenario
from voicebench.scenario.secrets import redact_document
from voicebench.script import prepare
from voicebench.session import Session
from voicebench.virtual import run_virtual
from voicebench.worker import clerk_process, sibling_desk
from voicebench.worker.desk import InlineDesk
from voicebench.worker.settling import Case
from voicebench.worker.sibling_desk import SiblingDesk
from voicebench.worker.spool import FULL

pytestmark = pytest.mark.slow

SCENARIO = parse_scenario(CONVERSATION, source="test.yaml")
CLIPS = tuple(render(turn.audio, SCENARIO.sample_rate) for turn in SCENARIO.turns)
PREPARED = PreparedScenario(SCENARIO, CLIPS, "test.yaml")
SCRIPT = prepare(SCENARIO, CLIPS)
OPTIONS = mock_options(SCENARIO.adapter.options)


@pytest.fixture
def desk(tmp_path):
    made = SiblingDesk([PREPARED], [SCRIPT], keep="all", folder=str(tmp_path), kept_bytes=1 << 30)
    made.start()
    with gevent.Timeout(60):
        yield made
    made.close()
    assert made.pid == 0


def case(number: int, *, cut_tick: int | None = None, breaks_tick: int | None = None) -> tuple[Case, Session]:
    session = run_virtual(SCRIPT, OPTIONS, seed=number)
    if breaks_tick is not None:
        session = Session(SCRIPT)
        session.hear(AgentAudio(np.full(9000, 5000, np.int16), 0.2))
        session.end(Outcome("failed", "dropped"), breaks_tick)
    if cut_tick is not None:
        session = Session(SCRIPT)
        session.end(Outcome("cut"), cut_tick)
    rng = np.random.default_rng(number)
    late = lateness_of(*(rng.random(session.ticks) * 12 for _ in range(2)))
    of = session.proceedings(f"run-{number:06d}", clock="real", lateness=late, extra={"number": number})
    return Case(0, session.ticks, of), session


def whole(number: int) -> dict[str, bytes]:
    """The files of a session whose sound stayed with it."""
    recording = run_virtual(SCRIPT, OPTIONS, seed=number).recording(f"run-{number:06d}", clock="virtual")
    return bundle.encode(recording, redact_document(SCENARIO.document))


def hand_in(desk: SiblingDesk, cases: list[tuple[Case, Session]]) -> list[gevent.Greenlet]:
    return [gevent.spawn(desk.hand_in(*each)) for each in cases]


def wait_until(condition) -> None:
    while not condition():
        gevent.sleep(0.01)


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_records_and_bundles_are_those_of_the_desk_in_the_loop(desk, tmp_path):
    cases = [case(1), case(2), case(3, cut_tick=100), case(4, cut_tick=0)]
    for (of, session), answer in zip(cases, hand_in(desk, cases), strict=True):
        settled, recording = answer.get()
        expected, here = InlineDesk([SCRIPT]).hand_in(of, session)()
        assert recording is None
        assert settled.record == expected.record
        assert settled.lateness == expected.lateness
        if of.sent_frames:
            files = bundle.encode(here, redact_document(SCENARIO.document))
            assert settled.files == {name: len(content) for name, content in files.items()}
            folder = tmp_path / of.proceedings.session_id
            assert {path.name: path.read_bytes() for path in folder.iterdir()} == files
        else:
            assert settled.files is None
    assert desk.settling == desk.waiting_bytes == 0
    assert desk.notes == []
    wait_until(lambda: not list(tmp_path.glob("*.agent")))


def test_killed_again_and_again_it_settles_each_session_once_and_the_same(desk, tmp_path):
    cases = [case(number) for number in range(40)]
    answers = hand_in(desk, cases)
    rng, n_killed = np.random.default_rng(5), 0
    while desk.settling and n_killed < 6:
        pid = desk.pid
        wait_until(lambda: desk._ready or not desk.settling)
        gevent.sleep(0.06 * rng.random())
        if pid == desk.pid and desk.settling:
            os.kill(pid, signal.SIGKILL)
            n_killed += 1
            wait_until(lambda gone=pid: desk.pid != gone)
    assert n_killed >= 2
    records = [answer.get()[0].record for answer in answers]
    unscored = [each for each in records if "could not be scored" in (each.outcome.detail or "")]
    for (of, session), record in zip(cases, records, strict=True):
        if record not in unscored:
            assert record == InlineDesk([SCRIPT]).hand_in(of, session)()[0].record
    assert len(unscored) <= n_killed // 3
    assert any(f"died {n_killed} times" in note for note in desk.notes)
    assert desk.settling == desk.waiting_bytes == 0
    kept = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert len(kept) == len(records) - len(unscored)


def test_pieces_of_a_session_that_is_not_over_outlive_the_process(desk, tmp_path):
    for number in range(19):  # 16 are acknowledged at once
        assert desk.keeper("run-000001")(number, np.array([number + 1], "<i2"))
    wait_until(lambda: not desk.waiting_bytes)
    (tmp_path / "run-000002.agent").write_bytes(b"of a session that was settled")
    pid = desk.pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: desk.pid != pid and desk._ready)
    assert np.fromfile(tmp_path / "run-000001.agent", "<i2").tolist() == list(range(1, 20))
    assert not (tmp_path / "run-000002.agent").exists()


def test_a_session_that_kills_it_three_times_is_reported_and_the_rest_go_on(desk, monkeypatch):
    wait_until(lambda: desk._ready)
    cases = [case(number) for number in range(3)]
    os.kill(desk.pid, signal.SIGSTOP)
    answers = hand_in(desk, cases)
    gevent.sleep(0.05)
    for _ in range(sibling_desk.DEATHS_OF_A_SESSION):
        pid = desk.pid
        wait_until(lambda: desk._ready)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda gone=pid: desk.pid not in (gone, 0))
        os.kill(desk.pid, signal.SIGSTOP)  # before it can answer, but it may have said that it is ready
        desk._ready = True
    os.kill(desk.pid, signal.SIGCONT)
    records = [answer.get()[0].record for answer in answers]
    assert records[0].outcome.reason == "generator"
    assert "could not be scored: the scoring process died 3 times at it" in records[0].outcome.detail
    assert [each.outcome.state for each in records[1:]] == ["finished"] * 2
    assert any("1 sessions could not be scored" in note for note in desk.notes)


def test_one_that_hangs_shuts_the_gate_and_goes_on_where_it_was(desk, monkeypatch):
    monkeypatch.setattr(sibling_desk, "MAX_SETTLING", 3)
    wait_until(lambda: desk._ready)
    os.kill(desk.pid, signal.SIGSTOP)
    answers = hand_in(desk, [case(number) for number in range(4)])
    gevent.sleep(0.2)
    assert (desk.settling, desk.has_room) == (4, False)
    os.kill(desk.pid, signal.SIGCONT)
    assert [answer.get()[0].record.outcome.state for answer in answers] == ["finished"] * 4
    assert desk.has_room


def test_one_that_answers_nothing_for_too_long_is_killed(desk, monkeypatch):
    monkeypatch.setattr(sibling_desk, "SILENT_S", 1)
    wait_until(lambda: desk._ready)
    pid = desk.pid
    os.kill(pid, signal.SIGSTOP)
    (answer,) = hand_in(desk, [case(1)])
    assert answer.get()[0].record.outcome.state == "finished"
    assert desk.pid != pid


def test_where_it_can_not_be_started_sessions_are_settled_in_the_loop(tmp_path, monkeypatch):
    monkeypatch.setattr(clerk_process.sys, "executable", str(tmp_path / "no-python"))
    desk = SiblingDesk([PREPARED], [SCRIPT], keep="all", folder=str(tmp_path), kept_bytes=1 << 30)
    desk.start()
    of, session = case(1)
    with gevent.Timeout(30):
        settled, _ = desk.hand_in(of, session)()
    assert settled.record == InlineDesk([SCRIPT]).hand_in(of, session)()[0].record
    assert sorted(settled.files) == sorted(path.name for path in (tmp_path / of.proceedings.session_id).iterdir())
    assert "there was no scoring process (No such file or directory)" in desk.notes[0]
    desk.close()


@pytest.mark.parametrize("keep", ["all", "failed"])
def test_what_was_handed_to_a_process_that_is_not_started_again_is_settled_in_the_loop(tmp_path, monkeypatch, keep):
    desk = SiblingDesk([PREPARED], [SCRIPT], keep=keep, folder=str(tmp_path), kept_bytes=1 << 30)
    desk.start()
    with gevent.Timeout(60):
        wait_until(lambda: desk._ready)
        os.kill(desk.pid, signal.SIGSTOP)
        cases = [case(number) for number in range(3)] + [case(3, breaks_tick=150)]
        answers = hand_in(desk, cases)
        wait_until(lambda: desk.settling == 4)
        monkeypatch.setattr(sibling_desk, "DEATHS_IN_A_ROW", 1)
        os.kill(desk.pid, signal.SIGKILL)
        for (of, session), answer in zip(cases, answers, strict=True):
            settled = answer.get()[0]
            expected, here = InlineDesk([SCRIPT]).hand_in(of, session)()
            assert settled.record == expected.record
            assert settled.why_not_kept == ""
            if keep == "all" or settled.record.outcome.state == "failed":
                files = bundle.encode(here, redact_document(SCENARIO.document))
                folder = tmp_path / of.proceedings.session_id
                assert {path.name: path.read_bytes() for path in folder.iterdir()} == files
        assert settled.record.outcome.state == "failed"
    assert (desk.settling, desk.waiting_bytes, desk.pid) == (0, 0, 0)
    assert any("scored beside the live ones" in note for note in desk.notes)
    desk.close()


def test_where_scoring_breaks_down_altogether_nobody_waits_and_every_lost_recording_is_told(desk, monkeypatch):
    wait_until(lambda: desk._ready)
    os.kill(desk.pid, signal.SIGSTOP)
    answers = hand_in(desk, [case(1)])
    wait_until(lambda: desk.settling == 1)
    monkeypatch.setattr(sibling_desk, "DEATHS_IN_A_ROW", 1)
    monkeypatch.setattr(clerk_process, "Clerk", lambda: 1 / 0)
    os.kill(desk.pid, signal.SIGKILL)
    for settled in (answers[0].get()[0], desk.hand_in(*case(2))()[0]):
        assert settled.record.outcome.reason == "generator"
        assert "the scoring broke down: ZeroDivisionError" in settled.why_not_kept
    assert desk.settling == desk.waiting_bytes == 0


def test_the_sound_of_a_live_session_is_handed_over_as_it_grows_and_waits_while_there_is_too_much(
    desk, tmp_path, monkeypatch
):
    expected = whole(1)
    wait_until(lambda: desk._ready)
    os.kill(desk.pid, signal.SIGSTOP)
    monkeypatch.setattr(sibling_desk, "MAX_WAITING_BYTES", 3 * 4000)
    monkeypatch.setattr(session_module, "KEPT_SAMPLES", 2000)
    monkeypatch.setattr(session_module, "LISTEN_EVERY_S", 0.1)
    session = run_virtual(SCRIPT, OPTIONS, seed=1, keeper=desk.keeper("run-000001"))
    assert session._playout.base > 0
    assert 3 * 4000 < desk.waiting_bytes < 5 * 4000
    of = Case(0, session.ticks, session.proceedings("run-000001", clock="virtual"))
    answer = gevent.spawn(lambda: desk.hand_in(of, session)())
    gevent.sleep(0.1)
    assert desk.settling == 0  # it waits with the rest of its sound
    assert not desk.has_room
    os.kill(desk.pid, signal.SIGCONT)
    settled, _ = answer.get()
    assert settled.files == {name: len(content) for name, content in expected.items()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "run-000001").iterdir()} == expected


def test_a_full_spool_loses_the_recording_and_no_number(tmp_path):
    desk = SiblingDesk([PREPARED], [SCRIPT], keep="all", folder=str(tmp_path), kept_bytes=1000)
    desk.start()
    with gevent.Timeout(30):
        settled, _ = desk.hand_in(*case(1))()
    assert (settled.record.outcome.state, settled.files, settled.why_not_kept) == ("finished", None, FULL)
    desk.close()


def test_where_there_is_no_folder_the_recording_is_lost_with_the_reason():
    desk = SiblingDesk([PREPARED], [SCRIPT], keep="all", why_no_folder="No such file or directory")
    desk.start()
    with gevent.Timeout(30):
        settled, _ = desk.hand_in(*case(1))()
    found = (settled.record.outcome.state, settled.files, settled.why_not_kept)
    assert found == ("finished", None, "No such file or directory")
    desk.close()


def test_a_disk_that_is_full_loses_the_recording_with_the_reason(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sibling_desk, "ClerkProcess", full)  # so that it works in this one, where the disk can be full
    monkeypatch.setattr("voicebench.worker.clerk.write_files", full)
    desk = SiblingDesk([PREPARED], [SCRIPT], keep="all", folder=str(tmp_path), kept_bytes=1 << 30)
    desk.start()
    with gevent.Timeout(30):
        settled, _ = desk.hand_in(*case(1))()
    assert (settled.files, settled.why_not_kept) == (None, "No space left on device")
    desk.close()


def test_a_session_that_can_not_be_scored_keeps_its_recording(tmp_path, monkeypatch):
    def broken(*_: object) -> None:
        raise OSError(11, "no process")

    monkeypatch.setattr(sibling_desk, "ClerkProcess", broken)
    monkeypatch.setattr("voicebench.worker.clerk.settled", lambda script, case: 1 / 0)
    desk = SiblingDesk([PREPARED], [SCRIPT], keep="failed", folder=str(tmp_path), kept_bytes=1 << 30)
    desk.start()
    with gevent.Timeout(30):
        settled, _ = desk.hand_in(*case(1))()
    assert "could not be scored: ZeroDivisionError" in settled.record.outcome.detail
    assert settled.why_not_kept == ""
    assert {path.name: path.read_bytes() for path in (tmp_path / "run-000001").iterdir()}["user.wav"]
    desk.close()


@pytest.mark.parametrize("keep", ["all", "failed"])
def test_a_session_at_which_it_dies_says_that_its_recording_is_lost(desk, monkeypatch, keep):
    monkeypatch.setattr(sibling_desk, "DEATHS_OF_A_SESSION", 1)
    desk._keep = keep
    wait_until(lambda: desk._ready)
    os.kill(desk.pid, signal.SIGSTOP)
    (answer,) = hand_in(desk, [case(1)])
    wait_until(lambda: desk.settling)
    os.kill(desk.pid, signal.SIGKILL)
    assert "died 1 times at it" in answer.get()[0].why_not_kept


def test_it_dies_with_a_worker_that_is_killed(tmp_path):
    code = (  # patched, as workers are
        "import gevent.monkey\ngevent.monkey.patch_all()\n"
        "from tests.worker.test_sibling_desk import *\n"
        "desk = SiblingDesk([PREPARED], [SCRIPT], keep='none')\n"
        "desk.start()\nprint(desk.pid, flush=True)\ngevent.sleep(60)\n"
    )
    worker = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )
    assert worker.stdout is not None
    pid = int(worker.stdout.readline())
    assert is_there(pid)
    worker.kill()
    worker.wait()
    worker.stdout.close()
    until_s = monotonic_s() + 10
    while is_there(pid):
        assert monotonic_s() < until_s
        gevent.sleep(0.02)
