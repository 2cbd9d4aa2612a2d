"""What the kernel's files say of a worker, as rates; and what is not known stays unknown."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicebench.worker.health import HealthReader
from voicebench.worker.kernel_files import (
    MachineTimes,
    ThreadTimes,
    cpu_stat_paths,
    machine_times,
    thread_times,
    throttled_ms,
)
from voicebench.worker.lag import LagMeter

STAT = "cpu  16761 0 9277 2600612 577 0 5187 24 0 0\ncpu0 8102 0 4400 1300301 290 0 2600 12 0 0\nintr 1\n"
V2_STAT = """\
usage_usec 12345678
user_usec 9345678
system_usec 3000000
nr_periods 812
nr_throttled 12
throttled_usec 734512
nr_bursts 0
burst_usec 0
"""
V1_STAT = "nr_periods 812\nnr_throttled 12\nthrottled_time 734512000\n"
V2_ROOT_STAT = "usage_usec 12345678\nuser_usec 9345678\nsystem_usec 3000000\n"
HYBRID = "9:name=systemd:/\n2:cpuacct:/box/a\n1:cpu:/box/a\n0::/\n"
DOCKER_V1 = "11:memory:/docker/ab\n4:cpu,cpuacct:/docker/ab\n"
OUTSIDE = "0::/../../other\n"


def test_a_threads_times_are_read():
    assert thread_times("167768000 78447000 2\n") == ThreadTimes(0.167768, 0.078447)


def test_steal_is_the_eighth_column_and_the_guests_are_not_counted_twice():
    assert machine_times(STAT) == MachineTimes(24, 16761 + 9277 + 2600612 + 577 + 5187 + 24)


@pytest.mark.parametrize(("text", "ms"), [(V2_STAT, 734.512), (V1_STAT, 734.512), (V2_ROOT_STAT, None)])
def test_throttling_is_read_from_both_kinds_of_control_groups(text, ms):
    assert throttled_ms(text) == (None if ms is None else pytest.approx(ms))


@pytest.mark.parametrize(
    ("cgroup", "first"),
    [
        ("0::/user.slice/run-1.scope\n", "sys/fs/cgroup/user.slice/run-1.scope/cpu.stat"),
        (HYBRID, "sys/fs/cgroup/cpu/box/a/cpu.stat"),
        (DOCKER_V1, "sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.stat"),
    ],
)
def test_the_own_group_is_found(cgroup, first):
    assert cpu_stat_paths(cgroup)[0] == first


def test_a_group_outside_of_what_is_mounted_is_not_looked_for():
    assert cpu_stat_paths(OUTSIDE) == []


@given(st.text())
def test_anything_else_is_not_known_and_no_error(text):
    for read in (thread_times, machine_times, throttled_ms):
        read(text)
    assert all(path.startswith("sys/fs/cgroup/") for path in cpu_stat_paths(text))


@pytest.mark.parametrize("text", ["", "1 2", "1 2 3 4", "a b c", "-1 2 3", "\N{ARABIC-INDIC DIGIT ONE} 2 3"])
def test_a_schedstat_that_is_none_is_not_known(text):
    assert thread_times(text) is None


@pytest.mark.parametrize(
    "text", ["", "cpu 1 2 3", "cpu0 1 2 3 4 5 6 7 8", "cpu 0 0 0 0 0 0 0 0", "cpu a b c d e f g h"]
)
def test_a_stat_that_is_none_is_not_known(text):
    assert machine_times(text) is None


class Machine:
    """A folder that looks like the root of one."""

    def __init__(self, root: Path) -> None:
        self.root, self.cpu_s = root, 0.0
        (root / "proc/self/task/7").mkdir(parents=True)
        (root / "sys/fs/cgroup/box").mkdir(parents=True)
        (root / "proc/self/cgroup").write_text("0::/box\n")
        self.tell()

    def tell(self, *, cpu_ns=0, waited_ns=0, stolen=0, idle=1000, throttled_us=0) -> None:
        (self.root / "proc/self/task/7/schedstat").write_text(f"{cpu_ns} {waited_ns} 2\n")
        (self.root / "proc/stat").write_text(f"cpu  1 0 0 {idle} 0 0 0 {stolen} 0 0\n")
        (self.root / "sys/fs/cgroup/box/cpu.stat").write_text(f"nr_throttled 1\nthrottled_usec {throttled_us}\n")

    def reader(self, lags: LagMeter | None = None) -> HealthReader:
        return HealthReader(7, lags or LagMeter(), root=self.root, process_cpu_s=lambda: self.cpu_s)


def test_rates_are_those_since_the_last_reading(tmp_path):
    machine = Machine(tmp_path)
    reader = machine.reader()
    assert reader.read(10.0, 3) is None
    machine.tell(cpu_ns=1_400_000_000, waited_ns=500_000_000, stolen=20, idle=1180, throttled_us=250_000)
    machine.cpu_s = 1.6
    health = reader.read(12.0, 5)
    assert health is not None
    assert (health.n, health.over_s, health.calls) == (1, 2.0, 5)
    assert health.loop_cpu == pytest.approx(0.7)
    assert health.process_cpu == pytest.approx(0.8)
    assert health.waited == pytest.approx(0.25)
    assert health.steal == pytest.approx(0.1)
    assert health.throttled_ms == pytest.approx(250.0)
    again = reader.read(13.0, 5)
    assert (again.n, again.loop_cpu, again.throttled_ms, again.steal) == (2, 0.0, 0.0, None)
    reader.close()


def test_a_second_that_began_without_calls_is_held_against_no_number_of_them(tmp_path):
    reader = Machine(tmp_path).reader()
    reader.read(1.0, 0)
    assert reader.read(2.0, 5).calls == 0
    assert reader.read(3.0, 5).calls == 5


def test_where_nothing_can_be_read_nothing_is_known_and_that_is_said(tmp_path):
    reader = HealthReader(7, LagMeter(), root=tmp_path / "nowhere", process_cpu_s=lambda: 0.0)
    reader.read(1.0, 1)
    health = reader.read(2.0, 1)
    assert (health.loop_cpu, health.waited, health.throttled_ms, health.steal) == (None, None, None, None)
    assert (health.widest_gap_ms, health.worst_late_ms, health.process_cpu) == (None, None, 0.0)
    assert len(reader.unknown) == 2


def test_a_file_that_goes_away_is_not_known_from_then_on(tmp_path):
    machine = Machine(tmp_path)
    reader = machine.reader()
    reader.read(1.0, 1)
    (tmp_path / "proc/self/task/7/schedstat").write_text("")
    assert reader.read(2.0, 1).loop_cpu is None
    reader.close()
    assert reader.read(3.0, 1).steal is None


def test_the_lag_of_a_second_is_its_worst_and_is_told_once(tmp_path):
    lags = LagMeter()
    reader = Machine(tmp_path).reader(lags)
    reader.read(1.0, 1)
    for gap_s, late_s in ((0.001, 0.002), (0.040, 0.001), (0.002, 0.012)):
        lags.look(gap_s)
        lags.sent(late_s)
    health = reader.read(2.0, 1)
    assert (health.widest_gap_ms, health.worst_late_ms) == (pytest.approx(40.0), pytest.approx(12.0))
    assert reader.read(3.0, 1).widest_gap_ms is None


def test_what_is_written_while_it_is_taken_counts_the_next_time():
    lags = LagMeter()
    held_by_the_loop = lags.now
    lags.take()
    held_by_the_loop.gap_s = 0.5
    assert lags.take() == (0.5, 0.0)
    assert lags.take() == (0.0, 0.0)
