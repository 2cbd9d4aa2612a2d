"""Options of the built-in adapters: values, mistakes, and no secret in a message."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicebench.errors import ScenarioError
from voicebench.scenario.adapter_options import (
    BUILT_IN,
    MockOptions,
    WebSocketOptions,
    mock_options,
    option_mistakes,
    options_schema,
    websocket_options,
)
from voicebench.scenario.parse import parse_any


def complaints(read, options) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        read(options)
    return [str(each) for each in caught.value.problems]


def test_nothing_given_is_the_defaults():
    assert mock_options({}) == MockOptions(
        endpoint_silence_ms=300.0, response_delay_ms=400.0, jitter_ms=0.0, response_ms=1500.0, greeting_ms=0.0, level_db=-20.0,
        threshold_db=-45.0, interruptible=True, barge_in_min_ms=100.0, interrupt_reaction_ms=150.0, transcripts=(), seed=0,
    ) == MockOptions()  # fmt: skip
    assert websocket_options({}) == WebSocketOptions(
        url="ws://127.0.0.1:8765", agent_sample_rate=None, start_message=None, headers={}, connect_timeout_s=10.0,
        handshake_timeout_s=10.0, subprotocols=(), ca_file=None, client_cert_file=None, client_key_file=None,
        mask_per_session=False,
    ) == WebSocketOptions()  # fmt: skip


def test_every_option_can_be_given():
    found = websocket_options(
        {
            "url": "wss://agent.example:9/call?x={session_id}", "agent_sample_rate": 24000, "start_message": {"a": [1]},
            "headers": {"Authorization": "Bearer x", "X-Number": 5}, "connect_timeout_s": 1, "handshake_timeout_s": 2.5,
            "subprotocols": ["audio.v1"], "ca_file": "a", "client_cert_file": "b", "client_key_file": "c", "mask_per_session": True,
        }
    )  # fmt: skip
    assert found == WebSocketOptions(
        "wss://agent.example:9/call?x={session_id}", 24000, {"a": [1]}, {"Authorization": "Bearer x", "X-Number": "5"}, 1.0, 2.5,
        ("audio.v1",), "a", "b", "c", True,
    )  # fmt: skip
    assert mock_options({"transcripts": ["a", 1, True], "seed": 2.0}) == MockOptions(
        transcripts=("a", "1", "true"), seed=2
    )


def test_flags_and_variables_give_numbers_and_truth_values_as_text():
    found = mock_options({"response_delay_ms": "250", "interruptible": "no", "seed": "7"})
    assert (found.response_delay_ms, found.interruptible, found.seed) == (250.0, False, 7)


def test_nothing_means_left_out_where_the_default_is_nothing():
    assert websocket_options({"headers": None, "start_message": None, "agent_sample_rate": None}) == WebSocketOptions()


def test_all_mistakes_are_told_at_once_without_the_values():
    options = {
        "url": "http://u:hunter2@h", "headers": {"A B": "x", "Ok": "hunter2\r\nEvil: 1", "Upgrade": "x", "L": ["hunter2"]},
        "agent_sample_rate": 1, "connect_timeout_s": "hunter2", "handshake_timeout_s": 0, "start_message": "hunter2",
        "strat_message": {}, "subprotocols": ["hunter2, b"], "client_key_file": "k", "mask_per_session": 3,
    }  # fmt: skip
    assert complaints(websocket_options, options) == [
        "adapter.options.url: is not a WebSocket URL: it must begin with ws:// or wss://",
        "adapter.options.agent_sample_rate: 1 is not a whole number from 8000 to 192000",
        "adapter.options.start_message: a text is not a mapping (key: value)",
        "adapter.options.headers.A B: is not a header's name: letters, digits and hyphens only",
        "adapter.options.headers.Ok: is not a header's value: line breaks and characters outside Latin-1 cannot be sent",
        "adapter.options.headers.Upgrade: is written by the handshake itself: leave it out (for sub-protocols there is "
        "`subprotocols`)",
        "adapter.options.headers.L: a list is not a text",
        "adapter.options.connect_timeout_s: a text is not a number above 0 and up to 600",
        "adapter.options.handshake_timeout_s: 0 is not a number above 0 and up to 600",
        "adapter.options.subprotocols[0]: is not a sub-protocol's name: no spaces, commas or characters outside ASCII",
        "adapter.options.mask_per_session: 3 is not true or false",
        "adapter.options.strat_message: unknown key. Did you mean 'start_message'?",
        "adapter.options.client_key_file: is of no use without client_cert_file: add the certificate",
    ]


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("agent.example", "must begin with ws:// or wss://"),
        ("ws://", "names no host"),
        ("ws://:80/x", "names no host"),
        ("ws://h:99999", "is not a URL"),
        ("ws://[::1", "is not a URL"),
        ("ws://h/#part", "has a fragment"),
        ("ws://h/a b", "percent-encode"),
        ("ws://hé/", "percent-encode"),
    ],
)
def test_urls_that_cannot_be_opened_are_told(url, told):
    assert told in complaints(websocket_options, {"url": url})[0]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"jitter_ms": -1}, "-1 is not a number from 0 to 3600000"),
        ({"jitter_ms": True}, "true is not a number from 0 to 3600000"),
        ({"jitter_ms": float("nan")}, "nan is not a number from 0 to 3600000"),
        ({"level_db": 0}, "0 is not a number from -120 to -3"),
        ({"interruptible": "maybe"}, "a text is not true or false"),
        ({"interruptible": 1}, "1 is not true or false"),
        ({"seed": 1.5}, "1.5 is not a whole number from 0 to 4294967295"),
        ({"transcripts": "hello"}, "a text is not a list"),
        ({"transcripts": [["a"]]}, "a list is not a text"),
    ],
)
def test_limits_of_the_mock(options, told):
    assert complaints(mock_options, options)[0].endswith(told)


def test_the_path_in_messages_is_the_callers():
    with pytest.raises(ScenarioError, match=r"^-o\.sed: unknown key\. Did you mean 'seed'\?$"):
        mock_options({"sed": 1}, path="-o")


def test_what_waits_for_a_variable_is_judged_later():
    options = {"url": "${URL}", "agent_sample_rate": "${RATE:-16000}", "headers": {"A": "${B}"}}
    assert option_mistakes("websocket", options) == []
    assert option_mistakes("websocket", options, waiting=False)


def test_a_variable_that_is_written_wrong_is_told_at_once():
    (found,) = option_mistakes("websocket", {"headers": {"A": "x${B"}})
    assert (found.path, "is not ${NAME}" in found.message) == (("headers", "A"), True)


def test_options_of_other_adapters_are_free_but_for_their_variables():
    assert option_mistakes("my:Adapter", {"anything": [1]}) == []
    assert option_mistakes("my:Adapter", {"a": "${}"})


@pytest.mark.parametrize(("kind", "options"), [("mock", MockOptions), ("websocket", WebSocketOptions)])
def test_every_option_has_limits_and_a_description_in_the_schema(kind, options):
    properties = options_schema(kind)["properties"]
    assert list(properties) == [each.name for each in fields(options)]
    assert all(option["description"] for option in properties.values())
    assert not any(word in json.dumps(properties) for word in ('"ge"', '"le"', '"gt"'))


CANARY = "canary7"
anything = st.recursive(
    st.sampled_from(
        [
            CANARY,
            f"ws://u:{CANARY}@h",
            f"http://h/?{CANARY}",
            f"${{X:-{CANARY}",
            f"{CANARY}\n",
            f" {CANARY} é",
            1,
            True,
            None,
        ]
    ),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["A", "b c"]), inner, max_size=2),
    max_leaves=4,
)


@given(
    st.sampled_from([*BUILT_IN, "web-socket", f"wss://{CANARY}"]),
    st.dictionaries(
        st.sampled_from([each.name for kind in (MockOptions, WebSocketOptions) for each in fields(kind)]), anything
    ),
)
def test_no_value_of_an_option_survives_in_an_error(kind, options):
    for read in (mock_options, websocket_options):
        try:
            read(options)
        except ScenarioError as error:
            assert CANARY not in str(error)
    document = {"name": "x", "adapter": {"type": kind, "options": options}, "turns": [{"audio": {"synth": "speech"}}]}
    for scenario in (
        document,
        {**document, "adapter": f"ws://u:{CANARY}@h"},
        {**document, "adapter": {"options": CANARY}},
    ):
        try:
            parse_any(json.dumps(scenario), source="f")
        except ScenarioError as error:
            assert CANARY not in str(error)
