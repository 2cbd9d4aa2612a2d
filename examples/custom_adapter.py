"""An adapter of your own, for an agent that only a Python library reaches: here `websockets`, as any SDK might be.

    voicebench mock-server -o endpoint_silence_ms=600            # in another terminal
    PYTHONPATH=examples voicebench run examples/custom_adapter.yaml

One object a session, one greenlet each. `voicebench run` patches sockets, threads, locks and sleeps before it imports
this file, so pure-Python libraries wait cooperatively as they are; a C library that blocks would stall all sessions.
"""

from __future__ import annotations

import contextlib
import json

from numpy import frombuffer, int16
from numpy.typing import NDArray
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from voicebench.errors import AgentError
from voicebench.worker.adapters import Audio, Clear, HangUp, Transcript


class PcmOverWebSocket:
    """Binary PCM16 both ways, JSON text for control: what `adapter: websocket` speaks, at some ten times its cost."""

    def __init__(self, url: str) -> None:
        """Keywords are the scenario's `adapter.options`, and what `--url` and `-o KEY=VALUE` add."""
        self._url = url
        self._line: ClientConnection

    def connect(self, timeout_s: float) -> None:
        """A reason with the error decides how the session is counted; any other exception counts as `refused`."""
        try:
            self._line = connect(self._url, open_timeout=timeout_s, compression=None)
        except TimeoutError as error:
            raise AgentError("timeout", f"{self._url} did not answer within {timeout_s:g} s") from error

    def send(self, samples: NDArray[int16]) -> None:
        """One frame. That the line is gone is told by `receive`, which knows the agent's close code."""
        with contextlib.suppress(ConnectionClosed):
            self._line.send(samples.astype("<i2").tobytes())

    def receive(self, timeout_s: float) -> Audio | Clear | Transcript | HangUp | None:
        """What the agent does next; the moment of return is its time of arrival."""
        try:
            message = self._line.recv(timeout=timeout_s)
        except TimeoutError:
            return None
        except ConnectionClosed:
            return HangUp(self._line.close_code, self._line.close_reason or "")
        if isinstance(message, bytes):
            return Audio(frombuffer(message, "<i2"))
        said = json.loads(message)
        if said["type"] == "transcript":
            return Transcript(said["role"], said["text"], said["final"])
        return Clear() if said["type"] == "clear" else None

    def close(self) -> None:
        """Also after a `connect` that failed, and twice."""
        if hasattr(self, "_line"):
            self._line.close()
