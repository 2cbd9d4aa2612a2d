"""`voicebench mock-server`: the mock agent behind a WebSocket, to have something to call."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from voicebench.cli.help import Advanced, Command, Number, Whole
from voicebench.errors import ScenarioError, UsageError

if TYPE_CHECKING:
    from voicebench.mock_delivery import Stutter
    from voicebench.scenario.adapter_options import MockOptions

STUTTER = re.compile(r"(\d+(?:\.\d+)?)@(\d+(?:\.\d+)?)")


@click.command("mock-server", cls=Command)
@click.option(
    "--host",
    cls=Advanced,
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on: a loopback one, unless --insecure.",
)
@click.option("--port", type=Whole(0, 65535), default=8765, show_default=True, help="0 picks a free one.")
@click.option(
    "--sample-rate",
    type=Whole(8000, 192000),
    default=16000,
    show_default=True,
    help="Hz, both ways. A connection may set its own: ?rate=HZ in the URL, or sample_rate in a start message.",
)
@click.option("-o", "options", metavar="KEY=VALUE", multiple=True, help="An option of the agent (list below).")
@click.option("--truth", type=click.Path(path_type=Path, dir_okay=False), help="Log what really happened, JSON lines.")
@click.option(
    "--burst",
    cls=Advanced,
    type=Number(0.0),
    default=1.0,
    show_default=True,
    help="Send the agent's audio this many times faster than real time; 0: each reply all at once.",
)
@click.option(
    "--stutter",
    "stutters",
    cls=Advanced,
    metavar="MS@MS",
    multiple=True,
    help="200@500: a gap of 200 ms after 500 ms of every reply. May be given several times.",
)
@click.option(
    "--capacity",
    cls=Advanced,
    type=Whole(1),
    help="Above this many sessions at once, each further one delays every response by 50 ms more.",
)
@click.option(
    "--fail-rate",
    cls=Advanced,
    type=Number(0.0, 1.0),
    default=0.0,
    show_default=True,
    help="Refuse this share of connections with HTTP 503, chosen by the agent's seed.",
)
@click.option(
    "--hangup-after-ms", cls=Advanced, type=Number(0.0), help="Close (1000) this long after a connection was accepted."
)
@click.option(
    "--tls-cert",
    cls=Advanced,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Serve wss:// with this PEM chain.",
)
@click.option(
    "--tls-key", cls=Advanced, type=click.Path(path_type=Path, dir_okay=False), help="Its key, if in a file of its own."
)
@click.option(
    "--insecure", cls=Advanced, is_flag=True, help="Allow a --host that other machines can reach: anybody may call."
)
def command(
    host: str,
    port: int,
    sample_rate: int,
    options: tuple[str, ...],
    truth: Path | None,
    burst: float,
    stutters: tuple[str, ...],
    capacity: int | None,
    fail_rate: float,
    hangup_after_ms: float | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    insecure: bool,
) -> int:
    """Serve the mock agent over WebSocket (docs/websocket.md). Prints "listening on ws://HOST:PORT" and serves until
    Ctrl-C or SIGTERM.

    \b
    Examples:
      voicebench mock-server
      voicebench mock-server -o response_delay_ms=250 -o jitter_ms=100 --truth truth.jsonl
      voicebench mock-server --burst 0 --stutter 200@500 --capacity 50 --fail-rate 0.01

    The agent waits until the user has spoken and been silent for endpoint_silence_ms, then response_delay_ms, and
    speaks for response_ms; user speech of barge_in_min_ms makes it stop. Its options, all times in ms:

    \b
      endpoint_silence_ms 300    response_delay_ms 400    jitter_ms 0     response_ms 1500
      barge_in_min_ms 100        interrupt_reaction_ms 150                greeting_ms 0
      level_db -20   threshold_db -45   interruptible true   transcripts []   seed 0

    The flags --burst, --stutter, --capacity, --fail-rate and --hangup-after-ms test the tester; what they do is in the
    truth log.
    """
    from voicebench.mock_delivery import ServerOptions
    from voicebench.mock_server import serve

    _refuse_open_address(host, insecure=insecure)
    tester = ServerOptions(
        burst=burst,
        capacity=capacity,
        fail_rate=fail_rate,
        hangup_after_ms=hangup_after_ms,
        stutter=tuple(_stutter(text) for text in stutters),
    )
    agent = _agent_options(options)
    context = _tls_context(tls_cert, tls_key)
    file = _open_truth(truth)
    try:
        server = serve(host, port, sample_rate_hz=sample_rate, options=agent, tester=tester, truth=file, ssl=context)
        # Whoever reads the line may end us at once.
        stop = _on_signals()
        click.echo(f"listening on {server.url}")
        stop.wait()
        server.stop()
    finally:
        if file is not None:
            file.close()
    return 0


def _refuse_open_address(host: str, *, insecure: bool) -> None:
    if insecure or host == "localhost":
        return
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise UsageError(f"--host {host} may be reached by other machines, and anybody could call: add --insecure")


def _stutter(text: str) -> Stutter:
    from voicebench.mock_delivery import Stutter

    match = STUTTER.fullmatch(text)
    if match is None:
        raise UsageError(f"--stutter {text!r} is not of the form GAP_MS@PLACE_MS, for example 200@500")
    return Stutter(gap_ms=float(match[1]), at_ms=float(match[2]))


def _agent_options(pairs: tuple[str, ...]) -> MockOptions:
    from voicebench.scenario.adapter_options import mock_options

    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise UsageError(f"-o {pair!r} is not of the form KEY=VALUE, for example -o response_delay_ms=250")
        options[key] = _list_of(value) if key == "transcripts" else value
    try:
        return mock_options(options, path="")
    except ScenarioError as error:
        raise UsageError("\n".join(f"-o {each.path}: {each.message}" for each in error.problems)) from None


def _list_of(value: str) -> Any:
    """`transcripts` as a YAML list, or a single text."""
    import yaml

    try:
        read = yaml.safe_load(value)
    except yaml.YAMLError:
        read = None
    return read if isinstance(read, list) else [value]


def _tls_context(cert: Path | None, key: Path | None) -> Any:
    if cert is None:
        if key is not None:
            raise UsageError("--tls-key is of no use without --tls-cert")
        return None
    import gevent.ssl

    context = gevent.ssl.SSLContext(gevent.ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key)
    except OSError as error:  # an SSLError is one
        raise UsageError(f"--tls-cert {cert} (key: {key or 'in the same file'}) can't be used: {error}") from None
    return context


def _open_truth(path: Path | None) -> IO[str] | None:
    if path is None:
        return None
    try:
        return path.open("w", buffering=1, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--truth {path}: can't be written: {error.strerror}") from None


def _on_signals() -> Any:
    """An event that Ctrl-C and SIGTERM set."""
    import signal

    import gevent
    import gevent.event

    stop = gevent.event.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        gevent.signal_handler(number, stop.set)
    return stop
