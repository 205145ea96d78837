"""Free memory as the kernel and control groups tell it, on files written for the test."""

from pathlib import Path

import pytest

from hy3.memory import available, gib


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


MEMINFO = {"proc/meminfo": "MemTotal: 2000 kB\nMemAvailable:   1000 kB\n"}


def test_without_a_control_group_the_kernel_decides(tmp_path: Path) -> None:
    assert available(write(tmp_path, MEMINFO)) == 1000 * 1024


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/memory.max": "500000\n",
                "sys/fs/cgroup/a/memory.current": "400000\n",
                "sys/fs/cgroup/a/memory.stat": "anon 1\ninactive_file 50000\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
                "sys/fs/cgroup/a/b/memory.current": "1\n",
            },
            150_000,
        ),
        (
            {
                "proc/self/cgroup": "5:cpu,memory:/\n1:name=systemd:/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "300000\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "310000\n",
                "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 2\n",
            },
            0,
        ),
        (
            {
                "proc/self/cgroup": "5:memory:/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{(1 << 63) - 4096}\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "310000\n",
            },
            1000 * 1024,
        ),
    ],
    ids=["v2, limit on an ancestor", "v1, over its limit", "v1, no limit"],
)
def test_a_control_group_can_allow_less(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    assert available(write(tmp_path, MEMINFO | files)) == expected


def test_amounts_for_people() -> None:
    assert [gib(640 * 1024), gib(12.3 * (1 << 20)), gib(1.5 * (1 << 30))] == [
        "640 KiB",
        "12.3 MiB",
        "1.5 GiB",
    ]
