"""The single-machine package's own sessions, as many at once as asked for. Runs in its environment, beside none of ours.

peer_user.py calls URL SESSIONS TURNS RUN_S     sessions under asyncio, each starting anew when it is over
peer_user.py virtual SCENARIO.json              CPU milliseconds of one session with the mock agent and its score
"""

import asyncio
import json
import sys
import time

from voicebench.adapters import create_adapter
from voicebench.runner import run

from voicebench.metrics import analyze
from voicebench.scenario import parse_scenario


def conversation(turns):
    first = {
        "id": "t0",
        "audio": {"synth": "speech", "duration_ms": 1000},
        "start": {"after": "session_start", "delay_ms": 300},
    }
    return parse_scenario(
        {
            "name": "many",
            "tail_ms": 200,
            "max_duration_ms": 120_000,
            "adapter": {"type": "websocket", "options": {}},
            "turns": [first]
            + [
                {**first, "id": f"t{n}", "start": {"after": "agent_speech_end", "delay_ms": 300}}
                for n in range(1, turns)
            ],
        }
    )


async def call_again_and_again(number, url, scenario, sessions, until_s):
    await asyncio.sleep(number / 12)
    while time.monotonic() < until_s:
        session = f"p-{number}-{time.monotonic_ns()}"
        analyze(await run(scenario, create_adapter("websocket", {"url": f"{url}/?session={session}"})))


async def calls(url, sessions, turns, run_s):
    scenario, until_s = conversation(turns), time.monotonic() + run_s
    callers = [
        asyncio.create_task(call_again_and_again(number, url, scenario, sessions, until_s))
        for number in range(sessions)
    ]
    await asyncio.wait(callers, timeout=run_s)
    failed = sum(each.done() and each.exception() is not None for each in callers)
    print(json.dumps({"failures": failed}), flush=True)


def virtual(path):
    with open(path, encoding="utf-8") as file:
        scenario = parse_scenario(json.load(file))
    spent = []
    for _ in range(5):
        began_s = time.process_time()
        analyze(asyncio.run(run(scenario, create_adapter("mock", scenario.adapter.options))))
        spent.append(1000 * (time.process_time() - began_s))
    print(json.dumps({"cpu_ms": min(spent)}))


if __name__ == "__main__":
    if sys.argv[1] == "virtual":
        virtual(sys.argv[2])
    else:
        asyncio.run(calls(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])))
