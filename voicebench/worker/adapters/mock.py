"""The mock agent in this process, on the wall clock: the second adapter, so that the seam stays honest."""

from __future__ import annotations

from collections import deque
from typing import Any

import gevent

from voicebench.events import Samples
from voicebench.mock_agent import Clear as MockClear
from voicebench.mock_agent import Heard, MockAgent, Say, session_seed
from voicebench.scenario.adapter_options import mock_options
from voicebench.worker.adapters.base import Audio, Clear, Said, Transcript

POLL_S = 0.002


class MockAdapter:
    """`adapter: mock` with `--realtime`: answers each frame at once, as the agent behind a socket would."""

    def __init__(self, *, sample_rate_hz: int = 16000, session_number: int = 0, **options: Any) -> None:
        self._options = mock_options(options)
        seed = session_seed(self._options.seed, session_number)
        self._agent = MockAgent(self._options, sample_rate_hz=sample_rate_hz, seed=seed)
        self._said: deque[Said] = deque()

    def connect(self, timeout_s: float) -> None:
        """There is nothing to connect to."""

    def send(self, samples: Samples) -> None:
        """Hear one frame of user audio and take note of what the agent does meanwhile."""
        for output in self._agent.hear(samples):
            if isinstance(output, Say):
                self._said.append(Audio(output.samples))
            elif isinstance(output, MockClear):
                self._said.append(Clear())
            elif isinstance(output, Heard) and output.text is not None:
                self._said.append(Transcript("user", output.text))

    def receive(self, timeout_s: float) -> Said | None:
        """What the agent does next, None when it does nothing within the time."""
        waited_s = 0.0
        while not self._said and waited_s < timeout_s:
            gevent.sleep(POLL_S)
            waited_s += POLL_S
        return self._said.popleft() if self._said else None

    def close(self) -> None:
        """Forget what was not fetched."""
        self._said.clear()
