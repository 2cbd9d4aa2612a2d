"""Agents and machines that do their worst, with good sessions beside them that must stay on time and be scored right."""

import json
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import gevent
import numpy as np
import pytest

from tests.support.hostile_agents import REPLY_MS, hostile_agents
from tests.support.placing import Placing, ask, script, worst_ms
from tests.support.processes import VOICEBENCH, children_of, mock_server, start, wait_for, wait_until_started
from voicebench import bundle
from voicebench.bundle_files import read_bundle
from voicebench.scoring import score
from voicebench.worker.engine import Placed

pytestmark = [pytest.mark.slow, pytest.mark.alone]

# A good agent answers 200 + 300 ms after the user.
GOOD = ("-o", "endpoint_silence_ms=200", "-o", "response_delay_ms=300", "-o", f"response_ms={REPLY_MS}")
GOOD_MS = 500.0
N_GOOD = 4

ODD_BUT_FINE = (
    "good", "text-10-mb", "deep-json", "surrogates", "burst-60-s", "packets-10-ms", "packets-600-ms", "odd-bytes",
    "fragments", "pings-100", "texts-3000", "upgrades-after-1.5",
)  # fmt: skip
FAILING = {
    "silent": ("no_audio", "no audio at all"),
    "resets": ("dropped", "reset by peer"),
    "close-1000": ("agent_hangup", "1000"),
    "close-1001": ("agent_hangup", "1001"),
    "close-1013": ("limited", "1013"),
    "close-1011": ("dropped", "1011"),
    "close-4000": ("dropped", "4000"),
    "close-1005": ("dropped", "1005"),
    "close-1011-and-gone": ("dropped", "1011"),
    "garbage": ("protocol", "broke the WebSocket protocol"),
    "reserved-bits": ("protocol", "reserved bits"),
    "masked": ("protocol", "masking"),
    "unknown-opcode": ("protocol", "opcode"),
    "long-ping": ("protocol", "control frame"),
    "not-utf8": ("protocol", "UTF-8"),
    "orphan-fragment": ("protocol", "continuation"),
    "never-upgrades": ("timeout", "did not answer the WebSocket upgrade within 2 s"),
}
FLOODS = (
    "flood-audio", "flood-tiny-audio", "flood-empty-audio", "flood-pings", "flood-texts", "flood-transcripts",
    "flood-clears", "flood-one-message", "flood-fragments",
)  # fmt: skip


def memory_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / (1 << 20)


def assert_good(sessions: list[Placed], turns: int = 1) -> None:
    """They finished, and what we trust of them is true to a frame (and what comes late by our own doing says so)."""
    assert [each.record.outcome.detail for each in sessions] == [None] * len(sessions)
    measured = [turn for each in sessions for turn in each.record.turns]
    assert len(measured) == turns * len(sessions)
    for turn in measured:
        assert turn.response_latency_ms == pytest.approx(GOOD_MS, abs=20 + turn.error_ms), turn


def assert_on_time(sessions: list[Placed]) -> None:
    """Nobody kept them waiting for long, nor often; other programs on this machine may have, a little."""
    late = np.concatenate([each.recording.lateness.send_ms for each in sessions])
    assert np.percentile(late, 90) < 10, np.percentile(late, [50, 90, 99, 100])
    assert max(worst_ms(sessions)) < 150


# ---------------------------------------------------------------- one of each, all at once


@pytest.fixture(scope="module")
def menagerie() -> Iterator[dict[str, Placed | list[Placed]]]:
    names = [*ODD_BUT_FINE, *FAILING]
    of = script(max_duration_ms=4000)
    with hostile_agents() as bad, mock_server(*GOOD) as good, Placing() as placing:
        ways = [placing.way(f"ws://127.0.0.1:{bad.port}/{name}", of, handshake_timeout_s=2) for name in names]
        outcome = placing.run([*ways, *[placing.way(good, of)] * N_GOOD])
    assert not outcome.errors
    placed = sorted(outcome.placed, key=lambda each: each.number)
    return {**dict(zip(names, placed, strict=False)), "well-behaved": placed[len(names) :]}


@pytest.mark.parametrize("name", ODD_BUT_FINE)
def test_an_agent_that_is_odd_but_talks_is_scored(menagerie, name):
    record = menagerie[name].record
    assert record.outcome.state == "finished", record.outcome
    (turn,) = record.turns
    assert turn.status == "measured"
    heard_ms = 3000 if name == "burst-60-s" else REPLY_MS  # the burst is cut off by max_duration_ms
    # An arrival that is late is a gap inside; what comes late by our own doing says so.
    assert heard_ms - 20 - turn.error_ms <= record.agent_speech_ms <= heard_ms + 200


