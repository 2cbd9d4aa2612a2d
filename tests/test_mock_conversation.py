"""The mock agent's side of a conversation, frame by frame, without a socket."""

from __future__ import annotations

import json

import numpy as np
from websockets.client import ClientProtocol
from websockets.frames import Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from voicebench.mock_conversation import Answer, Conversation, Fact
from voicebench.mock_delivery import ServerOptions, Stutter
from voicebench.protocols.frames import MessageReader
from voicebench.scenario.adapter_options import MockOptions

FRAME = 320
SPEECH = (8000 * np.sin(np.arange(FRAME))).astype("<i2").tobytes()
SILENCE = bytes(2 * FRAME)


class Heard:
    """Speaks to a conversation, 20 ms at a time, arriving at 100 s and later; keeps messages by frame and the facts."""

    def __init__(self, *, extra_delay_ms: float = 0.0, tester: dict | None = None, **options) -> None:
        self._conversation = Conversation(
            MockOptions(**options),
            ServerOptions(**(tester or {})),
            sample_rate_hz=16000,
            seed=0,
            extra_delay_ms=lambda: extra_delay_ms,
        )
        client = ClientProtocol(parse_uri("ws://agent/"), state=State.OPEN, max_size=None)
        self._reader = MessageReader(client, masked=False)
        self.frame = 0
        self.audio: list[int] = []
        self.texts: list[tuple[int, dict]] = []
        self.facts: list[Fact] = []

    def hears(self, payload: bytes, times: int = 1) -> Heard:
        for _ in range(times):
            answer = Answer()
            self._conversation.hear(payload, 100 + 0.02 * self.frame, answer)
            for opcode, body in self._reader.feed(b"".join(answer.frames)):
                if opcode is Opcode.BINARY:
                    self.audio.append(self.frame)
                else:
                    self.texts.append((self.frame, json.loads(body)))
            self.facts += answer.facts
            self.frame += 1
        return self

    def fact(self, event: str) -> Fact:
        (fact,) = (fact for fact in self.facts if fact.event == event)
        return fact


def test_the_reply_comes_after_the_silence_and_the_delay():
    agent = Heard(endpoint_silence_ms=100, response_delay_ms=60, response_ms=200).hears(SPEECH, 10).hears(SILENCE, 40)
    # Silence is full at the end of frame 14; 60 ms later is the start of frame 18.
    assert agent.audio == list(range(18, 28))


def test_the_transcript_is_reported_at_the_end_of_the_turn():
    agent = Heard(endpoint_silence_ms=100, transcripts=("hello",)).hears(SPEECH, 10).hears(SILENCE, 5)
    assert agent.texts == [(14, {"type": "transcript", "role": "user", "text": "hello", "final": True})]


def test_the_truth_tells_when_the_last_active_frame_came():
    agent = Heard(endpoint_silence_ms=100, response_ms=200).hears(SPEECH, 10).hears(SILENCE, 50)
    end = agent.fact("user_speech_end")
    assert end.t_s == 100 + 0.02 * 9
    assert end.more == {"media_s": 0.2, "extra_delay_ms": 0.0}
    # Endpoint 100 ms and delay 400 ms after 0.2 s of speech; media time counts the frame that is being heard.
    assert agent.fact("first_audio").more == {"reply": 1, "media_s": 0.72}
    assert agent.fact("last_audio").more == {"reply": 1, "media_s": 0.9}
    assert agent.fact("first_audio").t_s is None


def test_a_busy_server_answers_later_by_what_the_truth_says():
    quiet = Heard(endpoint_silence_ms=100).hears(SPEECH, 10).hears(SILENCE, 60)
    busy = Heard(endpoint_silence_ms=100, extra_delay_ms=200.0).hears(SPEECH, 10).hears(SILENCE, 60)
    assert busy.audio[0] - quiet.audio[0] == 10
    assert busy.fact("user_speech_end").more["extra_delay_ms"] == 200.0


def test_a_barge_in_stops_the_reply_with_a_clear_and_both_are_noted():
    options = {"greeting_ms": 1000, "barge_in_min_ms": 100, "interrupt_reaction_ms": 60}
    agent = Heard(**options).hears(SILENCE, 10).hears(SPEECH, 20).hears(SILENCE, 5)
    # 100 ms of speech are full at the end of frame 14; 60 ms later is the start of frame 18.
    assert agent.audio == list(range(18))
    assert agent.texts == [(18, {"type": "clear"})]
    barge_in = agent.fact("barge_in")
    assert barge_in.t_s == 100 + 0.02 * 14
    assert barge_in.more == {"media_s": 0.3, "onset_t": 100.2}
    assert agent.fact("clear").t_s is None
    assert not [fact for fact in agent.facts if fact.event == "last_audio"]


def test_a_cleared_burst_is_not_continued():
    agent = Heard(greeting_ms=1000, interrupt_reaction_ms=60, tester={"burst": 2.0}).hears(SPEECH, 30)
    (cleared_at,) = (frame for frame, text in agent.texts if text == {"type": "clear"})
    assert max(agent.audio) < cleared_at


def test_a_reply_whose_stutter_outlasts_it_is_still_sent_to_its_end():
    tester = {"stutter": (Stutter(gap_ms=200, at_ms=80),)}
    agent = Heard(greeting_ms=100, tester=tester).hears(SILENCE, 20)
    assert agent.audio == [0, 1, 2, 3, 14]
    assert agent.fact("last_audio").more["media_s"] == 0.3


def test_an_odd_byte_is_not_heard():
    agent = Heard(greeting_ms=100).hears(SILENCE + b"\x01").hears(b"").hears(b"\x01")
    assert agent.audio == [0]


def test_two_conversations_with_the_same_audio_are_the_same():
    first, second = (Heard(jitter_ms=300).hears(SPEECH, 10).hears(SILENCE, 100) for _ in range(2))
    assert first.audio == second.audio
    assert first.facts == second.facts
