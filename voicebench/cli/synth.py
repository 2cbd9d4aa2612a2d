"""`voicebench synth`: a test signal, or one of the shipped clips, as a WAV file."""

from __future__ import annotations

import sys

import click

from voicebench.cli.help import Command, Number, Whole
from voicebench.clips import clip_bytes, clip_info, clip_names
from voicebench.errors import AudioError, UsageError
from voicebench.scenario.model import AudioSource, SynthKind

STDOUT = "-"
_OF_SYNTHESIS = ("kind", "duration_ms", "level_db", "freq_hz", "seed")


@click.command("synth", cls=Command)
@click.argument("output", required=False, metavar="OUTPUT.wav", type=click.Path(allow_dash=True, readable=False))
@click.option(
    "--kind",
    type=click.Choice(["speech", "tone", "noise", "silence"]),
    default="speech",
    show_default=True,
    help="What to make. Neural detectors don't take synthetic speech for speech: use --clip for real agents.",
)
@click.option("--clip", metavar="NAME", help="Write a shipped clip instead of a synthetic signal.")
@click.option("--duration-ms", type=Number(), default=1500.0, show_default=True, help="Length in milliseconds.")
@click.option(
    "--level-db", type=Number(), default=-20.0, show_default=True, help="RMS in dBFS (full scale 32768), at most -3."
)
@click.option("--freq-hz", type=Number(), default=440.0, show_default=True, help="Frequency of a tone.")
@click.option("--seed", type=Whole(0), default=0, show_default=True, help="Another seed, another signal.")
@click.option("--sample-rate", type=Whole(8000, 192000), default=16000, show_default=True, help="Samples a second.")
@click.option("--list-clips", is_flag=True, help="List the shipped clips with what they say, and stop.")
@click.pass_context
def command(
    ctx: click.Context,
    output: str | None,
    kind: SynthKind,
    clip: str | None,
    duration_ms: float,
    level_db: float,
    freq_hz: float,
    seed: int,
    sample_rate: int,
    list_clips: bool,
) -> None:
    """Write a test signal to a WAV file (mono, 16-bit); "-" writes it to standard output.

    \b
    Examples:
      voicebench synth hello.wav --clip opening
      voicebench synth beep.wav --kind tone --freq-hz 1000 --duration-ms 500
      voicebench synth - --kind noise --level-db -30 | aplay
    """
    if list_clips:
        _list_clips()
        return
    if output is None:
        raise click.UsageError('OUTPUT.wav is missing: where to write, or "-" for standard output')
    if output == STDOUT and sys.stdout.isatty():
        raise click.UsageError('standard output is a terminal: redirect it ("> tone.wav") or name a file')
    if clip is not None:
        _refuse_with_clip(ctx)
        data, what = _clip_wav(clip, sample_rate)
    else:
        source = AudioSource(synth=kind, duration_ms=duration_ms, level_db=level_db, freq_hz=freq_hz, seed=seed)
        data, what = _synthetic_wav(source, sample_rate)
    _write(output, data)
    click.echo(f"wrote {'standard output' if output == STDOUT else output}: {what}", err=True)


def _list_clips() -> None:
    width = max(map(len, clip_names()))
    for name in clip_names():
        info = clip_info(name)
        click.echo(f"{name:{width}}  {info.duration_ms:5d} ms  {info.expect:7}  {info.text or f'({info.kind})'}")


def _refuse_with_clip(ctx: click.Context) -> None:
    """A clip is what it is; an option that would change nothing must not look as if it did."""
    given = [name for name in _OF_SYNTHESIS if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE]
    if given:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise click.UsageError(f"{flags}: only for synthetic signals, a clip is written as it is; leave out --clip")


def _clip_wav(name: str, rate_hz: int) -> tuple[bytes, str]:
    from voicebench.audio import files, wav

    try:
        data = clip_bytes(name)
    except AudioError as error:
        raise click.UsageError(f"--clip: {error}") from None
    track = files.to_track(files.decode_audio(data, source=f"clip {name}"), rate_hz)
    return wav.encode(track, rate_hz), f"clip {name}, {1000 * len(track) / rate_hz:g} ms at {rate_hz} Hz"


def _synthetic_wav(source: AudioSource, rate_hz: int) -> tuple[bytes, str]:
    from voicebench.audio import synth, wav

    try:
        track = synth.render(source, rate_hz)
    except AudioError as error:
        raise click.UsageError(_by_flag(str(error))) from None
    details = {
        "speech": f" at {source.level_db:g} dBFS, seed {source.seed}",
        "noise": f" at {source.level_db:g} dBFS, seed {source.seed}",
        "tone": f" of {source.freq_hz:g} Hz at {source.level_db:g} dBFS",
        "silence": "",
    }[str(source.synth)]
    return wav.encode(track, rate_hz), f"{source.synth}{details}, {source.duration_ms:g} ms at {rate_hz} Hz"


def _by_flag(message: str) -> str:
    """Of `duration_ms -5 is outside ...` the key as it is typed here."""
    key, space, rest = message.partition(" ")
    return f"--{key.replace('_', '-')}{space}{rest}" if key in _OF_SYNTHESIS else message


def _write(output: str, data: bytes) -> None:
    if output == STDOUT:
        click.echo(data, nl=False)
        sys.stdout.flush()
        return
    try:
        with open(output, "wb") as file:
            file.write(data)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot write {output!r}: {getattr(error, 'strerror', None) or error}") from None