@pytest.mark.parametrize("name", FAILING)
def test_an_agent_that_breaks_its_session_fails_it_with_its_own_reason(menagerie, name):
    record = menagerie[name].record
    reason, words = FAILING[name]
    assert (record.outcome.state, record.outcome.reason) == ("failed", reason), record.outcome
    assert words in record.outcome.detail
    assert [turn.status for turn in record.turns] in ([], ["missed"], ["unfinished"])


def test_the_well_behaved_beside_them_are_on_time_and_scored_right(menagerie):
    assert_good(menagerie["well-behaved"])
    assert_on_time(menagerie["well-behaved"])


def test_hostile_text_is_cleaned_before_anything_has_to_carry_it(menagerie):
    placed = menagerie["surrogates"]
    assert [said.text for said in placed.recording.transcripts] == ["a\ufffd\ufffdb", "c"]
    files = bundle.encode(placed.recording, {})
    assert json.loads(files[bundle.SESSION_FILE])["transcripts"][0]["text"] == "a\ufffd\ufffdb"


# ---------------------------------------------------------------- floods


@pytest.fixture(scope="module")
def good_agent() -> Iterator[str]:
    with mock_server(*GOOD) as url:
        yield url


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_fails_its_own_session_soon_and_takes_neither_memory_nor_time_from_the_others(good_agent, name):
    of = script(max_duration_ms=4000)
    before_mib = memory_mib()
    with hostile_agents() as bad, Placing() as placing:
        ways = [placing.way(f"ws://127.0.0.1:{bad.port}/{name}", of), *[placing.way(good_agent, of)] * N_GOOD]
        outcome = placing.run(ways)
    flooded, *good = sorted(outcome.placed, key=lambda each: each.number)
    assert flooded.record.outcome.reason == "protocol", flooded.record.outcome
    assert "flood" in flooded.record.outcome.detail or "more than" in flooded.record.outcome.detail
    assert flooded.record.duration_s < 3.0  # it begins at 0.3 s
    assert_good(good)
    assert_on_time(good)
    assert memory_mib() - before_mib < 200


# ---------------------------------------------------------------- agents that are not there any more


LONG = (ask(response_timeout_ms=1000), ask("later", after="previous_turn_end", delay_ms=10_000))


def test_an_agent_that_never_reads_is_found_within_seconds_of_filling_its_own_buffer(good_agent):
    """At 48 kHz the receive buffer of an agent's system (64 KB and what it grows to) holds a second or two."""
    of = script(*LONG, sample_rate=48_000, max_duration_ms=20_000)
    with hostile_agents() as bad, Placing() as placing:
        (placed,) = placing.run([placing.way(f"ws://127.0.0.1:{bad.port}/never-reads", of)]).placed
    assert placed.record.outcome.reason == "protocol"
    assert "does not read" in placed.record.outcome.detail
    assert placed.record.duration_s < 8.0


def test_an_agent_that_stands_still_leaves_its_session_to_end_by_itself():
    of = script(ask(response_timeout_ms=1500), tail_ms=300)
    with hostile_agents() as bad, Placing() as placing:
        outcome = placing.prepare([placing.way(f"ws://127.0.0.1:{bad.port}/silent", of)])
        gevent.spawn_later(0.4, os.kill, bad.pid, signal.SIGSTOP)
        with gevent.Timeout(20):
            outcome.engine.run()
    (placed,) = outcome.placed
    assert placed.record.outcome.reason in ("no_audio", "protocol")  # the latter on a machine with small buffers
    assert placed.record.duration_s < 3.0


def test_a_killed_agent_drops_all_its_sessions_at_once():
    of = script(*LONG)
    with hostile_agents() as bad, Placing() as placing:
        outcome = placing.prepare([placing.way(f"ws://127.0.0.1:{bad.port}/silent", of)] * 5)
        gevent.spawn_later(0.5, os.kill, bad.pid, signal.SIGKILL)
        outcome.engine.run()
    assert outcome.reasons == ["dropped"] * 5
    assert all(each.record.duration_s < 2.0 for each in outcome.placed)


def test_refused_connections_of_some_leave_the_others_alone(good_agent):
    of = script()
    with Placing() as placing:
        nobody = placing.way("ws://127.0.0.1:9", of)
        outcome = placing.run([nobody, placing.way(good_agent, of)] * 4)
    assert outcome.reasons == ["refused", None] * 4
    assert_good(outcome.of(1, 2))


# ---------------------------------------------------------------- a hostile machine, seen from the command line

