"""From scenarios to the routes their sessions take, and everything made ready that would stall live sessions later."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from voicebench import bundle
from voicebench.clock import realtime_s
from voicebench.errors import AdapterError
from voicebench.load.closed import pause_s
from voicebench.records import FINISHED
from voicebench.scenario.adapter_options import mock_options, websocket_options
from voicebench.scenario.secrets import expand_variables
from voicebench.scoring import score
from voicebench.script import Script
from voicebench.session import Session
from voicebench.worker.adapter_call import LoopWatch
from voicebench.worker.adapters.base import Adapter, SessionInfo, load_adapter_class
from voicebench.worker.adapters.mock import MockAdapter
from voicebench.worker.adapters.websocket import WebSocketTransport
from voicebench.worker.call import make_ready
from voicebench.worker.lag import LagMeter
from voicebench.worker.pacer import Pacer
from voicebench.worker.routes import AdapterRoute, Route, SocketRoute, VirtualRoute

ADAPTER_CONNECT_TIMEOUT_S = 10.0


class Routes:
    """One route a scenario. The pacer that the sockets share is made when there is a route with sockets."""

    def __init__(
        self,
        scripts: Sequence[Script],
        environment: Mapping[str, str],
        *,
        virtual: bool,
        on_pacer_error: Callable[[BaseException], None],
        lags: LagMeter | None = None,
    ) -> None:
        """
        Args:
            on_pacer_error: Hears of a failure of what paces all sessions.
            lags: Is told how late that was.

        Raises:
            ScenarioError: A variable in an agent's options is not set here.
            AdapterError: Its options do not fit, or an adapter can't be loaded.
        """
        self._environment = environment
        self._virtual = virtual
        self._on_pacer_error = on_pacer_error
        self._lags = lags
        self._pacer: Pacer | None = None
        self.routes: list[Route] = [self._route(script) for script in scripts]

    def knock(self, run_id: str) -> None:
        """One call that says nothing, to each scenario's agent: is anyone there?

        Raises:
            AgentError: No.
        """
        for route in self.routes:
            scenario = route.script.scenario
            started_at = datetime.fromtimestamp(realtime_s(), UTC).isoformat(timespec="milliseconds")
            route.knock(
                SessionInfo(
                    session_id=f"{run_id}-preflight",
                    number=0,
                    sample_rate_hz=scenario.sample_rate,
                    frame_samples=route.script.frame_samples,
                    scenario=scenario.name,
                    started_at=started_at,
                )
            )

    @property
    def paced_s(self) -> float | None:
        """When the pacer last looked at its live calls, monotonic; None: it has none. From any thread."""
        return None if self._pacer is None else self._pacer.paced_s

    def close(self) -> None:
        """Stop the pacer."""
        if self._pacer is not None:
            self._pacer.close()

    def _route(self, script: Script) -> Route:
        spec = script.scenario.adapter
        options = expand_variables(dict(spec.options), self._environment)
        if spec.type == "mock":
            if self._virtual:
                return VirtualRoute(script, mock_options(options))
            mock_options(options)
            return self._adapter_route(script, _mock_maker(script, options))
        if spec.type == "websocket":
            transport = WebSocketTransport(websocket_options(options))
            if self._pacer is None:
                self._pacer = Pacer(on_error=self._on_pacer_error, lags=self._lags)
            return SocketRoute(make_ready(script, transport.ready_frame), transport, self._pacer)
        if ":" in spec.type:
            return self._adapter_route(script, _class_maker(spec.type, options))
        raise AdapterError(f"adapter {spec.type!r} is not known: mock, websocket or module:Class")

    def _adapter_route(self, script: Script, make: Callable[[SessionInfo], Adapter]) -> AdapterRoute:
        watch = LoopWatch(self._on_pacer_error, self._lags)
        return AdapterRoute(script, make, ADAPTER_CONNECT_TIMEOUT_S, watch=watch)


def get_ready(script: Script) -> None:
    """Do beforehand what would stall live sessions the first time: imports at first use, and the garbage collector's
    walk through everything that was loaded until here (measured: 25 and 50 ms)."""
    pause_s(0, (0.0, 1.0), 0)
    session = Session(script)
    session.end(FINISHED, 1)
    recording = session.recording("rehearsal", clock="virtual")
    score(recording)
    bundle.encode(recording, {})
    gc.collect()
    gc.freeze()


def _mock_maker(script: Script, options: Mapping[str, Any]) -> Callable[[SessionInfo], Adapter]:
    return lambda info: MockAdapter(sample_rate_hz=script.scenario.sample_rate, session_number=info.number, **options)


def _class_maker(name: str, options: Mapping[str, Any]) -> Callable[[SessionInfo], Adapter]:
    adapter_class = load_adapter_class(name)

    def make(info: SessionInfo) -> Adapter:
        try:
            made: Adapter = adapter_class(**options)
        except Exception as error:
            raise AdapterError(
                f"adapter {name!r} can't be made with these options: {type(error).__name__}: {error}"
            ) from error
        return made

    return make
