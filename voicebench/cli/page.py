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
        self._source = _Source()
        self.url = url_of(self._listener)
        if not flags.quiet:
            say(f"page: {self.url}")

    @property
    def csrf(self) -> str:
        return self._guard.csrf

    def show(self, core: Core, held: Held, directory: Path | None) -> None:
        """From now on browsers are answered, and this is the run they see."""
        self._source.core, self._source.held, self._source.directory = core, held, directory
        if self._page is None:
            self._page = Page(self._source, self._guard, self._listener)

    def conclude(self) -> None:
        """Show how the run ended."""
        core, directory = self._source.core, self._source.directory
        if core is None or core.verdict is None:
            return
        verdict = core.verdict
        files = [name for name in FILE_TYPES if directory is not None and (directory / name).is_file()]
        core.conclude_page(
            Result(
                verdict=verdict.verdict,
                exit_code=verdict.exit_code,
                complete=verdict.complete,
                reasons=verdict.reasons,
                directory=None if directory is None else str(directory),
                files=tuple(files),
            )
        )

    def wants_again(self) -> bool:
        """With `--stay`: whether somebody presses Run again, or Ctrl-C first."""
        if not self._stay:
            return False
        say(f"the page stays at {self.url}: Run again there, or Ctrl-C to end")
        self._source.wants_again.clear()
        ended = Event()
        signals = Signals(lambda name: ended.set(), lambda name: ended.set())
        try:
            gevent.wait([ended, self._source.wants_again], count=1)
        finally:
            signals.close()
        return not ended.is_set()

    def close(self) -> None:
        """Nobody is answered any more."""
        if self._page is not None:
            self._page.close()
        self._listener.close()


class _Source:
    """What the page asks of the run that it shows: `page.source.Source`."""

    def __init__(self) -> None:
        self.core: Core | None = None
        self.held: Held | None = None
        self.directory: Path | None = None
        self.wants_again = Event()

    @property
    def picture(self) -> Picture | None:
        return None if self.core is None else self.core.picture

    def history(self) -> bytes:
        assert self.core is not None
        answers: list[bytes] = []
        self.core.ask_history(answers.append)
        until_s = monotonic_s() + ANSWER_S
        while not answers:
            if monotonic_s() > until_s:
                raise NotNowError(f"the master has not answered within {ANSWER_S:g} s: it is busy, or its page failed")
            gevent.sleep(LOOK_S)
        return answers[0]

    def start(self) -> None:
        assert self.core is not None
        assert self.held is not None
        if self.core.may_run_again:
            self.wants_again.set()
        else:
            self.held.start_by_hand()

    def stop(self, how: How) -> None:
        assert self.held is not None
        self.held.stop_by_hand(how)

    def file(self, name: str) -> Path | None:
        if self.core is None or self.directory is None or not self.core.done:
            return None
        path = self.directory / name
        return path if path.is_file() else None
