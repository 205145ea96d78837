"""How fast hy3 is beside llama.cpp on one GGUF.

    python eval/compare.py MODEL.gguf -p 64,512,2048 -n 32 -d 0,16384 --kv f16 --json OUT.json --plot OUT.png
    python eval/compare.py --table DIR            every row of the performance table; makes its slices in DIR
    python eval/compare.py --table DIR --report   the table of what was measured so far, and what it met

Both engines are kept alive in processes of their own and take turns, A B A B, each idle while the other
computes, with the same file, threads and KV type and no speculation. Of llama.cpp the fastest of its variants
counts: flash attention on and off, weights repacked at load or not; which one that is, is found out for each
workload beforehand. The file is read anew first, and each workload runs once uncounted. Beside each
workload stands what the machine could do in the same minute: the bandwidth of reading memory, and the rate of
int8 products.
"""

import argparse
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import hy3core
from eval.peer import PEER_PYTHON, Remote
from eval.speeds import Machine, Pairs, Report, plot_depths, write_json
from hy3.bench import Measurement, machine_span
from hy3.memory import available
from hy3.modelfile import ModelFile

MOST_BYTES = 10 << 30  # of a file: so that its pages and one repacked copy fit beside everything
PILOTS = 2  # rounds that choose llama.cpp's variant; the first is the warm-up
MARGIN = 1 << 30  # memory beyond file and copy that a repacking llama.cpp shall leave


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def read_anew(path: Path) -> None:
    """Brings the file's pages into memory, read anew: those that writing it left there may be smaller ones,
    with which both engines are slower.
    """
    with path.open("rb", buffering=0) as file:
        if hasattr(os, "posix_fadvise"):
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while file.read(16 << 20):
            pass


class Peers:
    """llama.cpp's variants, by (repacked, flash): a process for each kind of weights, with both contexts.

    `sequences`: how many have room for `ctx` tokens each.
    """

    def __init__(
        self,
        path: Path,
        threads: int,
        ctx: int,
        kv: str,
        python: str,
        stack: ExitStack,
        sequences: int = 1,
    ) -> None:
        self.flashes = (False, True) if kv == "f16" else (True,)  # it quantizes V with flash attention only
        self.remotes: dict[bool, Remote] = {}
        options = {"kv": kv, "python": python, "sequences": sequences}
        for repack in (False, True):
            if repack and not self.room_for_copy(path):
                continue
            try:
                remote = stack.enter_context(
                    Remote("Llama", str(path), threads, ctx, self.flashes[-1], repack, **options)
                )
                remote.prefill([0] * min(64, ctx))  # a single row might not meet the repacked kernels
                self.remotes[repack] = remote
            except RuntimeError as error:
                if not repack:
                    raise
                # Built for AMX on a machine that announces it but does not grant it, it dies of its first
                # such instruction.
                say(f"llama.cpp with repacked weights: {error}; going on without")

    @staticmethod
    def room_for_copy(path: Path) -> bool:
        free = available()
        if free is None or free >= 2 * path.stat().st_size + MARGIN:
            return True
        say(f"{free / 2**30:.1f} GiB are free, too little for llama.cpp to repack a copy; going on without")
        return False

    def variants(self) -> list[tuple[bool, bool]]:
        return [(repack, flash) for repack in self.remotes for flash in self.flashes]

    def get(self, variant: tuple[bool, bool]) -> Remote:
        repack, flash = variant
        self.remotes[repack].use(flash)
        return self.remotes[repack]

    def fill(self, tokens: list[int]) -> None:
        """Leaves exactly these in all contexts. One process computes them, which takes minutes; the other
        gets its state, which does not depend on how weights are packed.
        """
        first, *others = self.remotes
        for flash in self.flashes:
            self.get((first, flash)).fill(tokens)
            if not others or not tokens:
                continue
            with tempfile.TemporaryDirectory() as directory:
                path = str(Path(directory) / "state")
                self.get((first, flash)).save(path)
                for other in others:
                    self.get((other, flash)).restore(path, len(tokens))

    def keep(self, repack: bool) -> None:
        """Ends the process with the other kind of weights."""
        for other in [kind for kind in self.remotes if kind != repack]:
            self.remotes.pop(other).close()


def describe(variant: tuple[bool, bool]) -> str:
    repack, flash = variant
    return f"flash attention {'on' if flash else 'off'}, {'' if repack else 'not '}repacked"


