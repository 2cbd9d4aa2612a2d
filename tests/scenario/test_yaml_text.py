"""Text to data with places, and the traps of YAML that are closed."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from voicebench.errors import Problem, ScenarioError
from voicebench.scenario import yaml_text
from voicebench.scenario.mistakes import Mistake
from voicebench.scenario.placed import MAX_PROBLEMS
from voicebench.scenario.yaml_text import MAX_BYTES, MAX_DEPTH, read_document, read_value


@pytest.fixture(autouse=True, params=["libyaml", "pure"])
def parser(request, monkeypatch):
    """Both parsers: which one is there depends on the wheel."""
    if request.param == "pure":
        monkeypatch.setattr(yaml_text, "_PARSER", yaml.SafeLoader)


def read(text):
    return read_document(text, source="f.yaml")


def complaint(text) -> str:
    """The one thing wrong with a text that cannot be read at all."""
    with pytest.raises(ScenarioError) as caught:
        read(text)
    assert len(caught.value.problems) == 1
    return str(caught.value)


def problems(text) -> list[Problem]:
    """Everything wrong with the text, whether it can be read or not."""
    try:
        document = read(text)
    except ScenarioError as error:
        return list(error.problems)
    return document.problems(document.mistakes)


def mistakes(text) -> list[str]:
    document = read(text)
    return [str(each) for each in document.problems(document.mistakes)]


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("12", 12), ("-7", -7), ("0", 0), ("0x1F", 31), ("0o17", 15), ("1.5", 1.5), ("1e3", 1000.0), (".5", 0.5),
        ("true", True), ("False", False), ("~", None), ("null", None), ("", None),
        ("no", "no"), ("off", "off"), ("on", "on"), ("yes", "yes"), ("y", "y"), ("NO", "NO"),
        ("1:30", "1:30"), ("012", "012"), ("0b11", "0b11"), ("1_000", "1_000"), ("2024-01-01", "2024-01-01"),
        (".inf", ".inf"), ("-.INF", "-.INF"), (".nan", ".nan"), ("1e999", "1e999"), ("01.5", "01.5"),
        ("9223372036854775807", 2**63 - 1), ("9223372036854775808", "9223372036854775808"), ("9" * 5000, "9" * 5000),
        ("=", "="), ("'12'", "12"), ('"true"', "true"), ("1.2.3", "1.2.3"), ("٣", "٣"),
    ],
)  # fmt: skip
def test_scalars_follow_the_core_rules_and_doubtful_numbers_stay_text(typed, value):
    found = read(f"key: {typed}").value["key"]
    assert found == value
    assert type(found) is type(value)


def test_every_key_is_text_as_typed():
    assert list(read("{on: 1, 1: 2, ~: 3, true: 4, 1.0: 5}").value) == ["on", "1", "~", "true", "1.0"]


def test_places_are_of_keys_and_values():
    document = read("a:\n  - b: c\n    dé: {e: f}\n")
    assert document.keys_at["a", 0, "b"] == (2, 5)
    assert document.values_at["a", 0, "b"] == (2, 8)
    assert document.values_at["a", 0, "dé", "e"] == (3, 13)


def test_a_mistake_without_a_place_of_its_own_is_told_at_what_encloses_it():
    document = read("a:\n  - b: c\n")
    assert str(document.problem(Mistake(("a", 0, "missing"), "x"))) == "f.yaml:2:5: a[0].missing: x"


def test_repeated_keys_are_told_with_both_places_each_time():
    assert mistakes("name: a\nx: 1\nname: b\n'name': c\n") == [
        "f.yaml:3:1: name: the key is there already, at 1:1: keep one of the two",
        "f.yaml:4:1: name: the key is there already, at 1:1: keep one of the two",
    ]


def test_mistakes_inside_a_repeated_keys_value_are_told_too_and_the_first_value_stays():
    document = read("a: {b: 1}\na: {c: 1, c: 2}\n")
    assert document.value == {"a": {"b": 1}}
    assert [str(each) for each in document.problems(document.mistakes)] == [
        "f.yaml:2:1: a: the key is there already, at 1:1: keep one of the two",
        "f.yaml:2:11: a.c: the key is there already, at 2:5: keep one of the two",
    ]


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a: &x 1", "1:4", "anchors"),
        ("a: &x {b: 1}\nc: *x", "1:4", "anchors"),
        ("a: 1\nc: *x", "2:4", "aliases"),
        ("a: !!str 1", "1:4", "tags"),
        ("a: !secret x", "1:4", "tags"),
        ("a: ! 1", "1:4", "tags"),
        ("<<: {a: 1}", "1:1", "merge keys"),
        ("a: 1\n---\nb: 2", "2:1", "a second document"),
        ('a: "\\0"', "1:4", "NUL"),
    ],
)
def test_what_changes_meaning_is_refused_with_its_place(text, place, words):
    first = mistakes(text)[0]
    assert first.startswith(f"f.yaml:{place}: ")
    assert words in first


def test_quoted_signs_are_plain_text():
    assert read("{a: '&x', b: '*y', c: '!z', '<<': 1}").value == {"a": "&x", "b": "*y", "c": "!z", "<<": 1}


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a: b: c", "1:5", "a ':' where no key can stand"),
        ("name: x\n  turns: 3", "2:8", "a ':' where no key can stand"),
        ("a: 'b\nc: d\n", "1:4", "never closed"),
        ("a: {b: 1\n", "1:4", "not closed"),
        ("a: [1, 2\n", "1:4", "not closed"),
        ("a:\n\t- b\n", "2:1", "a tab"),
        ("a: 1\n\tb: 2\n", "2:1", "a tab"),
        ("a: @b", "1:4", "Put the text in quotes"),
        ("a: 'x' y\n", "1:8", "quotes enclose the whole value"),
        ("- a\nb: 1\n", "2:1", "does not fit the lines around it"),
        ("{{x}}: 1", "1:1", "a list or mapping where a key must stand"),
        ("a: {{x}}", "1:5", "a list or mapping where a key must stand"),
        ("a: 1\n*b : 2", "2:1", "an alias where a key must stand"),
        ("a\x00b: 1", "1:2", "U+0000"),
        ("a: \x1b[31m", "1:4", "U+001B"),
        ("a: \ud800", "1:4", "U+D800"),
        (b"a: 1\nb: \xff\n", "2:4", "byte 0xff is not UTF-8"),
        ("a: 1".encode("utf-16"), "1:1", "UTF-16"),
    ],
)
def test_what_cannot_be_read_is_one_problem_with_its_place(text, place, words):
    told = complaint(text)
    assert told.startswith(f"f.yaml:{place}: ")
    assert words in told


def test_a_backslash_in_double_quotes_is_explained():
    assert "in double quotes a backslash begins an escape" in complaint('a: "C:\\quote"')


def test_a_byte_order_mark_in_front_is_skipped():
    assert read(b"\xef\xbb\xbfa: 1").value == {"a": 1}


def test_line_ends_of_all_systems_are_understood():
    assert read("a: 1\r\nb: 2\rc: 3\n").value == {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "\n\n"])
def test_an_empty_file_holds_nothing(text):
    assert read(text).value is None


@pytest.mark.parametrize("deep", ["[" * 100_000, "- " * 20_000, "{a: " * 5000, "[" * 200 + "]" * 200])
def test_deep_nesting_is_refused_before_anything_recurses(deep):
    assert f"nested deeper than {MAX_DEPTH} levels" in complaint(deep)


def test_a_file_that_is_too_large_is_refused_unread():
    assert "larger than 1024 KiB" in complaint(b"#" * (MAX_BYTES + 1))


def test_many_mistakes_are_cut_with_a_count():
    document = read("\n".join("a: 1" for _ in range(MAX_PROBLEMS + 11)))
    problems = document.problems(document.mistakes)
    assert len(problems) == MAX_PROBLEMS + 1
    assert problems[-1].message == "10 more mistakes in this file are not listed"


def test_numbers_are_read_as_typed_where_text_is_wanted():
    document = read("{a: 0x1F, b: {c: 1.10, d: 1}, e: [true, 5]}")
    assert document.with_text_at((("a",), ("b", "c"), ("e", "*"))).value == {
        "a": "0x1F",
        "b": {"c": "1.10", "d": 1},
        "e": ["true", "5"],
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("400", 400),
        ("ws://h:1/p?x=1", "ws://h:1/p?x=1"),
        ("[a, b]", ["a", "b"]),
        ("a: b: c", "a: b: c"),
        ("*x", "*x"),
        ("", None),
    ],
)
def test_a_flags_value_follows_the_same_rules(text, value):
    assert read_value(text) == value


@given(st.text() | st.text(alphabet="ab:-[]{}&*!|>'\"%@#,?\n\t \\01.~<=") | st.binary())
@example("? a\n: b")
@example("%YAML 1.1\n---\na: no")
@example("a: !<x")
@example("\ufeff\ufeff")
def test_no_text_raises_anything_but_a_scenario_error(text):
    assert all(each.line and each.column for each in problems(text))


@given(st.text(min_size=12, max_size=20, alphabet="CANRY0123456789"))
def test_no_value_is_repeated_in_a_syntax_error(canary):
    for text in (
        f"a: *{canary}", f"a: &{canary} 1", f"a: !{canary} 1", f"a: '{canary}", f'a: "{canary}\\q"', f"a: b: {canary}",
        f"a: [{canary}", f"a: '{canary}' {canary}", f"a: !{canary}!x 1", f"a:\n\t{canary}", f"- {canary}\n{canary}: 1",
    ):  # fmt: skip
        assert canary not in "".join(str(each) for each in problems(text))
