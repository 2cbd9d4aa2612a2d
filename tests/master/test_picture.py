"""What the status page is told: the numbers of the report, words that are true, never more than fits."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.master.test_coordinator import beat, gathered
from tests.support import made
from tests.support.made import a_head, ignore, respond, session, stop
from voicebench.load.closed import session_name
from voicebench.master.collector import Collector
from voicebench.master.picture import MAX_SNAPSHOT_BYTES, MAX_WORKERS, PageFacts, Painter
from voicebench.master.strain import Strain
from voicebench.master.telling import Result
from voicebench.records import Outcome, SessionRecord
from voicebench.scenario.model import AudioSource, Scenario, StartRule, Turn
from voicebench.scenario.prepared import PreparedScenario
from voicebench.wire.messages import Block, Health, Results

START = StartRule("session_start", 0.0)
SPOKEN, NOISE = AudioSource(file="ask.wav"), AudioSource(synth="noise", duration_ms=330.0)
SCRIPT = Scenario(
    "made",
    (
        Turn("ask", SPOKEN, START, text="Where is it?"),
        Turn("barge-in", SPOKEN, START, "stop"),
        Turn("cough", NOISE, START, "ignore"),
    ),
)
FACTS = PageFacts(
    (PreparedScenario(SCRIPT, (), "made.yaml"),), "failed", "voicebench worker --master h:5557", False, "t"
)
JOIN = "voicebench worker --master h:5557"


class Stage:
    """A coordinator, a collector and the painter that looks at both."""

    def __init__(self, n_workers: int = 1, *, facts: PageFacts = FACTS, limits: Any = None, **plan: Any) -> None:
        self.coordinator = gathered(n_workers, **plan)
        self.collector = Collector()
        self.strain = Strain()
        limits = limits or {}
        self.painter = Painter(
            facts, a_head(limits=limits, scenario_limits={"made": {}}), self.coordinator, self.collector, self.strain
        )
        self.now_s = 0.0
        self._beats = [1] * n_workers
        self._seqs = [0] * n_workers

    def start(self) -> None:
        self.coordinator.start(0.0)
        self.now_s = self.coordinator.t0_s or 0.0

    def beat(self, worker: int = 0, **rest: Any) -> None:
        self._beats[worker] += 1
        message = beat(self._beats[worker], worker + 1, state="running", **rest)
        self.coordinator.hear(b"%d" % worker, message, self.now_s)

    def end(self, number: int, record: SessionRecord, worker: int = 0) -> None:
        self._seqs[worker] += 1
        record = made.session(*record.turns, outcome=record.outcome, session_id=session_name("r", number))
        sent = Results(epoch=worker + 1, seq=self._seqs[worker], session=made.result(record, number=number))
        self.coordinator.hear(b"%d" % worker, sent, self.now_s)
        for fresh in self.coordinator.take_fresh():
            self.collector.take(fresh.session, worker=fresh.worker)
        self.coordinator.stored()

    def shot(self, now_s: float | None = None) -> dict[str, Any]:
        self.now_s = self.now_s if now_s is None else now_s
        return json.loads(self.painter.paint(self.now_s, 1.8e9).snapshot)

    def history(self) -> dict[str, Any]:
        return json.loads(self.painter.history())


def what(shot: dict[str, Any]) -> list[str]:
    return [banner["what"] for banner in shot["banners"]]


def test_before_the_run_it_says_what_it_waits_for():
    stage = Stage(0)
    shot = stage.shot()
    assert (shot["state"], shot["pill"]["text"], what(shot)) == ("idle", "Ready", ["idle"])
    assert shot["banners"][0]["title"] == "Waiting for a worker"
    assert JOIN in shot["banners"][0]["text"]
    assert shot["can"] == {"start": False, "stop": False}
    assert shot["summary"]["response_latency_ms"]["p95"] is None


@pytest.mark.parametrize(("waits", "workers", "start"), [(True, 1, True), (True, 0, False), (False, 1, False)])
def test_start_is_offered_where_the_master_waits_for_it_and_somebody_could_begin(waits, workers, start):
    facts = PageFacts(FACTS.scenarios, "failed", JOIN, waits)
    assert Stage(workers, facts=facts).shot()["can"]["start"] is start


def test_the_numbers_are_those_of_the_report():
    stage = Stage()
    stage.start()
    for number in range(4):
        stage.beat(placed=((number, 1),))
        stage.end(number, session(respond(500.0 + number), stop(), ignore(spurious=True)))
    shot = stage.shot(3.0)
    assert shot["summary"] == json.loads(json.dumps(stage.collector.total.all.as_dict()))
    assert shot["account"] == {
        "started": 4, "live": 0, "finished": 4, "failed": 0, "cut": 0, "lost": 0, "missing": 0, "maybe_started": 0,
    }  # fmt: skip
    ask, barge_in, cough = stage.history()["turns"]["rows"]
    assert (ask["played"], ask["good"], ask["missed"], ask["times_ms"]["p50"]) == (4, 4, 0, 501.5)
    assert (barge_in["good"], barge_in["missed"], barge_in["limit_ms"]) == (4, 0, 1000.0)
    assert (cough["good"], cough["missed"], cough["spurious_responses"], cough["times_ms"]) == (0, 4, 4, None)
    assert (ask["audio"], ask["text"], cough["audio"]) == ("ask.wav", "Where is it?", "noise, 330 ms")


def test_a_call_that_goes_on_is_live_and_one_of_a_lost_worker_is_lost():
    stage = Stage(2)
    stage.start()
    stage.beat(0, placed=((0, 1),))
    stage.beat(1, placed=((1, 1),))
    shot = stage.shot()
    assert (shot["account"]["started"], shot["account"]["live"], shot["account"]["missing"]) == (2, 2, 0)
    stage.coordinator.gone(2, stage.now_s, "killed")
    shot = stage.shot()
    assert (shot["account"]["live"], shot["account"]["lost"], shot["account"]["missing"]) == (1, 1, 0)
    assert shot["pill"] == {"text": "Worker lost", "kind": "warn", "live": True}
    (banner,) = shot["banners"]
    assert banner["what"] == "lost"
    assert "killed. 1 call that had started and not been reported counts as lost; new calls go to w." in banner["text"]
    lost = shot["workers"][0]
    assert (lost["state"], lost["kind"], lost["why"], lost["calls"]) == ("lost", "bad", "killed", 0)


def test_unreliable_turns_make_the_whole_page_untrusted_and_name_the_worker():
    stage = Stage(2)
    stage.start()
    stage.beat(0, placed=((0, 1),))
    stage.end(0, session(respond(500.0, reliable=False, error_ms=60.0)))
    shot = stage.shot()
    assert shot["trusted"] is False
    assert shot["pill"]["text"] == "Generator overloaded"
    assert what(shot)[0] == "overloaded"
    assert "1 of 1 turns (100 %)" in shot["banners"][0]["text"]
    assert "on w." in shot["banners"][0]["text"]
    assert shot["workers"][0]["state"] == "overloaded"
    assert [each["event"] for each in shot["new_events"]][-1] == "overloaded"


def test_a_limit_is_open_until_something_was_measured_and_its_breaking_is_an_event():
    stage = Stage(limits={"p95_response_latency_ms": 1000.0, "max_missed_responses": 0})
    stage.start()
    shot = stage.shot()
    assert [each["state"] for each in shot["assertions"]] == ["open", "passing"]
    stage.beat(placed=((0, 1), (1, 1)))
    stage.end(0, session(respond(1500.0)))
    shot = stage.shot()
    assert [each["state"] for each in shot["assertions"]] == ["failing", "passing"]
    broken = [each for each in shot["new_events"] if each["event"] == "broken"]
    assert broken[0]["detail"] == "p95_response_latency_ms: 1500, the limit is 1000"
    assert stage.history()["turns"]["rows"][0]["over"] == ["p95"]
    assert not [each for each in stage.shot()["new_events"] if each["event"] == "broken"]


def test_what_was_never_measured_fails_at_the_end():
    stage = Stage(limits={"max_wer": 0.1})
    stage.start()
    assert stage.shot()["assertions"][0]["state"] == "open"
    stage.painter.result = Result("fail", 1, True, ("max_wer: nothing was measured, the limit is 0.1",), None, ())
    shot = stage.shot()
    assert shot["assertions"][0]["state"] == "failing"
    assert shot["pill"] == {"text": "Done: 1 assertion failed", "kind": "bad", "live": False}
    assert what(shot) == ["done"]
    assert shot["banners"][0]["text"] == "0 of 1 assertion pass. Exit 1."
    assert (shot["state"], shot["progress"], shot["can"]["stop"]) == ("done", 1.0, False)


def test_a_master_that_anybody_can_reach_says_so_all_along():
    stage = Stage()
    stage.painter.head = a_head(insecure=True)
    assert what(stage.shot()) == ["idle", "insecure"]
    stage.start()
    assert what(stage.shot()) == ["insecure"]
    assert "forge its results" in stage.shot()["banners"][0]["text"]


def test_a_pass_says_so():
    stage = Stage()
    stage.start()
    stage.painter.result = Result("pass", 0, True, (), "results/r", ("report.html",))
    shot = stage.shot()
    assert shot["pill"] == {"text": "Done", "kind": "good", "live": False}
    assert shot["result"] == {
        "verdict": "pass", "exit_code": 0, "complete": True, "reasons": [], "directory": "results/r",
        "files": ["report.html"],
    }  # fmt: skip


def test_a_ramp_is_a_ramp_until_all_callers_have_joined():
    stage = Stage(callers=11, spawn_rate_per_s=2.0, run_time_s=20.0)
    stage.start()
    t0_s = stage.now_s
    shot = stage.shot(t0_s + 2.1)
    assert (shot["state"], shot["calls"]["wanted"], shot["progress"], shot["left_s"]) == ("ramping", 5, 0.105, 17.9)
    shot = stage.shot(t0_s + 6.0)
    assert (shot["state"], shot["calls"]["wanted"]) == ("steady", 11)
    assert stage.history()["run"]["phases"] == [
        {"name": "ramp", "from_s": 0.0, "to_s": 5.0, "calls": 11},
        {"name": "hold", "from_s": 5.0, "to_s": 20.0, "calls": 11},
    ]


def test_stopping_says_who_is_awaited_and_when_calls_are_cut():
    stage = Stage(stop_timeout_s=30.0)
    stage.start()
    stage.beat(placed=((0, 1), (1, 1)))
    stage.coordinator.drain(stage.now_s, "SIGINT")
    shot = stage.shot(stage.now_s + 10.0)
    assert (shot["state"], shot["calls"]["wanted"]) == ("stopping", 0)
    assert shot["banners"][0]["title"] == "Letting 2 calls finish"
    assert shot["banners"][0]["text"] == "No new calls. Waiting for w; they are cut in 20 s."
    assert shot["can"]["stop"] is True  # they can still be cut
    stage.coordinator.cut(stage.now_s, "again")
    shot = stage.shot()
    assert shot["banners"][0]["title"] == "Cutting 2 calls"
    assert shot["can"]["stop"] is False


def test_when_all_calls_are_placed_the_last_ones_go_on():
    stage = Stage(callers=1, sessions=1)
    stage.start()
    stage.beat(placed=((0, 1),), share_version=stage.coordinator.shares.version(1))
    stage.coordinator.tick(stage.now_s + 0.1)
    shot = stage.shot(stage.now_s + 0.1)
    assert (shot["pill"]["text"], shot["banners"][0]["title"]) == ("Finishing", "The last 1 call goes on")


def test_a_worker_that_says_nothing_is_late_and_back_again():
    stage = Stage()
    stage.start()
    stage.beat()
    shot = stage.shot(stage.now_s + 2.0)
    assert (shot["workers"][0]["state"], shot["workers"][0]["beat_age_s"]) == ("late", 2.0)
    assert shot["new_events"][-1]["event"] == "late"
    stage.beat()
    assert stage.shot()["new_events"][-1]["event"] == "back"


def test_a_blocked_loop_is_told_and_cpu_is_of_the_time_between_two_beats():
    stage = Stage()
    stage.start()
    stage.coordinator.hear(b"0", beat(8, state="running", hub_age_s=3.0), stage.now_s)
    shot = stage.shot()
    assert (shot["workers"][0]["state"], shot["workers"][0]["kind"]) == ("blocked", "bad")
    assert shot["workers"][0]["cpu_percent"] is None
    later = msgspec.structs.replace(beat(9, state="running"), sent_s=2.0, cpu_s=0.5)
    stage.coordinator.hear(b"0", later, stage.now_s)
    assert stage.shot()["workers"][0]["cpu_percent"] == 25.0


def test_a_worker_at_its_limit_is_told_with_the_remedy_and_the_room_that_is_left():
    stage = Stage(2)
    stage.start()
    health = Health(n=1, over_s=1.0, calls=100, loop_cpu=0.745, worst_late_ms=3.0, widest_gap_ms=4.25)
    message = beat(8, state="running", health=health)
    stage.coordinator.hear(b"0", message, stage.now_s)
    stage.strain.hear(1, "w1", message, stage.now_s, 0.0)
    shot = stage.shot()
    row = next(each for each in shot["workers"] if each["state"] == "strained")
    assert (row["kind"], row["loop_cpu_percent"], row["lag_ms"]) == ("warn", 74.5, 4.2)
    assert "about 7 more fit" in row["why"]
    banner = shot["banners"][0]
    assert (banner["what"], banner["kind"]) == ("strained", "warn")
    assert "about 7 more fit before 80 %" in banner["text"]


def test_a_loop_that_stands_still_comes_before_what_is_only_slow():
    stage = Stage()
    stage.start()
    block = Block(what="loop", for_s=2.0, where="in receive(), mine.py:7")
    message = beat(8, state="running", live=1, blocked=block, health=Health(n=1, over_s=1.0, calls=1, loop_cpu=0.9))
    stage.coordinator.hear(b"0", message, stage.now_s)
    stage.strain.hear(1, "w1", message, stage.now_s, 0.0)
    shot = stage.shot()
    assert what(shot) == ["blocked", "strained"]
    assert "mine.py:7" in shot["banners"][0]["text"]
    assert (shot["workers"][0]["state"], shot["workers"][0]["kind"]) == ("blocked", "bad")


def test_it_fits_whatever_there_is_to_say():
    limits = {f"p{n}.5_response_latency_ms": 1.0 for n in range(99)}
    stage = Stage(80, limits=limits)
    stage.start()
    stage.beat(placed=((0, 1), (1, 1), (2, 1)))
    stage.end(0, session(respond(1500.0), outcome=Outcome("failed", "dropped", "x" * 100_000)))
    for epoch in range(2, 40):
        stage.coordinator.gone(epoch, stage.now_s, "é\N{BELL SYMBOL}" * 5000)
    picture = stage.painter.paint(stage.now_s, 1.8e9)
    assert len(picture.snapshot) <= MAX_SNAPSHOT_BYTES
    shot = json.loads(picture.snapshot)
    assert shot["reload"] is True
    assert 0 < len(shot["workers"]) <= MAX_WORKERS
    assert shot["n_workers"] == 80
    assert shot["workers"][0]["kind"] == "bad"
    assert len(stage.history()["events"]) > len(shot["new_events"])


def test_words_that_no_json_can_hold_are_shown_without_what_it_can_not():
    stage = Stage()
    stage.start()
    stage.beat(placed=((0, 1),))
    stage.end(0, session(outcome=Outcome("failed", "dropped", "lone \ud800 surrogate")))
    assert stage.shot()["reasons"][0]["detail"] == "lone ? surrogate"
    assert stage.history()["snapshot"]["reasons"][0]["n"] == 1


def test_the_table_of_turns_is_made_with_every_second_picture_and_with_the_last():
    stage = Stage()
    stage.start()
    stage.beat(placed=((0, 1),))
    pictures = [stage.painter.paint(0.0, 0.0)]
    stage.end(0, session(respond(500.0)))
    pictures += [stage.painter.paint(0.0, 0.0) for _ in range(2)]
    assert pictures[0].turns != pictures[1].turns
    assert pictures[1].turns is pictures[2].turns
    stage.painter.result = Result("pass", 0, True, (), None, ())
    assert stage.painter.paint(0.0, 0.0).turns is not pictures[2].turns


def test_the_history_and_the_tail_of_each_snapshot_fit_together():
    stage = Stage()
    stage.start()
    stage.beat(placed=((0, 1),))
    stage.shot()
    history = stage.history()
    stage.end(0, session(respond(500.0, end_s=2.0)))
    shot = stage.shot(stage.now_s + 1.0)
    points = shot["points"]
    columns = {name: history["timeline"][name] for name in points if name not in ("from", "window_s")}
    for name, column in columns.items():
        column[points["from"] :] = points[name]
    assert {**columns, "window_s": 5.0} == stage.history()["timeline"]
    assert shot["seq"] == history["snapshot"]["seq"] + 1


def test_events_count_up_and_none_is_told_twice():
    stage = Stage(2)
    first = stage.shot()["new_events"]
    stage.start()
    second = stage.shot()["new_events"]
    assert [each["n"] for each in first + second] == list(range(1, len(first) + len(second) + 1))
    assert [each["event"] for each in first] == ["join", "join"]
    assert stage.history()["events"] == first + second