TALK = """\
name: talk
tail_ms: 300
turns:
  - {id: ask, audio: {synth: speech, duration_ms: 500}, start: {after: session_start, delay_ms: 100}}
adapter: {type: websocket, options: {url: "ws://127.0.0.1:9"}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "talk.yaml").write_text(TALK)
    (tmp_path / "long.yaml").write_text(TALK.replace("delay_ms: 100", "delay_ms: 4000"))
    return tmp_path


def report_of(folder: Path) -> dict:
    return json.loads((folder / "out" / "report.json").read_text())


def accounted(report: dict) -> dict:
    account = report["accounting"]
    assert account["started"] == account["finished"] + account["failed"] + account["cut"] + account["lost"]
    return account


def limited(ulimit: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command under a limit of the shell's."""
    line = f'ulimit {ulimit} && exec "$@"'
    return subprocess.run(
        ["sh", "-c", line, "sh", *VOICEBENCH, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_too_few_descriptors_are_our_own_failure_and_exit_4(folder, good_agent, host):
    url = good_agent.replace("127.0.0.1", host)
    done = limited("-n 64", "run", "talk.yaml", "--url", url, "-u", "100", "--out", "out", cwd=folder)
    report = report_of(folder)
    account = accounted(report)
    assert done.returncode == 4, done.stderr
    assert account["started"] == 100
    assert account["finished"] > 20
    assert account["reasons"] == {"generator": 100 - account["finished"]}
    details = {each["outcome"]["detail"] for each in report["sessions"] if each["outcome"]["state"] == "failed"}
    assert any("file descriptors (raise `ulimit -n`)" in detail for detail in details), details


def test_no_descriptors_at_all_are_not_an_agent_that_was_not_reached(folder, good_agent):
    """Just enough to start, and for no call: exit 4, our own fault, and not 3."""
    for limit in range(5, 20):
        shutil.rmtree(folder / "out", ignore_errors=True)
        arguments = ("run", "talk.yaml", "--url", good_agent, "--no-preflight", "-u", "3", "--out", "out")
        done = limited(f"-n {limit}", *arguments, cwd=folder)
        if (folder / "out" / "report.json").exists() and not report_of(folder)["accounting"]["finished"]:
            assert done.returncode == 4, done.stderr
            assert accounted(report_of(folder))["reasons"] == {"generator": 3}
            return
    pytest.skip("no limit lets it start and not call")


def test_a_full_disk_loses_recordings_and_says_so_but_no_number(folder, good_agent):
    """No file larger than 20 KiB can be written: the tracks fail, the report fits."""
    arguments = ("run", "talk.yaml", "--url", good_agent, "-u", "3", "--record", "all", "--out", "out")
    done = limited("-f 40", *arguments, cwd=folder)
    report = report_of(folder)
    assert done.returncode == 4, done.stderr
    assert accounted(report)["finished"] == 3
    assert [each["bundle"] for each in report["sessions"]] == [None] * 3
    assert any("3 recordings could not be kept" in reason for reason in report["run"]["reasons"])
    assert not list((folder / "out").glob("bundles/*")), "nothing half-written is left"
    assert "Traceback" not in done.stderr


def test_a_disk_too_full_for_the_report_prints_it(folder, good_agent):
    done = limited("-f 1", "run", "talk.yaml", "--url", good_agent, "-n", "1", "--out", "out", cwd=folder)
    assert done.returncode == 4, done.stderr
    assert json.loads(done.stdout[done.stdout.index("{") :])["accounting"]["finished"] == 1
    assert "cannot be written" in done.stderr
    assert not (folder / "out" / "report.json").exists()


def test_a_killed_run_leaves_whole_recordings_behind(folder, good_agent):
    arguments = ("-u", "6", "-t", "1m", "--record", "all", "--out", "out")
    run = start("run", "talk.yaml", "--url", good_agent, *arguments, cwd=folder)
    wait_for(lambda: len(list((folder / "out").glob("bundles/[!.]*"))) >= 3, "three recordings")
    run.kill()
    run.communicate()
    bundles = [path for path in (folder / "out" / "bundles").iterdir() if not path.name.startswith(".")]
    assert len(bundles) >= 3
    for path in bundles:
        assert score(read_bundle(path)).outcome.state == "finished"
    assert not (folder / "out" / "report.json").exists()


def test_a_run_that_was_stopped_for_three_seconds_blames_itself(folder, good_agent):
    run = start("run", "long.yaml", "--url", good_agent, "-u", "3", "--out", "out", cwd=folder)
    wait_until_started(folder / "out", 3)
    worker = children_of(run.pid, "worker")[0]
    os.kill(worker, signal.SIGSTOP)
    time.sleep(3)
    os.kill(worker, signal.SIGCONT)
    _, stderr = run.communicate(timeout=60)
    report = report_of(folder)
    assert run.returncode == 4, stderr
    assert report["run"]["verdict"] == "untrusted"
    assert accounted(report)["reasons"] == {"generator": 3}
    assert all("ms late" in each["outcome"]["detail"] for each in report["sessions"])
