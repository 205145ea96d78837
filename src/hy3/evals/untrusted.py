"""Runs code that a model wrote against tests, in a process of its own with little time, memory and reach.

This file is run by path as that process (`python -I untrusted.py`), so it imports the standard library only.
Protocol: one line of JSON in, {"code", "tests", "token", "seconds"}; if all tests pass, the token is the last
line out.
What holds the code: an empty directory; limits on CPU time, memory and files; no network (a name space of its
own where the system lets us, and an audit hook that refuses sockets, processes, foreign functions and files
outside). That stops mistakes and the usual mischief; it is no wall against an attacker.
"""

import json
import os
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

MEMORY = 512 << 20
FILE = 1 << 20
REFUSED = (
    *("socket.", "subprocess.", "ctypes.", "os.exec", "os.fork", "os.posix_spawn", "os.system", "os.kill"),
    *("os.chmod", "os.chown", "os.putenv", "pty.", "signal.pthread_kill", "shutil.", "webbrowser."),
)
CHANGING = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.listdir")
NEW_NETWORK, NEW_USER = 0x40000000, 0x10000000


def limit(seconds: float) -> None:
    for kind, most in (
        (resource.RLIMIT_CPU, int(seconds) + 1),
        (resource.RLIMIT_FSIZE, FILE),
        (resource.RLIMIT_NOFILE, 32),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, MEMORY),
    ):
        with suppress(ValueError, OSError):  # macOS has no RLIMIT_AS
            resource.setrlimit(kind, (most, most))


def leave_the_network() -> None:
    """Into a network name space without interfaces. Not every system lets its users do that; the audit hook
    holds all the same."""
    with suppress(Exception):
        import ctypes

        ctypes.CDLL(None).unshare(NEW_USER | NEW_NETWORK)


def guard(here: str) -> Callable[[str, tuple[Any, ...]], None]:
    readable = tuple({here, *(os.path.realpath(p) for p in (sys.prefix, sys.base_prefix, *sys.path) if p)})
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT

    def inside(path: Any, places: tuple[str, ...]) -> bool:
        if not isinstance(path, (str, bytes)):
            return isinstance(path, int)  # a descriptor that is open already
        real = os.path.realpath(os.fsdecode(path))
        return any(real == place or real.startswith(place + os.sep) for place in places)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event.startswith(REFUSED):
            raise PermissionError(f"{event} is not allowed here")
        if event == "open":
            writes = isinstance(args[2], int) and args[2] & writing
            if not inside(args[0], (here,) if writes else readable):
                raise PermissionError(f"{args[0]!r} lies outside")
        paths = [path for path in args if isinstance(path, (str, bytes))]
        if event in CHANGING and not all(inside(path, (here,)) for path in paths):
            raise PermissionError(f"{event} outside")

    return hook


def main() -> None:
    request = json.loads(sys.stdin.readline())
    out = os.dup(1)
    os.dup2(2, 1)  # what the code prints is not the verdict
    leave_the_network()
    limit(request["seconds"])
    sys.addaudithook(guard(os.getcwd()))
    space: dict[str, Any] = {"__name__": "answer"}
    exec(compile(request["code"], "answer", "exec"), space)
    exec(compile(request["tests"], "tests", "exec"), space)
    os.write(out, request["token"].encode() + b"\n")
    os._exit(0)  # threads and exit handlers of the code have no say


if __name__ == "__main__":
    main()