class Comparison:
    """Both engines on one file."""

    def __init__(
        self, path: Path, hy3: Remote, peers: Peers, ctx: int, threads: int, kv: str, pairs: int
    ) -> None:
        self.path, self.hy3, self.peers, self.ctx = path, hy3, peers, ctx
        self.threads, self.kv, self.rounds = threads, kv, pairs
        self.file = ModelFile(hy3core.GGUF(path))
        self.text: list[int] = np.random.default_rng(0).integers(0, hy3.vocab_size(), ctx).tolist()

    def machine(self) -> Machine:
        span = machine_span(self.path.stat().st_size)
        return Machine(*self.hy3.machine(self.threads, span), span=span)

    def measurement(self, what: str, tokens: int, depth: int, seconds: list[float]) -> Measurement:
        return Measurement(
            what=what,
            tokens=tokens,
            depth=depth,
            experts=self.file.shapes.experts_used,
            seconds=tuple(seconds),
            token_bytes=self.file.token_bytes(depth + tokens // 2, self.kv),
            token_ops=self.file.token_ops(),
        )

    def private_bytes(self) -> int:
        """Of hy3's process after a chunk of 512 tokens, beyond the mapped file and their KV cache."""
        n = min(512, self.ctx)
        self.hy3.prefill(self.text[:n])
        return int(self.hy3.private_bytes()) - (self.file.kv_bytes(n, self.kv) or 0)

    def compare(self, what: str, tokens: list[int], depth: int, variants: list[tuple[bool, bool]]) -> Pairs:
        pilots: dict[tuple[bool, bool], float] = {}
        for variant in variants:
            remote = self.peers.get(variant)
            pilots[variant] = min(remote.call(what, tokens) for _ in range(PILOTS))
        best = min(pilots, key=lambda variant: pilots[variant])
        self.hy3.call(what, tokens)
        machine = self.machine()
        remote = self.peers.get(best)
        ours, theirs = [], []
        for _ in range(self.rounds):
            ours.append(self.hy3.call(what, tokens))
            theirs.append(remote.call(what, tokens))
        pairs = Pairs(
            hy3=self.measurement(what, len(tokens), depth, ours),
            llama=self.measurement(what, len(tokens), depth, theirs),
            llama_variant=describe(best),
            machine=machine,
        )
        print(pairs, flush=True)
        return pairs

    def prefills(self, sizes: list[int]) -> Iterator[Pairs]:
        for size in sizes:
            yield self.compare("prefill", self.text[:size], 0, self.peers.variants())

    def decodes(self, n: int, depths: list[int]) -> Iterator[Pairs]:
        """At rising depths. Filling a context is slow: beyond the first depth only the kind of weights that
        was faster there goes on.
        """
        for depth in sorted(depths):
            self.peers.fill(self.text[:depth])
            self.hy3.fill(self.text[:depth])
            pairs = self.compare("decode", self.text[:n], depth, self.peers.variants())
            yield pairs
            self.peers.keep(not pairs.llama_variant.endswith("not repacked"))


@contextmanager
def comparison(path: Path, ctx: int, threads: int, kv: str, pairs: int, python: str) -> Iterator[Comparison]:
    if path.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{path} is larger than 10 GiB. Cut it in depth, so that copies of it fit as well.")
    read_anew(path)
    with ExitStack() as stack:
        hy3 = stack.enter_context(Remote("Hy3", str(path), threads, ctx, kv=kv))
        peers = Peers(path, threads, ctx, kv, python, stack)
        yield Comparison(path, hy3, peers, ctx, threads, kv, pairs)


def measure(
    path: Path, prompts: list[int], n: int, depths: list[int], threads: int, kv: str, pairs: int, python: str
) -> Report:
    """Prefill of each length from an empty context, and n decoded tokens at each depth."""
    ctx = max([*prompts, *(depth + n for depth in depths)]) + 1
    with comparison(path, ctx, threads, kv, pairs, python) as engines:
        private = engines.private_bytes()
        found = list(engines.prefills(prompts))
        if depths:
            found += engines.decodes(n, depths)
    return Report(
        path.name, path.stat().st_size, threads, kv, str(hy3core.build_info()["isa"]), found, private
    )


def numbers(text: str) -> list[int]:
    """Of "64,512": whole numbers; an empty text is none."""
    values = [int(word) for word in text.split(",") if word.strip()]
    if any(value < 0 for value in values):
        raise argparse.ArgumentTypeError("Give whole numbers, 0 or more")
    return values


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare the speed of hy3 and llama.cpp on one GGUF.")
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--table", type=Path, metavar="DIR", help="make and compare every slice of the table")
    parser.add_argument("--only", default="", help="of the table: the slices with this in their name")
    parser.add_argument("--report", action="store_true", help="of the table: measure nothing more")
    parser.add_argument("-p", "--prompts", type=numbers, default=[64, 512, 2048], metavar="N,...")
    parser.add_argument("-n", "--decode", type=int, default=32, metavar="N", help="steps (default 32)")
    parser.add_argument("-d", "--depths", type=numbers, default=[0], metavar="N,...", help="to decode at")
    parser.add_argument("--kv", choices=["f16", "q8"], default="f16")
    parser.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--pairs", type=int, default=5, help="rounds of both engines (default 5)")
    parser.add_argument("--peer-python", default=PEER_PYTHON, help="interpreter that has llama-cpp-python")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    parser.add_argument("--plot", type=Path, help="draw the decoding speed over the depth (needs matplotlib)")
    arguments = parser.parse_args()
    if (arguments.model is None) == (arguments.table is None):
        parser.error("Give a model, or --table and a directory.")
    if arguments.report and arguments.table is None:
        parser.error("--report goes with --table.")
    if arguments.pairs < 1 or arguments.decode < 1 or arguments.threads < 1:
        parser.error("--pairs, -n and -t are 1 or more.")
    if 0 in arguments.prompts:
        parser.error("A prompt has 1 token or more.")
    return arguments


def main() -> None:
    args = read_arguments()
    if args.table:
        from eval.table import run_table, show_table

        if args.report:
            show_table(args.table, args.only)
        else:
            run_table(args.table, args.only, args.threads, args.pairs, args.peer_python)
        return
    if args.plot and importlib.util.find_spec("matplotlib") is None:
        sys.exit("matplotlib is not installed. Install it (pip install 'hy3[eval]'), or leave out --plot.")
    report = measure(
        args.model,
        args.prompts,
        args.decode,
        args.depths,
        args.threads,
        args.kv,
        args.pairs,
        args.peer_python,
    )
    print(f"hy3: {report.private_bytes / 2**20:.0f} MiB of private memory beyond file and KV cache")
    if args.json:
        write_json(args.json, report.to_json())
    if args.plot:
        plot_depths(args.plot, report.pairs, f"{report.model}, {report.threads} threads, {report.kv} KV")


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as error:  # of an engine; hy3core's own are none of these
        sys.exit(f"compare: {error}")
