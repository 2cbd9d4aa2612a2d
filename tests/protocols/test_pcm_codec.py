from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicebench.events import AgentAudio, AgentClear, AgentTranscript
from voicebench.protocols.pcm import PcmCodec, fill_in, frame_payload, start_message


def codec(agent_rate_hz: int = 16000) -> PcmCodec:
    return PcmCodec(agent_rate_hz=agent_rate_hz, session_rate_hz=16000)


def said(events: list) -> list[int]:
    return [sample for event in events for sample in event.samples.tolist()]


def test_a_binary_message_is_audio_at_its_time():
    (event,) = codec().binary(bytes.fromhex("0100feff"), 2.5)
    assert isinstance(event, AgentAudio)
    assert (event.samples.tolist(), event.time_s) == ([1, -2], 2.5)


def test_an_empty_message_is_no_event():
    assert codec().binary(b"", 0.0) == []


@given(st.lists(st.integers(-32768, 32767), min_size=1), st.lists(st.integers(0, 80)))
def test_samples_survive_whatever_the_messages_cut(samples: list[int], cuts: list[int]):
    payload = np.array(samples, dtype="<i2").tobytes()
    edges = sorted({0, len(payload), *(cut for cut in cuts if cut < len(payload))})
    pieces = [payload[start:stop] for start, stop in itertools.pairwise(edges)]
    agent = codec()
    heard = [event for piece in pieces for event in agent.binary(piece, 0.0)]
    assert said(heard) == samples
    assert agent.cut_messages == sum(len(piece) % 2 for piece in pieces)


def test_half_a_sample_before_a_clear_does_not_shift_what_follows():
    agent = codec()
    agent.binary(b"\x01\x00\x05", 0.0)
    agent.text('{"type": "clear"}', 0.0)
    assert said(agent.binary(b"\x07\x00", 0.0)) == [7]


def test_audio_at_another_rate_is_resampled_without_delay():
    (event,) = codec(agent_rate_hz=24000).binary(bytes(960), 1.0)
    assert len(event.samples) == 320


def test_a_clear_is_an_event():
    assert codec().text('{"type":"clear"}', 1.5) == [AgentClear(1.5)]


@pytest.mark.parametrize(
    ("message", "event"),
    [
        ({"role": "user", "text": "hi", "final": True}, AgentTranscript("user", "hi", 1.0, True)),
        ({"role": "agent", "text": "hi", "final": False}, AgentTranscript("agent", "hi", 1.0, False)),
        ({"role": "robot", "text": "hi"}, AgentTranscript("user", "hi", 1.0, True)),
        ({"text": "a\0b\ud800", "more": 1}, AgentTranscript("user", "a�b�", 1.0, True)),
    ],
)
def test_transcripts_have_defaults_and_clean_text(message: dict, event: AgentTranscript):
    assert codec().text(json.dumps({"type": "transcript", **message}), 1.0) == [event]


@pytest.mark.parametrize(
    "text",
    ["hello", "", "[1]", "null", '"clear"', "{", '{"type":"other"}', '{"type":["clear"]}', '{"type":"transcript"}',
     '{"type":"transcript","text":7}', "[" * 100_000, '{"type":"clear"', "9" * 10_000, "NaN"],
)  # fmt: skip
def test_any_other_text_is_counted_and_ignored(text: str):
    agent = codec()
    assert agent.text(text, 0.0) == []
    assert agent.ignored_texts == 1


@given(st.text())
def test_no_text_raises(text: str):
    codec().text(text, 0.0)


def test_a_frame_is_little_endian_pcm():
    assert frame_payload(np.array([1, -2], dtype=np.int16)).hex() == "0100feff"


def test_the_start_message_has_our_rate_in_front():
    text = start_message({"voice": "x"}, sample_rate_hz=16000, session_id="s", session_number=0)
    assert text == '{"sample_rate": 16000, "voice": "x"}'


def test_a_configured_sample_rate_wins():
    text = start_message({"sample_rate": 8000}, sample_rate_hz=16000, session_id="s", session_number=0)
    assert json.loads(text) == {"sample_rate": 8000}


def test_the_session_is_named_in_nested_strings_only_where_asked_for():
    value = {"a": ["{session_id}", {"b": "n{session_number}"}], "c": 5, "{session_id}": None, "d": "{other}"}
    assert fill_in(value, session_id="s-1", session_number=42) == {
        "a": ["s-1", {"b": "n42"}], "c": 5, "{session_id}": None, "d": "{other}",
    }  # fmt: skip
