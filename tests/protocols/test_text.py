from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from voicebench.protocols.text import MAX_TRANSCRIPT_CHARS, clean_text


@given(st.text(st.characters(exclude_categories=[])))
def test_cleaned_text_can_be_stored_anywhere(text: str):
    cleaned = clean_text(text)
    cleaned.encode()  # no lone surrogate left
    assert len(cleaned) == min(len(text), MAX_TRANSCRIPT_CHARS)
    assert not any(ord(character) < 32 and character not in "\t\n\r" for character in cleaned)
    assert clean_text(cleaned) == cleaned


@given(st.text("äöü €abc'’,.?!\n😀"))
def test_ordinary_text_stays_as_it_is(text: str):
    assert clean_text(text) == text


def test_a_lone_surrogate_from_json_is_replaced():
    assert clean_text(json.loads('"a\\ud800b"')) == "a�b"


def test_text_beyond_the_cap_is_cut():
    assert len(clean_text("x" * 20_000)) == MAX_TRANSCRIPT_CHARS
