"""What the soak says of half an hour's lines."""

from dataclasses import replace

import numpy as np
import pytest

from tests.bench.soak import Line, drifts

STEADY = Line(
    at_s=0.0,
    live=300,
    late_ms={"p50": 0.4, "p99": 3.0, "max": 9.0},
    late_frames=0,
    frames=100_000,
    worst_second_ms=9.0,
    cpu=0.4,
    rss_mb=300.0,
    descriptors=320,
    threads=4,
    master_rss_mb=80.0,
)
NOISE = np.random.default_rng(1)


def lines(**of_line):
    """Twenty minutes, of which each figure is a function of the line's number."""
    made = []
    for n in range(120):
        noisy = replace(
            STEADY,
            at_s=10.0 * n,
            rss_mb=300 + NOISE.normal(0, 2),
            descriptors=320 + int(NOISE.integers(-3, 4)),
            late_ms={**STEADY.late_ms, "p99": 3 + NOISE.exponential(2)},
        )
        made.append(replace(noisy, **{name: figure(n) for name, figure in of_line.items()}))
    return made


def test_noise_and_single_bursts_are_no_drift(capsys):
    burst = {n: {"p50": 1.0, "p99": 90.0, "max": 200.0} for n in (80, 95, 110)}
    assert not drifts([replace(each, late_ms=burst.get(n, each.late_ms)) for n, each in enumerate(lines())])
    assert "nothing drifts" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "figure", "told"),
    [
        ("rss_mb", lambda n: 300 + n / 6 + NOISE.normal(0, 2), "rss_mb"),  # 1 MB a minute
        ("master_rss_mb", lambda n: 80 + n / 12, "master_rss_mb"),
        ("descriptors", lambda n: 320 + n // 12, "descriptors"),
        ("threads", lambda n: 4 + n // 40, "threads"),
        ("late_ms", lambda n: {"p50": 0.4, "p99": 3 + n / 60 + NOISE.exponential(0.5), "max": 9.0}, "late_p99_ms"),
    ],
)
def test_what_grows_is_named(capsys, name, figure, told):
    assert drifts(lines(**{name: figure}))
    out = capsys.readouterr().out
    assert f"{told}: DRIFTS" in out
    assert out.endswith(f"soak: something drifts: {told}\n")


def test_what_sinks_or_comes_and_goes_by_little_is_no_drift():
    assert not drifts(lines(rss_mb=lambda n: 300 - n / 6, descriptors=lambda n: 320 + n // 60))


def test_lateness_that_nothing_is_known_of_is_not_steady(capsys):
    assert drifts(lines(late_ms=lambda _: None))
    assert "late_p99_ms: too few values to tell" in capsys.readouterr().out
