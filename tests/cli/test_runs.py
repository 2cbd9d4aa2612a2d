"""`voicebench runs` and `voicebench report`: what is on disk, and reports made again."""

import json
from pathlib import Path

import pytest

from tests.master.test_store import a_store, ended, fresh, killed
from tests.support.processes import start, voicebench, wait_for
from voicebench.cli import main
from voicebench.errors import UsageError
from voicebench.master.store import read_run

MOCK = """\
name: asked
turns: [{id: ask, audio: {synth: speech, duration_ms: 400}}]
assert: {max_missed_responses: 0}
"""


REPORTS = ("report.json", "report.html", "report.md", "junit.xml")


def reports_in(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in REPORTS}


@pytest.fixture
def results(tmp_path: Path, monkeypatch) -> Path:
    """A folder with a virtual run, a run that lost a worker, and one whose master was killed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "asked.yaml").write_text(MOCK)
    assert main(["run", "asked.yaml", "-n", "3", "-q", "--record", "all", "--out", "voicebench-results/good"]) == 0
    lost = a_store(tmp_path / "voicebench-results" / "lost")
    lost.add_results([fresh(0)])
    lost.add_lost([(1, "run-000001", 1, "made"), (2, "run-000002", 1, "made")])
    ended(lost, tmp_path / "voicebench-results" / "lost")
    unfinished = a_store(tmp_path / "voicebench-results" / "killed")
    unfinished.add_results([fresh(0)])
    killed(unfinished)
    return tmp_path / "voicebench-results"


def test_a_report_made_again_is_the_same_to_the_byte(results, capsys):
    written = reports_in(results / "good")
    assert main(["report", "good", "-q"]) == 0
    assert reports_in(results / "good") == written
    assert main(["report", str(results / "good"), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(written["report.json"])


def test_a_report_of_a_run_that_lost_sessions_names_them_and_has_its_exit_code(results, capsys):
    assert main(["report", "lost"]) == 4
    shown = capsys.readouterr()
    assert "2 started sessions are missing" in shown.err
    assert "2 lost" in shown.out
    report = json.loads((results / "lost" / "report.json").read_text())
    assert [each["outcome"]["state"] for each in report["sessions"]] == ["finished", "lost", "lost"]


@pytest.mark.parametrize(("run", "word"), [("good", "Passed"), ("lost", "Incomplete"), ("killed", "Incomplete")])
def test_all_reports_are_made_of_every_run_that_is_over(results, run, word):
    main(["report", run, "-q"])
    assert all(reports_in(results / run).values())
    assert (results / run / "report.md").read_text().startswith(f"# {word}")


def test_a_report_that_can_not_be_written_is_told_and_the_exit_code_stays(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "no" / "such" / "file"))
    (tmp_path / "asked.yaml").write_text(MOCK)
    assert main(["run", "asked.yaml", "-q", "--out", "out"]) == 0
    assert "warning: $GITHUB_STEP_SUMMARY" in capsys.readouterr().err
    (tmp_path / "out" / "report.md").unlink()
    (tmp_path / "out" / "report.md").mkdir()
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    assert main(["report", "out", "-q"]) == 0
    assert "report.md: cannot be written: Is a directory" in capsys.readouterr().err
    assert (tmp_path / "summary.md").read_text().startswith("# Passed")


def test_a_run_whose_master_was_killed_gets_the_report_of_what_was_acknowledged(results, capsys):
    assert main(["report", "killed", "--json", "again.json"]) == 4
    report = json.loads(Path("again.json").read_text())
    assert (report["summary"]["sessions"], report["accounting"]["lost"]) == (3, 2)
    assert report["run"]["complete"] is False
    assert "the master ended before the run did" in capsys.readouterr().err


def test_a_report_that_knows_more_than_the_database_is_left_alone(results, capsys):
    """As after a disk that failed during the run: the master reported from memory, and its database is behind."""
    fuller = b'{"accounting": {"finished": 2, "failed": 0, "cut": 0, "lost": 0}}'
    (results / "killed" / "report.json").write_bytes(fuller)
    assert main(["report", "killed", "-q"]) == 4
    assert (results / "killed" / "report.json").read_bytes() == fuller
    assert "has more sessions than run.db" in capsys.readouterr().err
    (results / "killed" / "report.json").write_bytes(b"[]")
    assert main(["report", "killed", "-q"]) == 4
    assert json.loads((results / "killed" / "report.json").read_bytes())["accounting"]["finished"] == 1


def test_a_run_that_goes_on_is_shown_and_nothing_is_written(tmp_path, capsys):
    store = a_store(tmp_path)
    assert main(["report", str(tmp_path)]) == 4
    assert "still going on" in capsys.readouterr().err
    assert not (tmp_path / "report.json").exists()
    store.close()


def test_runs_are_listed_with_what_came_of_them(results, capsys):
    assert main(["runs"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert {line.split()[0]: line.split()[-3:] for line in lines} == {
        "good": lines[0].split()[-3:],
        "lost": ["incomplete", "(exit", "4)"],
        "killed": lines[-1].split()[-3:],
    }
    assert lines[0].endswith("pass")
    assert any(line.endswith("unfinished") for line in lines)


def test_runs_as_json_and_of_which_only_the_report_is_left(results, capsys):
    (results / "good" / "run.db").unlink()
    (results / "broken").mkdir()
    (results / "broken" / "report.json").write_text("{}")
    (results / "nothing").mkdir()
    assert main(["runs", str(results), "--json"]) == 0
    runs = {each["run"]: each for each in json.loads(capsys.readouterr().out)["runs"]}
    assert set(runs) == {"good", "lost", "killed", "broken"}
    assert (runs["good"]["verdict"], runs["good"]["started"], runs["good"]["exit_code"]) == ("pass", 3, 0)
    assert (runs["killed"]["state"], runs["killed"]["verdict"]) == ("unfinished", None)
    assert "is no report of a run" in runs["broken"]["trouble"]


TALK = """\
name: talk
turns: [{id: ask, audio: {synth: speech, duration_ms: 400}}]
adapter: {type: mock, options: {endpoint_silence_ms: 200, response_delay_ms: 200, response_ms: 300}}
"""


@pytest.mark.slow
def test_a_run_with_workers_gives_the_same_report_again_to_the_byte(tmp_path):
    (tmp_path / "talk.yaml").write_text(TALK)
    flags = ("--realtime", "-u", "4", "-n", "8", "--workers", "2", "--record", "all", "--out", "out")
    ran = voicebench("run", "talk.yaml", *flags, cwd=tmp_path)
    written = reports_in(tmp_path / "out")
    report = json.loads(written["report.json"])
    assert len(report["accounting"]["by_worker"]) == 2
    assert any(report["timeline"]["live"])
    again = voicebench("report", "out", cwd=tmp_path)
    assert reports_in(tmp_path / "out") == written
    assert (again.returncode, again.stdout) == (ran.returncode, ran.stdout)


@pytest.mark.slow
def test_a_master_that_is_killed_leaves_a_run_that_can_be_reported(tmp_path):
    (tmp_path / "talk.yaml").write_text(TALK)
    folder = tmp_path / "out"
    master = start(
        "run", "talk.yaml", "--realtime", "-u", "4", "-t", "10m", "--workers", "2", "-q", "--out", "out", cwd=tmp_path
    )
    try:
        wait_for(lambda: stored(folder) >= 5, "stored sessions")
        going_on = voicebench("report", "out", cwd=tmp_path)
        assert (going_on.returncode, (folder / "report.json").exists()) == (4, False)
        assert "still going on" in going_on.stderr
        before = stored(folder)
    finally:
        master.kill()
        master.communicate()
    again = voicebench("report", "out", cwd=tmp_path)
    report = json.loads((folder / "report.json").read_bytes())
    found = report["accounting"]
    assert (again.returncode, report["run"]["verdict"], report["run"]["complete"]) == (4, "incomplete", False)
    assert found["finished"] + found["failed"] >= before
    assert found["started"] == found["finished"] + found["failed"] + found["cut"] + found["lost"]


def stored(folder: Path) -> int:
    try:
        return read_run(folder).collector.n_taken
    except UsageError:
        return 0  # it is just being made


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["report", "nowhere"], "nowhere: there is no such folder, and none of that name in voicebench-results"),
        (["report", "asked.yaml"], "asked.yaml: is a file: give the folder of a run"),
        (["report", "."], "holds no run: there is no run.db in it"),
        (["report", "good", "--json", "no/where.json"], "--json: no/where.json can't be written"),
        (["report"], "RUN is missing"),
        (["runs", "nowhere"], "nowhere: there is no such folder"),
        (["runs", "asked.yaml"], "asked.yaml: is no folder"),
    ],
)
def test_a_wrong_call_is_exit_2_and_a_sentence(results, capsys, arguments, told):
    assert main(arguments) == 2
    assert told in capsys.readouterr().err
