"""The status page in a real browser, against real runs: a master, two workers, a mock agent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="the page is looked at with Playwright (pip install playwright)")

from playwright.sync_api import Browser

from tests.support.browser import AGENT, CHROMIUM, Master, Opened, Runs, a_browser
from tests.support.processes import mock_server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here: apt-get install chromium"),
]
ROOT = Path(__file__).parents[2]
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with a_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    with mock_server(*AGENT) as url:
        yield url


@pytest.fixture
def runs(tmp_path: Path, agent: str) -> Iterator[Runs]:
    made = Runs(tmp_path, agent)
    yield made
    made.close()


@pytest.fixture
def look(browser: Browser) -> Iterator[Callable[..., Opened]]:
    """Opens a page; at the end no page may have complained."""
    opened: list[Opened] = []

    def open_it(url: str, **context: Any) -> Opened:
        opened.append(Opened(browser, url, **context))
        return opened[-1]

    yield open_it
    complaints = [complaint for each in opened for complaint in each.complaints]
    for each in opened:
        each.close()
    assert complaints == []


ENDED_BY_HAND = "Interrupted|Done: can’t be trusted"
"""The latter goes first on a machine that was too busy, and says so."""


def begin(runs: Runs, *flags: str, n_workers: int = 2, **rest: Any) -> tuple[Master, list[subprocess.Popen[str]]]:
    master = runs.master("-w", str(n_workers), *flags, **rest)
    return master, workers_of(runs, master, n_workers)


def workers_of(runs: Runs, master: Master, n: int) -> list[subprocess.Popen[str]]:
    """The run begins with the last of them: a page that is to see the whole of it is opened before."""
    return [runs.worker(master, f"w{number}") for number in range(1, n + 1)]


def shown(page: Opened) -> dict[str, str]:
    """The numbers of the page, as it words them."""
    tiles, strip = page.page.locator(".tile"), page.page.locator("#strip > div")
    found = {}
    for index in range(tiles.count()):
        name, *rest = tiles.nth(index).inner_text().splitlines()
        found[name] = " ".join(rest)
    for index in range(strip.count()):
        name, *rest = strip.nth(index).inner_text().splitlines()
        found[name] = " ".join(rest)
    found["account"] = page.text("#account-line")
    return found


def worded(summary: dict[str, Any], account: dict[str, int]) -> dict[str, list[str]]:
    """What the page has to say of these numbers, by where it says it. Written apart from the page's own code."""
    latency = summary["response_latency_ms"]

    def ms(value: float | None) -> str:
        return "–" if value is None else f"{int(value + 0.5):,}"

    return {
        "Response latency p95": [ms(latency["p95"]), ms(latency["p50"]), ms(latency["p90"]), f"n {latency['count']:,}"]
        if latency["count"]
        else ["–", "nothing was measured so far"],
        "Missed responses": [f"{summary['missed_responses']} of"] if latency["count"] else ["–"],
        "False barge-ins": [
            f"{summary['false_barge_ins']} of {summary['noise_turns']}" if summary["noise_turns"] else "–"
        ],
        "account": [
            f"{account['started']:,} started",
            *(f"{account[state]:,} {state}" for state in ("finished", "failed", "cut", "lost")),
        ],
    }


def agrees(page: Opened, summary: dict[str, Any], account: dict[str, int]) -> list[str]:
    """What the page does not say as it should."""
    found = shown(page)
    expected = worded(summary, account)
    return [f"{where}: {word!r} not in {found.get(where)!r}" for where, words in expected.items() for word in words
            if word not in found.get(where, "")]  # fmt: skip


def until_agrees(page: Opened) -> dict[str, Any]:
    """The page shows a snapshot, and that within a second or two: the one that is asked for may be newer."""
    differences: list[str] = []
    for _ in range(40):
        snapshot = page.ask("/api/snapshot")
        differences = agrees(page, snapshot["summary"], snapshot["account"])
        if not differences:
            return snapshot
        time.sleep(0.1)
    raise AssertionError(differences)


