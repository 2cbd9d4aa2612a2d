"""What a careful Locust user does with websocket-client: the conversation of the other clients. Runs in an environment of its own.

Each user keeps a greenlet that sends a frame every 20 ms by absolute due times, and one that reads; a session lasts
`SESSION_TURNS` turns. How late frames were after `WARMUP_S` goes to the file `LATENESS`, when it is over.
"""

import json
import os
import struct
import time
from array import array

import gevent
import websocket
from locust import User, constant, events, task

FRAME_S, FRAMES_OF_SPEECH = 0.02, 50
TURN_S = float(os.environ["TURN_S"])
SESSION_TURNS = int(os.environ["SESSION_TURNS"])
BEGAN_S = time.monotonic()
WARMUP_S = float(os.environ["WARMUP_S"])
QUIET = bytes(640)
LOUD = struct.pack("<320h", *([4000] * 20 + [-4000] * 20) * 8)
late_ms = array("d")


class Caller(User):
    wait_time = constant(0)

    @task
    def call(self):
        session = f"l-{id(self)}-{time.monotonic_ns()}"
        line = websocket.create_connection(f"{self.host}/?session={session}", timeout=10)
        line.settimeout(None)
        reader = gevent.spawn(self.listen, line)
        try:
            self.talk(line)
        finally:
            reader.kill()
            line.close()

    def listen(self, line):
        self.heard_s = array("d")
        while line.recv():
            self.heard_s.append(time.monotonic())

    def talk(self, line):
        start_s = time.monotonic()
        frames_a_turn = round(TURN_S / FRAME_S)
        for n in range(frames_a_turn * SESSION_TURNS):
            due_s = start_s + n * FRAME_S
            gevent.sleep(max(0.0, due_s - time.monotonic()))
            line.send_binary(LOUD if n % frames_a_turn < FRAMES_OF_SPEECH else QUIET)
            now_s = time.monotonic()
            if now_s - BEGAN_S > WARMUP_S:
                late_ms.append(1000 * (now_s - due_s))


@events.quitting.add_listener
def write(environment, **_):
    late = sorted(late_ms) or [float("nan")]
    found = {
        name: late[min(len(late) - 1, int(share * len(late)))]
        for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    }
    with open(os.environ["LATENESS"], "w") as file:
        json.dump({**found, "failures": len(environment.runner.exceptions)}, file)
