"""The status page of a run: opened before it begins, told how it ended, closed with the program."""

from __future__ import annotations

from pathlib import Path

import gevent
from gevent.event import Event

from voicebench.cli.distributed import Held
from voicebench.cli.output import say
from voicebench.cli.settle import RunFlags
from voicebench.cli.signals import Signals
from voicebench.clock import monotonic_s
from voicebench.master.core import Core
from voicebench.master.picture import Picture
from voicebench.master.telling import Result
from voicebench.page.app import FILE_TYPES
from voicebench.page.guard import Guard
from voicebench.page.server import DEFAULT_HOST, DEFAULT_PORT, Page, listen, page_address, url_of
from voicebench.page.source import How, NotNowError

ANSWER_S = 5.0
LOOK_S = 0.01


class RunPage:
    """One run's page."""

    def __init__(self, flags: RunFlags) -> None:
        """
        Raises:
            UsageError: `--page` is no address of this machine, or is taken.
        """
        host, port = page_address(flags.page) if flags.page is not None else (DEFAULT_HOST, DEFAULT_PORT)
        self._listener = listen(host, port, exactly=flags.page is not None)
        self._guard = Guard(host)
        self._stay = flags.stay
        self._page: Page | None = None
        self._core: Core | None = None
        self.url = url_of(self._listener)
        if not flags.quiet:
            say(f"page: {self.url}")

    @property
    def csrf(self) -> str:
        return self._guard.csrf

    def show(self, core: Core, held: Held, directory: Path | None) -> None:
        """From now on browsers are answered."""
        self._core = core
        self._page = Page(_Source(core, held, directory), self._guard, self._listener)

    def conclude(self, directory: Path | None) -> None:
        """Show how the run ended; with `--stay`, until somebody ends the program."""
        assert self._core is not None
        verdict = self._core.verdict
        if verdict is None:
            return
        files = [name for name in FILE_TYPES if directory is not None and (directory / name).is_file()]
        self._core.conclude_page(
            Result(
                verdict=verdict.verdict,
                exit_code=verdict.exit_code,
                complete=verdict.complete,
                reasons=verdict.reasons,
                directory=None if directory is None else str(directory),
                files=tuple(files),
            )
        )
        if self._stay:
            self._wait_for_signal()

    def close(self) -> None:
        """Nobody is answered any more."""
        if self._page is not None:
            self._page.close()
        self._listener.close()

    def _wait_for_signal(self) -> None:
        say(f"the page stays at {self.url}: Ctrl-C to end")
        ended = Event()
        signals = Signals(lambda name: ended.set(), lambda name: ended.set())
        try:
            ended.wait()
        finally:
            signals.close()


class _Source:
    """What the page asks of a run: `page.source.Source`."""

    def __init__(self, core: Core, held: Held, directory: Path | None) -> None:
        self._core = core
        self._held = held
        self._directory = directory

    @property
    def picture(self) -> Picture | None:
        return self._core.picture

    def history(self) -> bytes:
        answers: list[bytes] = []
        self._core.ask_history(answers.append)
        until_s = monotonic_s() + ANSWER_S
        while not answers:
            if monotonic_s() > until_s:
                raise NotNowError(f"the master has not answered within {ANSWER_S:g} s: it is busy, or its page failed")
            gevent.sleep(LOOK_S)
        return answers[0]

    def start(self) -> None:
        self._held.start_by_hand()

    def stop(self, how: How) -> None:
        self._held.stop_by_hand(how)

    def file(self, name: str) -> Path | None:
        if self._directory is None or not self._core.done:
            return None
        path = self._directory / name
        return path if path.is_file() else None