def test_a_run_from_start_to_end(runs, look):
    master = runs.master("--wait", "-u", "8", "-n", "24", "-r", "8/s")
    page = look(master.url)
    page.until("#pill", "Ready")
    page.until("#banners", "Waiting for a worker")
    assert f"voicebench worker --master {master.address}" in page.text("#workers")
    assert page.page.locator("#start").is_hidden()
    assert not page.page.locator("#chart-latency").is_visible()

    for name in ("w1", "w2"):
        runs.worker(master, name)
    page.until("#banners", "Ready: 2 workers")
    page.page.locator("#start").click()
    page.until("#pill", "Ramping|Steady")
    assert page.page.evaluate("document.activeElement.id") == "stop"  # whoever has started it may stop it

    for n_finished in (1, 8, 14):
        page.until_snapshot(lambda shot, least=n_finished: shot["account"]["finished"] >= least)
        snapshot = until_agrees(page)
        assert snapshot["account"]["missing"] == 0
    page.until("#pill", "Done", 60)
    report = master.report
    assert agrees(page, report["summary"], report["accounting"]) == []
    last = page.ask("/api/snapshot")
    assert last["summary"] == report["summary"]
    assert [{key: each[key] for key in each if key != "state"} for each in last["assertions"]] == report["assertions"]
    assert page.ask("/api/run")["timeline"] == report["timeline"]
    by_turn = report["by_scenario"]["talk"]["by_turn"]
    for row in page.ask("/api/run")["turns"]["rows"]:
        if row["expect"] == "respond":
            assert row["times_ms"]["p95"] == by_turn[row["id"]]["response_latency_ms"]["p95"]
            assert f"{int(row['times_ms']['p95'] + 0.5):,}" in page.text(f"#turns-respond tr:has-text('{row['id']}')")
    assert report["run"]["reasons"] == [] or report["run"]["reasons"][0] in page.text("#banners")
    links = page.page.locator("#banners a")
    assert [links.nth(n).get_attribute("href") for n in range(links.count())] == [
        f"/files/{name}" for name in ("report.html", "report.md", "report.json", "junit.xml")
    ]
    reads_with_the_keyboard(page)
    assert master.ended_as_it_should(0)
    page.until("#fresh", "the master has ended", 20)
    assert "Done" in page.text("#pill")


def reads_with_the_keyboard(page: Opened) -> None:
    page.page.locator("#chart-calls").focus()
    page.page.keyboard.press("Home")
    page.page.wait_for_function("() => document.querySelector('#reading').innerText.trim() !== ''")
    first = page.text("#reading")
    page.page.keyboard.press("End")
    page.page.wait_for_function("first => document.querySelector('#reading').innerText.trim() !== first", arg=first)
    assert "calls" in page.text("#reading")


def four_calls_going_on(runs: Runs, look: Callable[..., Opened]) -> tuple[Master, Opened]:
    master, _ = begin(runs, "-u", "4", "-t", "5m", n_workers=1)
    page = look(master.url)
    page.until("#pill", "Steady")
    page.page.wait_for_function("() => document.querySelector('#account-line').innerText.includes('4 live')")
    return master, page


def test_stop_asks_first_and_lets_calls_finish(runs, look):
    master, page = four_calls_going_on(runs, look)
    page.page.locator("#stop").click()
    page.page.locator("#go-on").click()
    assert "Steady" in page.text("#pill")
    page.page.locator("#stop").click()
    page.page.locator("#drain").click()
    page.until("#banners", "Letting|Writing|finish|Interrupted|stopped", 10)
    page.until("#pill", ENDED_BY_HAND, 30)
    report = master.report
    assert report["accounting"]["cut"] == 0
    assert not report["run"]["complete"]
    assert [each["detail"] for each in report["events"] if each["event"] == "drain"] == ["stopped from the page"]
    assert master.ended_as_it_should(130)


def test_cut_ends_calls_at_once(runs, look):
    master, page = four_calls_going_on(runs, look)
    page.page.locator("#stop").click()
    page.page.locator("#cut-now").click()
    page.until("#pill", ENDED_BY_HAND, 30)
    assert master.report["accounting"]["cut"] > 0
    assert agrees(page, master.report["summary"], master.report["accounting"]) == []
    assert master.ended_as_it_should(130)


def test_a_worker_that_is_killed_is_lost_on_the_page_as_in_the_report(runs, look):
    master = runs.master("-w", "2", "-u", "4", "-t", "14s")
    page = look(master.url)
    workers = workers_of(runs, master, 2)
    page.until("#account-line", "[1-9] finished")
    workers[1].kill()
    page.until("#pill", "Worker lost|overloaded", 20)
    assert "w2 is lost" in page.until("#banners", "lost")
    assert "lost" in page.text("#worker-rows tr:has-text('w2')")
    assert until_agrees(page)["account"]["lost"] > 0
    page.until("#pill", "Done: incomplete", 40)
    assert agrees(page, master.report["summary"], master.report["accounting"]) == []
    assert "w2 is lost" in page.text("#banners")
    assert master.end() == 4


