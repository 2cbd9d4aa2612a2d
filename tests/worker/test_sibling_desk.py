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
from voicebench.audio.synth import render
from voicebench.clock import monotonic_s
from voicebench.recording import lateness_of
from voicebench.records import Outcome
from voicebench.scenario.adapter_options import mock_options
from voicebench.scenario.parse import parse_scenario
from voicebench.scenario.prepared import PreparedScenario
from voicebench.scenario.secrets import redact_document
from voicebench.script import prepare
from voicebench.session import Session
from voicebench.virtual import run_virtual
from voicebench.worker import sibling_desk
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


def case(number: int, *, cut_tick: int | None = None) -> tuple[Case, Session]:
    session = run_virtual(SCRIPT, OPTIONS, seed=number)
    if cut_tick is not None:
        session = Session(SCRIPT)
        session.end(Outcome("cut"), cut_tick)
    rng = np.random.default_rng(number)
    late = lateness_of(*(rng.random(session.ticks) * 12 for _ in range(2)))
    of = session.proceedings(f"run-{number:06d}", clock="real", lateness=late, extra={"number": number})
    return Case(0, session.ticks, of), session


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
    for number in range(16):  # so many are acknowledged at once
        assert desk._piece("run-000001", number, bytes([number + 1])) == ""
    wait_until(lambda: not desk.waiting_bytes)
    (tmp_path / "run-000002.agent").write_bytes(b"of a session that was settled")
    pid = desk.pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: desk.pid != pid and desk._ready)
    assert (tmp_path / "run-000001.agent").read_bytes() == bytes(range(1, 17))
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
    monkeypatch.setattr(sibling_desk.sys, "executable", str(tmp_path / "no-python"))
    desk = SiblingDesk([PREPARED], [SCRIPT], keep="all", folder=str(tmp_path), kept_bytes=1 << 30)
    desk.start()
    of, session = case(1)
    settled, recording = desk.hand_in(of, session)()
    assert settled.record.outcome.state == "finished"
    assert recording is not None
    assert "there was no scoring process (No such file or directory)" in desk.notes[0]
    desk.close()


def test_a_full_spool_loses_the_recording_and_no_number(tmp_path):
    desk = SiblingDesk([PREPARED], [SCRIPT], keep="all", folder=str(tmp_path), kept_bytes=1000)
    desk.start()
    with gevent.Timeout(30):
        settled, _ = desk.hand_in(*case(1))()
    assert (settled.record.outcome.state, settled.files, settled.why_not_kept) == ("finished", None, FULL)
    desk.close()


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
