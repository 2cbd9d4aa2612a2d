import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from voicebench import cli
from voicebench.audio import synth, wav
from voicebench.cli.synth import command
from voicebench.clips import clip_bytes, clip_names


def invoked(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], synth.speech(1500, 16000)),
        (
            ["--kind", "tone", "--freq-hz", "1000", "--level-db", "-9"],
            synth.tone(1500, 16000, level_db=-9, freq_hz=1000),
        ),
        (["--kind", "noise", "--seed", "4", "--sample-rate", "8000"], synth.noise(1500, 8000, seed=4)),
        (["--kind", "silence", "--duration-ms", "20.5"], synth.silence(20.5, 16000)),
    ],
)
def test_the_file_holds_the_signal(tmp_path: Path, arguments: list[str], expected: np.ndarray) -> None:
    result = invoked(str(tmp_path / "out.wav"), *arguments)
    assert result.exit_code == 0
    track, _ = wav.read_track((tmp_path / "out.wav").read_bytes(), source="out.wav")
    assert np.array_equal(track, expected)


def test_what_was_written_is_said_on_stderr_and_nothing_on_stdout(tmp_path: Path) -> None:
    out = tmp_path / "out.wav"
    result = invoked(str(out), "--kind", "tone", "--duration-ms", "250")
    assert result.stderr == f"wrote {out}: tone of 440 Hz at -20 dBFS, 250 ms at 16000 Hz\n"
    assert result.stdout == ""


def test_a_dash_writes_the_wav_to_standard_output() -> None:
    result = invoked("-", "--duration-ms", "100")
    assert result.exit_code == 0
    assert result.stdout_bytes == wav.encode(synth.speech(100, 16000), 16000)
    assert "wrote standard output" in result.stderr


def test_a_clip_is_written_as_it_is_shipped(tmp_path: Path) -> None:
    assert invoked(str(tmp_path / "yes.wav"), "--clip", "yes").exit_code == 0
    assert (tmp_path / "yes.wav").read_bytes() == clip_bytes("yes")


def test_a_clip_is_resampled_when_another_rate_is_asked_for(tmp_path: Path) -> None:
    result = invoked(str(tmp_path / "yes.wav"), "--clip", "yes", "--sample-rate", "8000")
    assert "clip yes, 740 ms at 8000 Hz" in result.stderr
    track, rate_hz = wav.read_track((tmp_path / "yes.wav").read_bytes(), source="yes.wav")
    assert (len(track), rate_hz) == (5920, 8000)


def test_clips_are_listed_with_what_they_say() -> None:
    result = invoked("--list-clips")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == list(clip_names())
    assert "Hi there, I need to change my booking." in result.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "OUTPUT.wav is missing"),
        (["x.wav", "--clip", "barge-in"], "--clip: there is no clip 'barge-in'. Did you mean 'barge_in'?"),
        (["x.wav", "--clip", "yes", "--level-db", "-20"], "--level-db: only for synthetic signals"),
        (["x.wav", "--kind", "music"], "'music' is not one of"),
        (["x.wav", "--level-db", "3"], "--level-db 3 cannot be made"),
        (["x.wav", "--level-db", "loud"], "--level-db: 'loud' is not a number"),
        (["x.wav", "--duration-ms", "-5"], "--duration-ms -5 is outside"),
        (["x.wav", "--duration-ms", "nan"], "--duration-ms: 'nan' is not a number"),
        (["x.wav", "--kind", "tone", "--freq-hz", "9000"], "--freq-hz 9000 cannot be carried at 16000 Hz"),
        (["x.wav", "--sample-rate", "0"], "--sample-rate: '0' is not a whole number from 8000 to 192000"),
        (["x.wav", "--seed", "-1"], "--seed: '-1' is not a whole number of 0 or more"),
    ],
)
def test_bad_values_are_usage_errors(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["synth", *arguments]) == 2
    out, err = capsys.readouterr()
    assert expected in err
    assert (out, err.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_path_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "missing" / "out.wav"
    assert cli.main(["synth", str(path)]) == 2
    assert capsys.readouterr().err == f"error: cannot write '{path}': No such file or directory\n"


@pytest.mark.slow
def test_help_and_the_list_of_clips_need_no_numpy() -> None:
    code = (
        "import sys; from voicebench.cli import main; main(['synth', '--help']); main(['synth', '--list-clips']); "
        "sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0