def test_a_master_that_is_gone_and_another_that_comes_in_its_place(runs, look):
    master, _ = begin(runs, "-u", "2", "-t", "5m", n_workers=1)
    page = look(master.url)
    page.until("#account-line", "[1-9] finished")
    master.process.kill()
    page.until("#pill", "Not connected", 10)
    assert "No news from the master" in page.text("#banners")
    assert page.page.locator("#stop").is_disabled()
    assert "started" in page.text("#account-line")  # what was last known stays
    runs.write("other.yaml", name="other")
    runs.master("--wait", file="other.yaml", page=master.url.removeprefix("http://"))
    page.until("#run-name", "other", 20)
    assert "Ready" in page.text("#pill")
    assert page.page.locator("#chart-latency").is_hidden()  # nothing of the other run is left


def test_a_run_that_breaks_its_limit_says_which(runs, look):
    runs.write("slow.yaml", limit_ms=100)
    master, _ = begin(runs, "-u", "2", "-n", "4", file="slow.yaml", n_workers=1)
    page = look(master.url)
    page.until("#title-assertions ~ #assertion-tags", "failing|can’t tell|not trusted", 30)
    page.until("#pill", "Done: ", 30)
    report = master.report
    assert report["run"]["reasons"][-1] in page.text("#banners") or report["run"]["exit_code"] == 4
    assert "p95_response_latency_ms" in page.text("#event-list")
    assert master.ended_as_it_should(1)


def test_a_run_can_be_run_again_with_workers_that_stay(runs, look):
    master = runs.master("-u", "2", "-n", "2")
    worker = runs.worker(master, "w1", "--stay")
    page = look(master.url)
    page.until("#pill", "Done", 40)
    first = page.ask("/api/snapshot")["run_id"]
    page.page.locator("#start", has_text="Run again").click()
    page.until_snapshot(lambda shot: shot.get("run_id") == f"{first}-2" and shot["state"] == "done")
    page.until("#pill", "Done", 40)
    snapshot = until_agrees(page)
    assert snapshot["run_id"] == f"{first}-2"
    again = json.loads((master.out.with_name(f"{master.out.name}-2") / "report.json").read_text())
    assert (again["run"]["id"], again["accounting"]["finished"]) == (f"{first}-2", 2)
    assert master.report["accounting"]["finished"] == 2  # the first is still there
    assert [each["id"] for each in again["workers"]] == ["w1"]
    assert master.ended_as_it_should(0)
    worker.send_signal(signal.SIGINT)
    assert worker.wait(timeout=30) == 130


def test_an_overloaded_generator_comes_before_everything_else(runs, look):
    master, workers = begin(runs, "-u", "4", "-t", "5m", n_workers=1)
    page = look(master.url)
    page.until("#account-line", "[1-9] live")
    for _ in range(10):  # a machine that gives the worker no time now and then
        os.kill(workers[0].pid, signal.SIGSTOP)
        time.sleep(0.3)
        os.kill(workers[0].pid, signal.SIGCONT)
        time.sleep(0.4)
    page.until("#pill", "Generator overloaded", 20)
    assert page.page.locator("#banners > *").first.inner_text().startswith("These numbers can’t be trusted")
    assert page.page.locator(".tile", has_text="not trusted").count() > 0
    assert "overloaded" in page.text("#worker-rows")
    page.page.locator("#stop").click()
    page.page.locator("#cut-now").click()
    page.until("#pill", "Done: can’t be trusted", 40)
    assert master.end() == 4


def test_a_worker_whose_machine_pauses_is_told_before_a_turn_has_ended_with_what_helps(runs, look):
    master, workers = begin(runs, "-u", "4", "-t", "5m", n_workers=1)
    page = look(master.url)
    page.until("#account-line", "[1-9] live")
    os.kill(workers[0].pid, signal.SIGSTOP)
    time.sleep(0.4)
    os.kill(workers[0].pid, signal.SIGCONT)
    page.until("#banners", "w1 is at the limit", 5)
    page.until("#event-list", "warning w1, since .* turns become unreliable", 5)
    page.until("#worker-rows", "strained|overloaded", 5)
    cells = page.page.locator("#worker-rows tr").first.locator("td").all_inner_texts()
    assert cells[2].strip().endswith("%")
    assert cells[3].endswith(" ms")
    page.page.locator("#stop").click()
    page.page.locator("#cut-now").click()
    page.until("#pill", "Done|Interrupted", 40)
    assert master.end() in (4, 130)


HOSTILE = "<img src=x onerror=alert(1)>'\\\"><script>alert(2)</script>"


def test_words_of_files_and_agents_are_words(runs, look):
    runs.write("hostile.yaml", name=f'"{HOSTILE}"', second=f'"{HOSTILE}"')
    master, _ = begin(runs, "-u", "1", "-n", "2", file="hostile.yaml", n_workers=1)
    page = look(master.url)
    page.until("#pill", "Done", 40)
    assert "<img src=x onerror=alert(1)>" in page.text("#run-name")
    assert "<script>alert(2)</script>" in page.text("#turns")
    assert page.page.locator("img").count() == 0
    assert page.page.evaluate("[...document.scripts].every(each => each.src)")


