from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from voicebench.errors import AdapterError
from voicebench.events import AgentAudio, AgentClear, AgentClosed, AgentTranscript
from voicebench.worker.adapters import Audio, Clear, HangUp, Transcript
from voicebench.worker.adapters.base import load_adapter_class, stamped


class Whole:
    def connect(self, timeout_s): ...

    def send(self, samples): ...

    def receive(self, timeout_s): ...

    def close(self): ...


class WithoutClose:
    def connect(self, timeout_s): ...

    def send(self, samples): ...

    def receive(self, timeout_s): ...


@pytest.fixture(autouse=True)
def _module(monkeypatch: pytest.MonkeyPatch):
    module = types.ModuleType("their_agent")
    module.Whole, module.WithoutClose, module.NUMBER = Whole, WithoutClose, 7
    monkeypatch.setitem(sys.modules, "their_agent", module)


def test_a_class_with_all_methods_is_loaded():
    assert load_adapter_class("their_agent:Whole") is Whole


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("their_agent", "not of the form 'module:Class'"),
        (":Whole", "not of the form"),
        ("no_such_module_here:Whole", "install it where the worker runs"),
        ("no_such_module_here.sub:Whole", "no module 'no_such_module_here'"),
        ("their_agent:Whol", "Did you mean 'Whole'"),
        ("their_agent:NUMBER", "no class 'NUMBER'"),
        ("their_agent:WithoutClose", r"lacks close\(\)"),
    ],
)
def test_what_cannot_be_loaded_is_told_with_a_remedy(name: str, words: str):
    with pytest.raises(AdapterError, match=words):
        load_adapter_class(name)


def test_a_module_that_fails_while_imported_is_named_with_its_error(tmp_path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "bursting_agent.py").write_text("raise RuntimeError('no licence')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AdapterError, match="RuntimeError: no licence"):
        load_adapter_class("bursting_agent:Agent")


def test_a_module_that_lacks_one_of_its_own_needs_names_that_one(tmp_path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "needy_agent.py").write_text("import a_library_nobody_has")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AdapterError, match="needs the module 'a_library_nobody_has'"):
        load_adapter_class("needy_agent:Agent")


def test_what_an_adapter_returns_gets_its_time_from_us():
    samples = np.zeros(3, dtype=np.int16)
    audio = stamped(Audio(samples), 1.0)
    assert isinstance(audio, AgentAudio)
    assert audio.samples is samples
    assert stamped(Clear(), 2.0) == AgentClear(2.0)
    assert stamped(Transcript("agent", "hi", final=False), 3.0) == AgentTranscript("agent", "hi", 3.0, False)
    assert stamped(HangUp(), 4.0) == AgentClosed(4.0, 1000, "")


def test_anything_else_an_adapter_returns_is_an_adapter_error():
    with pytest.raises(AdapterError, match=r"returned a bytes; it must return Audio"):
        stamped(b"audio", 0.0)  # type: ignore[arg-type]
