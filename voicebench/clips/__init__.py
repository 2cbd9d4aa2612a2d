"""Spoken clips and noises shipped in the package: what real agents take for speech, unlike synthesis.

Where they come from and under which licences: `LICENSES.md` beside this file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from importlib import resources

from voicebench.errors import AudioError
from voicebench.records import Expectation


@dataclass(frozen=True, slots=True)
class ClipInfo:
    """What a clip says, and what a good agent does when it hears it. Clips are mono, 16-bit, 16 kHz WAV files."""

    name: str
    text: str
    """What is said; empty for noises."""
    kind: str
    """`question`, `answer`, `barge-in`, `backchannel` or `noise`."""
    expect: Expectation
    duration_ms: int
    source: str
    licence: str
    pause_ms: int | None = None
    """Length of the pause in its middle, for the clips that have one."""


def clip_names() -> tuple[str, ...]:
    """The names of all clips, spoken ones first.

    >>> clip_names()[:3]
    ('opening', 'answer', 'barge_in')
    """
    return tuple(_catalogue())


def clip_info(name: str) -> ClipInfo:
    """What is known of a clip.

    Raises:
        AudioError: No such clip; names the nearest, or all.

    >>> clip_info("backchannel").expect, clip_info("long_pause").pause_ms
    ('ignore', 900)
    """
    clips = _catalogue()
    if name not in clips:
        near = get_close_matches(name, clips, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(clips)}."
        raise AudioError(f"there is no clip {name!r}. {hint}")
    return clips[name]


def clip_bytes(name: str) -> bytes:
    """A clip's WAV file.

    Raises:
        AudioError: No such clip; names the nearest, or all.
    """
    return resources.files(__name__).joinpath(f"{clip_info(name).name}.wav").read_bytes()


@lru_cache(maxsize=1)
def _catalogue() -> dict[str, ClipInfo]:
    document = json.loads(resources.files(__name__).joinpath("clips.json").read_text(encoding="utf-8"))
    return {name: ClipInfo(name=name, **about) for name, about in document["clips"].items()}
