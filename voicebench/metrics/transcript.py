"""Whether the agent heard what was said: word error rate of its transcript of the user."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from rapidfuzz.distance import Levenshtein

APOSTROPHE = "'"
TYPOGRAPHIC_APOSTROPHE = "\u2019"


@dataclass(frozen=True, slots=True)
class WordErrors:
    """Edits that turn the reference's words into the transcript's. `words` counts the reference's."""

    words: int
    substitutions: int
    deletions: int
    insertions: int

    @property
    def rate(self) -> float:
        """Edits per reference word, unrounded; above 1 with many insertions. Without any word: 0, or 1 if some came."""
        edits = self.substitutions + self.deletions + self.insertions
        return edits / self.words if self.words else float(edits > 0)


def words_of(text: str) -> list[str]:
    """The words that are compared.

    Args:
        text: Any text.

    Returns:
        Words split at white space after NFKC, the typographic apostrophe made plain, all other punctuation (Unicode
        category P) turned into spaces, and lower case. Symbols, digits and combining marks stay.

    Definition: specification, "Word error rate".

    >>> words_of("It\u2019s a well-known\u00a0price: $5!")
    ["it's", 'a', 'well', 'known', 'price', '$5']
    """
    plain = unicodedata.normalize("NFKC", text).replace(TYPOGRAPHIC_APOSTROPHE, APOSTROPHE)
    return "".join(map(_spaced, plain)).lower().split()


@lru_cache(maxsize=4096)
def _spaced(character: str) -> str:
    is_separator = character != APOSTROPHE and unicodedata.category(character).startswith("P")
    return " " if is_separator else character


def word_errors(reference: str, transcript: str) -> WordErrors:
    """Align the words of what was said with those of what the agent heard.

    Args:
        reference: What the user says, the turn's `text`.
        transcript: The agent's final user transcripts of the turn's window, joined.

    Returns:
        The fewest substitutions, deletions and insertions, by Levenshtein alignment over words. A script written
        without spaces is one word, or as many as its punctuation leaves.

    Definition: specification, "Word error rate".

    >>> word_errors("Two large pizzas, please.", "two large pieces please").rate
    0.25
    """
    said, heard = words_of(reference), words_of(transcript)
    tags = [operation.tag for operation in Levenshtein.editops(said, heard)]
    return WordErrors(len(said), tags.count("replace"), tags.count("delete"), tags.count("insert"))
