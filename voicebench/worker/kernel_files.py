"""What the kernel writes of a process and its machine, as numbers. Pure: text in, values or None out."""

from __future__ import annotations

from dataclasses import dataclass

USER_TO_STEAL = 8
"""The first columns of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal. Guests are in user too."""
THREAD_SCHEDSTAT = "proc/self/task/{thread}/schedstat"
STAT = "proc/stat"
CGROUP = "proc/self/cgroup"
CGROUPS = "sys/fs/cgroup"


@dataclass(frozen=True, slots=True)
class ThreadTimes:
    """Of one thread since it began: on a CPU, and ready to run while others had it."""

    cpu_s: float
    waited_s: float


@dataclass(frozen=True, slots=True)
class MachineTimes:
    """Of all CPUs since the machine started, in the kernel's ticks; `stolen` by the host for other machines."""

    stolen: int
    total: int


def thread_times(schedstat: str) -> ThreadTimes | None:
    """`/proc/PID/task/TID/schedstat`.

    >>> thread_times("167768000 78447000 2")
    ThreadTimes(cpu_s=0.167768, waited_s=0.078447)
    """
    numbers = _numbers(schedstat.split())
    return ThreadTimes(numbers[0] / 1e9, numbers[1] / 1e9) if numbers is not None and len(numbers) == 3 else None


def machine_times(stat: str) -> MachineTimes | None:
    """The first line of `/proc/stat`. Some containers have it with zeros alone, which say nothing."""
    label, *columns = stat.partition("\n")[0].split() or [""]
    numbers = _numbers(columns[:USER_TO_STEAL])
    if label != "cpu" or numbers is None or len(numbers) < USER_TO_STEAL or not any(numbers):
        return None
    return MachineTimes(numbers[-1], sum(numbers))


def throttled_ms(cpu_stat: str) -> float | None:
    """How long a group's threads, added up, were kept off the CPU by its limit: `cpu.stat` of cgroups 1 and 2.

    A group that can have no limit (the root) has no such line.

    >>> throttled_ms("usage_usec 5\\nnr_throttled 2\\nthrottled_usec 1500\\n"), throttled_ms("throttled_time 2000000")
    (1.5, 2.0)
    """
    for line in cpu_stat.splitlines():
        name, _, value = line.partition(" ")
        scale = {"throttled_usec": 1e-3, "throttled_time": 1e-6}.get(name)
        if scale is not None:
            numbers = _numbers([value.strip()])
            return None if numbers is None else scale * numbers[0]
    return None


def cpu_stat_paths(cgroup: str) -> list[str]:
    """Where `cpu.stat` of a process may be, likeliest first, from its `/proc/self/cgroup`; relative to the root folder.

    A container may see its own group as the root of what is mounted there, under whatever path the host has it.
    """
    found: list[str] = []
    for line in cgroup.splitlines():
        number, _, rest = line.partition(":")
        controllers, separator, path = rest.partition(":")
        if not separator or not path.startswith("/") or ".." in path.split("/"):
            continue
        if number == "0" and not controllers:
            mounts = [CGROUPS, f"{CGROUPS}/unified"]
        elif "cpu" in controllers.split(","):
            mounts = [f"{CGROUPS}/{controllers}", f"{CGROUPS}/cpu"]
        else:
            continue
        found += [f"{mount}{folder.rstrip('/')}/cpu.stat" for folder in (path, "/") for mount in mounts]
    return list(dict.fromkeys(found))


def _numbers(words: list[str]) -> list[int] | None:
    """None unless all are counts. The kernel writes ASCII digits and no others."""
    return [int(word) for word in words] if all(word.isascii() and word.isdigit() for word in words) else None
