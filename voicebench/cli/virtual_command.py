"""`voicebench run` with the mock agent on the virtual clock: in this process, as fast as it can be computed."""

from __future__ import annotations

import os

from voicebench.cli.live import Progress, choose_view
from voicebench.cli.run_command import Settled, make_directory, write_and_show
from voicebench.cli.settle import RunFlags
from voicebench.cli.signals import Signals
from voicebench.local_run import LocalRun, LocalSettings
from voicebench.master.report import run_head
from voicebench.words import count, duration


def hold_virtual(settled: Settled, flags: RunFlags) -> int:
    """Hold the run and return the exit code."""
    plan, load = settled.loaded.plan, settled.load
    head = run_head(settled.run_id, plan, settled.scenarios, seed=load.seed, clock="virtual")
    directory = make_directory(flags, settled.run_id, os.environ)
    settings = LocalSettings(os.environ, settled.keep, directory)
    run = LocalRun(head, plan, settled.scenarios, load, settings, settled.notes)
    events: list[tuple[float, str, str]] = []
    engine = run.engine
    progress = Progress(run)
    view = choose_view(progress, quiet=flags.quiet)

    def drain(name: str) -> None:
        events.append((round(engine.elapsed_s, 3), "drain", name))
        engine.drain()
        progress.drained_s()
        going_on = count(engine.live, "session")
        view.note(f"{name}: letting {going_on} finish, up to {duration(engine.load.stop_timeout_s)}; again to cut")

    def cut(name: str) -> None:
        events.append((round(engine.elapsed_s, 3), "cut", name))
        engine.cut()

    signals = Signals(drain, cut)
    view.start()
    trouble: BaseException | None = None
    try:
        events.append((0.0, "start", f"{engine.load.callers} callers"))
        run.run()
    except Exception as error:  # noqa: BLE001 - whatever voids the run, what was measured until then is reported
        trouble = error
        events.append((round(engine.elapsed_s, 3), "error", str(error)))
    finally:
        view.stop()
        signals.close()
    events.append((round(run.duration_s, 3), "end", ""))
    report, verdict = run.finish(signal_exit=signals.exit_code, events=events)
    return write_and_show(report, verdict, flags, directory=directory, details=run.collector.details(), trouble=trouble)
