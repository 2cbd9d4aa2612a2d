"""Variables are filled in, and no secret is stored or shown."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from voicebench.errors import ScenarioError
from voicebench.scenario.parse import scenario_from_document
from voicebench.scenario.secrets import expand_variables, redact_document, redact_url


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("${A}", "1"), ("x${A}y${A}", "x1y1"), ("${B:-d}", "d"), ("${EMPTY:-d}", "d"), ("${EMPTY}", ""), ("${B:-}", ""),
        ("${A:-d}", "1"), ("$A", "$A"), ("$$", "$$"), ("$${A}", "$1"), ("${B:-ws://h:1/?a=b}", "ws://h:1/?a=b"), ("{A}", "{A}"),
    ],
)  # fmt: skip
def test_variables_are_filled_in(text, expanded):
    assert expand_variables({"k": [text, 5, None]}, {"A": "1", "EMPTY": ""}) == {"k": [expanded, 5, None]}


def test_what_was_filled_in_is_not_read_again():
    assert expand_variables("${A}", {"A": "${B}"}) == "${B}"


def test_keys_are_left_alone():
    assert expand_variables({"${A}": 1}, {}) == {"${A}": 1}


def test_all_missing_variables_are_told_with_their_keys_and_no_values():
    with pytest.raises(ScenarioError) as caught:
        expand_variables({"url": "ws://${HOST}/secret", "headers": {"A": "${TOKEN}"}, "l": ["${"]}, {})
    assert str(caught.value).splitlines() == [
        "adapter.options.l[0]: has a '${' that is not ${NAME} or ${NAME:-default} (a default holds no braces)",
        "adapter.options.url: the environment variable HOST is not set: set it, or write ${HOST:-default}",
        "adapter.options.headers.A: the environment variable TOKEN is not set: set it, or write ${TOKEN:-default}",
    ]


@pytest.mark.parametrize("text", ["${", "${}", "${1A}", "${A", "${A-d}", "${A:-${B}}", "${ A }", "${A:-{}}"])
def test_other_forms_are_mistakes(text):
    with pytest.raises(ScenarioError, match=r"that is not \$\{NAME\}"):
        expand_variables(text, {"A": "1", "B": "2"})


@pytest.mark.parametrize(
    ("url", "redacted"),
    [
        ("ws://127.0.0.1:8765", "ws://127.0.0.1:8765"),
        ("wss://h/p/q", "wss://h/p/q"),
        ("wss://u:p@h:1/p?token=x#y", "wss://REDACTED@h:1/p?REDACTED"),
        ("wss://token@h", "wss://REDACTED@h"),
        ("ws://h?x", "ws://h?REDACTED"),
        ("ws://h#x", "ws://h?REDACTED"),
        ("ws://h:80/room/@me", "ws://h:80/room/@me"),
        ("ws://[::1]:80/?x", "ws://[::1]:80/?REDACTED"),
        ("ws://u:p/w?x#y@h/z", "ws://REDACTED@h/z"),
        ("ws://u:p@ss@h", "ws://REDACTED@h"),
        ("u:p@h/x?y", "REDACTED@h/x?REDACTED"),
        ("", ""),
    ],
)
def test_urls_lose_user_info_and_query(url, redacted):
    assert redact_url(url) == redacted
    assert redact_url(redacted) == redacted


def redact_options(options):
    return redact_document({"adapter": {"type": "websocket", "options": options}})["adapter"]["options"]


def test_what_may_be_a_secret_goes_and_the_rest_stays():
    assert redact_options(
        {
            "url": "wss://u:p@agent.example/call?key=1", "agent_sample_rate": 24000, "client_key_file": "me.key",
            "headers": {"Authorization": "Bearer abc", "X-Env": "${TOKEN}", "X-Both": "Bearer ${TOKEN}"},
            "subprotocols": ["audio.v1", "${P}"], "start_message": {"type": "start", "api_key": "abc", "pin": 1234, "v": "${V}"},
            "webhook": "see https://u:p@h/x?y", "mask_per_session": True, "transcripts": ["hi"],
        }
    ) == {
        "url": "wss://REDACTED@agent.example/call?REDACTED", "agent_sample_rate": 24000, "client_key_file": "me.key",
        "headers": {"Authorization": "REDACTED", "X-Env": "${TOKEN}", "X-Both": "REDACTED"},
        "subprotocols": ["REDACTED", "${P}"],
        "start_message": {"type": "start", "api_key": "REDACTED", "pin": "REDACTED", "v": "${V}"},
        "webhook": "see https://REDACTED@h/x?REDACTED", "mask_per_session": True, "transcripts": ["hi"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("url", "redacted"),
    [
        ("${URL}", "${URL}"),
        ("ws://${HOST}:${PORT:-80}/x", "ws://${HOST}:${PORT:-80}/x"),
        ("${URL:-ws://u:p@h/x?y}", "${URL:-ws://REDACTED@h/x?REDACTED}"),
        ("ws://${USER}:${PASSWORD}@h/${PATH}?k=${KEY}", "ws://REDACTED@h/${PATH}?REDACTED"),
        ("ws://h/${A:-b?c}", "ws://h/${A:-b?REDACTED}"),
        ("ws://h/${broken", "REDACTED"),
    ],
)
def test_variables_in_urls_stay_and_their_defaults_are_cleaned(url, redacted):
    assert redact_options({"url": url}) == {"url": redacted}


def test_defaults_of_variables_go_elsewhere():
    assert redact_options({"greeting": "${G:-abc}"}) == {"greeting": "${G:-REDACTED}"}


def test_what_is_no_adapter_stays_as_it_is():
    document = {"name": "x", "turns": [{"text": "mail me@example.org?", "audio": {"clip": "a"}}], "api_key": 1}
    assert redact_document(document) == document


def test_a_plans_adapter_and_nested_documents_are_cleaned_too():
    adapter = {"type": "websocket", "options": {"headers": {"A": "abc"}}}
    assert "abc" not in json.dumps(redact_document({"plan": {"adapter": adapter, "scenarios": [{"adapter": adapter}]}}))


def test_a_cleaned_document_still_reads():
    document = {
        "name": "x",
        "turns": [{"audio": {"synth": "speech"}}],
        "adapter": {"type": "websocket", "options": {"url": "ws://u:p@h?x", "headers": {"A": "b"}}},
    }
    assert scenario_from_document(redact_document(document), source="s").name == "x"


CANARY = "canary7"
secret_text = st.builds(lambda before, after: before + CANARY + after, st.text(max_size=3), st.text(max_size=3))
secret_value = st.recursive(
    secret_text,
    lambda inner: st.lists(inner, min_size=1, max_size=2) | st.dictionaries(st.text(), inner, min_size=1, max_size=2),
)
url_part = st.text(alphabet=st.characters(exclude_characters="/?#@\\", exclude_categories=["Cs"]), max_size=4)


@given(
    st.sampled_from(["headers", "subprotocols", "api_key", "authToken", "my-password", "X-Secret", "COOKIE"]),
    secret_value,
    st.booleans(),
)
def test_no_value_under_a_secret_name_survives(name, value, nested):
    options = {"start_message": {"deep": [{name: value}]}} if nested else {name: value}
    redacted = redact_options(options)
    values = json.dumps(redacted) if not isinstance(value, dict) else json.dumps(list_of_values(redacted))
    assert CANARY not in values
    assert redact_options(redacted) == redacted


def list_of_values(value):
    if isinstance(value, dict):
        return [list_of_values(inner) for inner in value.values()]
    return [list_of_values(inner) for inner in value] if isinstance(value, list) else value


@given(url_part, url_part, st.booleans(), st.booleans())
@example("", "", True, True)
def test_no_user_info_or_query_of_a_url_survives(before, after, as_user, as_default):
    secret = before + CANARY + after
    url = f"wss://user:{secret}@host/path" if as_user else f"wss://host/path?token={secret}"
    if as_default:
        assume("{" not in secret and "}" not in secret)
        url = f"${{URL:-{url}}}"
    redacted = redact_options({"url": url})
    assert CANARY not in json.dumps(redacted)
    assert redact_options(redacted) == redacted


@given(st.text(), secret_text)
def test_no_default_of_a_variable_survives_outside_of_urls(before, secret):
    assume("{" not in secret and "}" not in secret)
    assert CANARY not in json.dumps(redact_options({"greeting": f"{before}${{NAME:-{secret}}}"}))


@given(st.text())
def test_redacting_a_url_twice_changes_nothing(url):
    assert redact_url(redact_url(url)) == redact_url(url)
