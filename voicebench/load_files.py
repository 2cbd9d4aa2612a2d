"""Scenario and plan files, and the audio they name, from disk into memory: or all mistakes of all files at once."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from voicebench import clips
from voicebench.audio import synth
from voicebench.audio.files import decode_audio, to_track
from voicebench.errors import AudioError, Problem, ScenarioError
from voicebench.events import Samples
from voicebench.scenario.adapter_options import option_mistakes
from voicebench.scenario.checks import explain_adapter, value_at
from voicebench.scenario.document import SCENARIO_TEXT_AT, ScenarioShape
from voicebench.scenario.lint import lint, talk_time_problem
from voicebench.scenario.mistakes import Mistake, clip_text, nearest, path_text
from voicebench.scenario.model import AdapterSpec, AudioSource, Plan, PlanScenario, Scenario
from voicebench.scenario.parse import any_of, plan_of
from voicebench.scenario.placed import Document
from voicebench.scenario.prepared import PreparedScenario
from voicebench.scenario.yaml_text import MAX_BYTES, read_document

STDIN = "-"
MAX_AUDIO_BYTES = 256 * 1024 * 1024
"""An hour of 16-bit stereo at 32 kHz; a longer prompt is no prompt."""


@dataclass(frozen=True, slots=True)
class LoadedPlan:
    """A plan with its scenarios, in its order. The scenarios carry the plan's adapter already."""

    plan: Plan
    scenarios: tuple[PreparedScenario, ...]
    warnings: tuple[Problem, ...] = ()
    is_scenario: bool = False
    """A scenario file alone, made into a plan with one."""


def load_plan(path: str | os.PathLike[str]) -> LoadedPlan:
    """Read a plan, its scenarios and all their audio; a scenario file alone is a plan with one.

    Args:
        path: The file; `-` is standard input, whose relative paths start at the working directory.

    Raises:
        ScenarioError: All mistakes of all files: in the YAML, and of files that are missing or cannot be decoded,
            at the place where they are named.
    """
    return _Loader().load(os.fspath(path))


def apply_adapter(scenario: Scenario, override: AdapterSpec | None, options: Mapping[str, Any]) -> Scenario:
    """The scenario with another adapter: a plan's, or one of the command line.

    Args:
        override: The same type merges its options over the scenario's, another type replaces them.
        options: Merged over that, key by key (a mapping such as `headers` is replaced as a whole).

    Raises:
        ScenarioError: A type or options that do not exist or fit; without lines, since flags have none.
    """
    adapter = scenario.adapter
    if override is not None:
        kept = adapter.options if override.type == adapter.type else {}
        adapter = AdapterSpec(override.type, {**kept, **override.options})
    adapter = AdapterSpec(adapter.type, {**adapter.options, **options})
    unknown = explain_adapter(adapter.type)
    mistakes = [Mistake(("adapter", "type"), unknown)] if unknown else []
    options_wrong = option_mistakes(adapter.type, adapter.options)
    mistakes += [Mistake(("adapter", "options", *each.path), each.message) for each in options_wrong]
    if mistakes:
        raise ScenarioError([Problem("", None, None, path_text(each.path), each.message) for each in mistakes])
    return replace(scenario, adapter=adapter)