def test_another_site_in_the_same_browser_can_neither_read_nor_stop_the_run(runs, look, browser, tmp_path):
    master, _ = begin(runs, "-u", "1", "-t", "5m", n_workers=1)
    page = look(master.url)
    page.until("#pill", "Steady")
    csrf = page.ask("/api/run")["csrf"]  # even one that knew the token
    other = browser.new_context().new_page()
    other.route("http://evil.example/", lambda route: route.fulfill(body="<p>hello</p>", content_type="text/html"))
    other.goto("http://evil.example/")
    attack = """async ([url, csrf]) => {
        const tries = [
            [url + "/api/run", {}],
            [url + "/api/run", {mode: "no-cors"}],
            [url + "/api/stop", {method: "POST", mode: "no-cors", body: '{"how": "cut"}'}],
            [url + "/api/stop", {method: "POST", headers: {"X-CSRF-Token": csrf, "Content-Type": "application/json"}, body: '{"how": "cut"}'}],
        ];
        const said = [];
        for (const [where, init] of tries) said.push(await fetch(where, init).then(answer => answer.text(), () => "refused"));
        const frame = document.createElement("iframe");
        frame.src = url;
        document.body.append(frame);
        const form = document.createElement("form");
        Object.assign(form, {method: "post", action: url + "/api/stop", target: "there"});
        document.body.append(form);
        form.submit();
        return said;
    }"""
    assert set(other.evaluate(attack, [master.url, csrf])) <= {"refused", ""}
    other.wait_for_timeout(1500)
    assert "Steady" in page.text("#pill")
    assert page.ask("/api/snapshot")["state"] == "steady"
    framed = [frame for frame in other.frames if frame.url.startswith(master.url)]
    assert all("voicebench" not in frame.content() for frame in framed)
    other.context.close()


def test_the_page_is_small(runs, browser):
    master, _ = begin(runs, "-u", "1", "-n", "1", n_workers=1)
    context = browser.new_context()
    page = context.new_page()
    client = context.new_cdp_session(page)
    client.send("Network.enable")
    received: dict[str, int] = {}
    asked: list[str] = []
    client.on("Network.responseReceived", lambda event: asked.append(event["response"]["url"]))
    client.on(
        "Network.loadingFinished", lambda event: received.__setitem__(event["requestId"], event["encodedDataLength"])
    )
    page.goto(master.url)
    page.wait_for_timeout(2000)
    context.close()
    assert 5 <= len(asked) <= 20, asked
    assert 10_000 < sum(received.values()) <= 100_000


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed: make web")
def test_nothing_serious_stands_between_the_page_and_those_who_see_or_point_badly(runs, look):
    runs.write("slow.yaml", limit_ms=100)
    master, workers = begin(runs, "-u", "2", "-t", "5m", file="slow.yaml")
    pages = [
        look(master.url, color_scheme=scheme, viewport={"width": width, "height": 900})
        for scheme, width in (("light", 320), ("dark", 390), ("light", 1280), ("dark", 1280), ("light", 2560))
    ]
    pages[0].until("#account-line", "[1-9] live")
    nothing_serious(pages[0])
    workers[1].kill()
    pages[0].until("#banners", "lost", 20)
    pages[0].page.locator("#stop").click()
    nothing_serious(pages[0])  # the question, too
    pages[0].page.locator("#drain").click()
    for page in pages:
        page.until("#pill", f"Done|{ENDED_BY_HAND}", 40)
        nothing_serious(page)


def nothing_serious(page: Opened) -> None:
    assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"
    found = page.page.evaluate(AXE.read_text() + "; axe.run()")
    serious = [
        (each["id"], each["help"], [node["html"][:120] for node in each["nodes"]])
        for each in found["violations"] if each["impact"] in ("serious", "critical")
    ]  # fmt: skip
    assert serious == []
    assert len(found["passes"]) > 10


def test_a_page_that_is_hidden_lets_go_of_its_stream_and_catches_up(runs, look):
    master, _ = begin(runs, "-u", "2", "-t", "5m", n_workers=1)
    page = look(master.url)
    page.until("#account-line", "[1-9] live")
    hide = """hidden => {
        Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.page.evaluate(hide, True)
    before = page.text("#clock")
    time.sleep(3)
    assert page.text("#clock") == before
    page.page.evaluate(hide, False)
    until_agrees(page)
    assert page.text("#clock") != before
    assert json.dumps(page.complaints) == "[]"
