"""How much memory a program may still take on this machine, without pushing others out or being killed."""

import os
from pathlib import Path

GIB = 1 << 30


def available(root: Path = Path("/")) -> int | None:
    """Bytes: what the kernel says is free or can be made so, or less where a control group (a container)
    allows less.

    None where the system does not tell. Pages of a mapped model file count as free: the kernel can drop them.
    `root` is where /proc and /sys are looked for.
    """
    amounts = [amount for amount in (system_available(root), cgroup_available(root)) if amount is not None]
    return min(amounts, default=None)


def system_available(root: Path) -> int | None:
    for line in lines(root / "proc/meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):  # macOS has no such name
        return None


def cgroup_available(root: Path) -> int | None:
    """The tightest of the limits of this process's control group and its ancestors, v2 or v1."""
    amounts = []
    for line in lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers:
            base, limit, used, cache = root / "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            limit, used, cache = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        group = base / path.strip("/")
        for folder in [group, *group.parents]:
            if not folder.is_relative_to(base):
                break
            most, taken = number(folder / limit), number(folder / used)
            if (
                most is not None and taken is not None and most < 1 << 60
            ):  # v1 writes "no limit" as nearly 2^63
                amounts.append(max(0, most - taken + statistic(folder / "memory.stat", cache)))
    return min(amounts, default=None)


def lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def number(path: Path) -> int | None:
    text = "".join(lines(path))
    return int(text) if text.isdigit() else None


def statistic(path: Path, name: str) -> int:
    for line in lines(path):
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


def gib(amount: float) -> str:
    """A number of bytes for people: `1.5 GiB`, `12.3 MiB`, `640 KiB`."""
    if amount >= GIB:
        return f"{amount / GIB:.1f} GiB"
    if amount >= 1 << 20:
        return f"{amount / (1 << 20):.1f} MiB"
    return f"{amount / 1024:.0f} KiB"