class _Loader:
    """One call of `load_plan`: what was read so far, and what was wrong with it."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []
        self._warnings: list[Problem] = []
        self._tracks: dict[tuple[object, int], Samples | str] = {}

    def load(self, path: str) -> LoadedPlan:
        source, folder = ("<stdin>", "") if path == STDIN else (path, os.path.dirname(path))
        document = read_document(_read_text(path, source), source=source)
        mistaken = _mistaken_for_a_plan(document)
        if mistaken:
            raise ScenarioError([Problem(source, None, None, "", mistaken)])
        if value_at(document.value, "scenarios") is not None and value_at(document.value, "turns") is None:
            plan, prepared = self._plan(document, folder)
        else:
            plan, prepared = self._lone_scenario(document, folder, source)
        if self._problems or plan is None:
            raise ScenarioError(_in_order(self._problems))
        is_scenario = value_at(document.value, "scenarios") is None
        return LoadedPlan(plan, tuple(prepared), tuple(dict.fromkeys(self._warnings)), is_scenario)

    def _lone_scenario(
        self, document: Document, folder: str, source: str
    ) -> tuple[Plan | None, list[PreparedScenario]]:
        prepared = self._scenario(document, folder, source, None)
        if prepared is None:
            return None, []
        name = prepared.scenario.name
        written = {"name": name, "scenarios": [{"file": source}]}
        return Plan(name, (PlanScenario(source, 1.0, prepared.scenario),), document=written), [prepared]

    def _plan(self, document: Document, folder: str) -> tuple[Plan | None, list[PreparedScenario]]:
        plan: Plan | None = None
        try:
            plan = plan_of(document)
        except ScenarioError as error:
            self._problems += error.problems
        adapter = plan.adapter if plan else None
        # Also when the plan itself is wrong: whoever mends it should not find the next mistakes only then.
        prepared = [self._named(document, index, file, folder, adapter) for index, file in _named_files(document)]
        self._refuse_same_names(document, prepared)
        whole = [each for each in prepared if each is not None]
        if plan is None or len(whole) < len(plan.scenarios):
            return None, []
        mix = tuple(replace(each, scenario=one.scenario) for each, one in zip(plan.scenarios, whole, strict=True))
        return replace(plan, scenarios=mix), whole

    def _named(
        self, document: Document, index: int, file: str, folder: str, adapter: AdapterSpec | None
    ) -> PreparedScenario | None:
        path = os.path.join(folder, file)
        try:
            text = _read_text(path, path)
        except ScenarioError as error:
            message = f"{path} {error.problems[0].message}"
            self._problems.append(document.problem(Mistake(("scenarios", index, "file"), message)))
            return None
        try:
            inner = read_document(text, source=path)
        except ScenarioError as error:
            self._problems += error.problems
            return None
        if value_at(inner.value, "scenarios") is not None and value_at(inner.value, "turns") is None:
            message = f"{path} is a plan itself: a plan lists scenario files"
            self._problems.append(document.problem(Mistake(("scenarios", index, "file"), message)))
            return None
        return self._scenario(inner, os.path.dirname(path), path, adapter)

    def _scenario(
        self, document: Document, folder: str, source: str, adapter: AdapterSpec | None
    ) -> PreparedScenario | None:
        try:
            scenario = any_of(document)
        except ScenarioError as error:
            self._problems += error.problems
            for index, sound in _named_sounds(document):  # so that the next mistakes are known as well
                self._turn_audio(document, sound, ScenarioShape.model_fields["sample_rate"].default, index, folder)
            return None
        assert isinstance(scenario, Scenario)
        if adapter is not None:
            scenario = apply_adapter(scenario, adapter, {})
        tracks = [
            self._turn_audio(document, turn.audio, scenario.sample_rate, index, folder)
            for index, turn in enumerate(scenario.turns)
        ]
        audible = [track for track in tracks if track is not None]
        if len(audible) < len(tracks):
            return None
        durations_ms = [1000.0 * len(track) / scenario.sample_rate for track in audible]
        too_long = talk_time_problem(scenario, durations_ms, document)
        self._warnings += [*lint(scenario, document), *([too_long] if too_long else [])]
        return PreparedScenario(scenario, tuple(audible), source)

    def _turn_audio(
        self, document: Document, audio: AudioSource, rate_hz: int, index: int, folder: str
    ) -> Samples | None:
        sound: object = audio if audio.file is None else os.path.realpath(os.path.join(folder, audio.file))
        if (sound, rate_hz) not in self._tracks:
            self._tracks[sound, rate_hz] = _track_or_complaint(audio, folder, rate_hz)
        track = self._tracks[sound, rate_hz]
        if isinstance(track, str):
            key = "file" if audio.file is not None else "clip" if audio.clip is not None else "synth"
            self._problems.append(document.problem(Mistake(("turns", index, "audio", key), track)))
            return None
        return track

    def _refuse_same_names(self, document: Document, prepared: list[PreparedScenario | None]) -> None:
        """Reports tell scenarios apart by name."""
        first: dict[str, PreparedScenario] = {}
        for index, each in enumerate(prepared):
            if each is None:
                continue
            other = first.setdefault(each.scenario.name, each)
            if other is not each:
                message = f"{each.file} has the same name, '{each.scenario.name}', as {other.file}: name them apart"
                self._problems.append(document.problem(Mistake(("scenarios", index, "file"), message)))


def _named_files(document: Document) -> Iterator[tuple[int, str]]:
    scenarios = value_at(document.with_text_at((("scenarios", "*", "file"),)).value, "scenarios")
    for index in range(len(scenarios) if isinstance(scenarios, list) else 0):
        file = value_at(scenarios, index, "file")
        if isinstance(file, str) and file.strip():
            yield index, file


def _named_sounds(document: Document) -> Iterator[tuple[int, AudioSource]]:
    turns = value_at(document.with_text_at(SCENARIO_TEXT_AT).value, "turns")
    for index in range(len(turns) if isinstance(turns, list) else 0):
        file, clip = (value_at(turns, index, "audio", key) for key in ("file", "clip"))
        if isinstance(file, str) and file.strip():
            yield index, AudioSource(file=file)
        elif isinstance(clip, str) and clip.strip():
            yield index, AudioSource(clip=clip)


def _in_order(problems: list[Problem]) -> list[Problem]:
    """File by file as they were read, each in the order of its lines, nothing twice."""
    files = {source: rank for rank, source in enumerate(dict.fromkeys(each.source for each in problems))}
    return sorted(dict.fromkeys(problems), key=lambda each: (files[each.source], each.line or 0, each.column or 0))


def _track_or_complaint(audio: AudioSource, folder: str, rate_hz: int) -> Samples | str:
    try:
        track = _track(audio, folder, rate_hz)
    except (AudioError, OSError) as error:
        return str(error)
    if len(track) == 0:
        return "holds no audio"
    track.setflags(write=False)  # shared by turns, scenarios and sessions
    return track


def _track(audio: AudioSource, folder: str, rate_hz: int) -> Samples:
    if audio.file is not None:
        data = _read_audio(os.path.join(folder, audio.file), folder, audio.file)
        return to_track(decode_audio(data, source=audio.file), rate_hz)
    if audio.clip is not None:
        return to_track(decode_audio(clips.clip_bytes(audio.clip), source=audio.clip), rate_hz)
    return synth.render(audio, rate_hz)


def _read_audio(path: str, folder: str, written: str) -> bytes:
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise AudioError(f"{path} is a {'folder' if stat.S_ISDIR(status.st_mode) else 'device'}, not an audio file")
        if status.st_size > MAX_AUDIO_BYTES:
            raise AudioError(f"{path} is larger than {MAX_AUDIO_BYTES // 1024**2} MiB")
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise AudioError(f"{path} {_why(error, path)}") from None


def _read_text(path: str, source: str) -> bytes:
    """At most one byte more than fits, so that a device or a wrong file cannot fill the memory."""
    try:
        if path == STDIN:
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        with open(path, "rb") as file:
            text = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ScenarioError([Problem(source, None, None, "", _why(error, path))]) from None
    if text.startswith((b"RIFF", b"fLaC", b"OggS")):
        raise ScenarioError([Problem(source, None, None, "", "is audio: name it in a scenario, audio: {file: ...}")])
    if b"\0" in text[:1024] and not text.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ScenarioError([Problem(source, None, None, "", "is a binary file, not YAML text")])
    return text


def _mistaken_for_a_plan(document: Document) -> str | None:
    """Our own files, which would be wrong in every line: one sentence says what they are instead."""
    if str(value_at(document.value, "format")).startswith("voicebench-recording/"):
        return "is a recording, not a scenario: score its folder with `voicebench score`"
    if str(value_at(document.value, "schema")).startswith("voicebench-report/"):
        return "is a run's report, not a scenario: give the file that was run"
    return None


def _why(error: Exception, path: str) -> str:
    if isinstance(error, FileNotFoundError):
        return f"does not exist.{_near_file(path)}" if _near_file(path) else "does not exist"
    if isinstance(error, IsADirectoryError):
        recorded = os.path.exists(os.path.join(path, "session.json"))
        return "is a folder, not a file" + (": `voicebench score` is for recordings" if recorded else "")
    if isinstance(error, PermissionError):
        return "cannot be read: permission denied"
    return f"cannot be read: {getattr(error, 'strerror', None) or error}"


def _near_file(path: str) -> str:
    folder, name = os.path.split(path)
    try:
        names = sorted(os.listdir(folder or "."))[:1000]
    except OSError:
        return ""
    near = nearest(name, names, cutoff=0.75)  # file names of one folder are alike by nature
    return f" Did you mean '{clip_text(near)}'?" if near else ""
