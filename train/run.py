"""Trains hy3-tiny: from a seed to a checkpoint directory, in under two hours on two cores.

    python -m train.run --out DIR            # starts
    python -m train.run --out DIR --resume   # goes on from DIR/state.pt

DIR gets state.pt (weights, optimizer and step, replaced atomically every few minutes), log.jsonl (losses,
speed and held-out exactness) and, at the end, checkpoint/ in the hub layout.

Two processes of one thread each halve a step and add their gradients: on cores that other programs use too,
threads that meet in every product lose far more time waiting for each other than processes that meet once a
step.
"""

import argparse
import json
import math
import os
import time
from pathlib import Path

# Read by the libraries when they load: compiled kernels of all the shapes that occur are kept, and so is
# freed memory (mapping it anew costs a fifth of a step).
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16384")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(32 << 20))
os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", str(8 << 30))

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from train import tokenizer
from train.batches import make_batch
from train.chat import Chat
from train.evaluate import scores
from train.export import build, export
from train.model import HY3Tiny, Step, balance

STEPS = 3300
WORKERS = 2
TOKENS = 2048  # a worker and step, before packing
WARMUP = 100
PEAK_RATE = 1.5e-3
FLOOR = 0.03  # of the peak, where the cosine ends
MTP_WEIGHT = 0.3
BIAS_RATE = 1e-3


def rate(step: int, steps: int) -> float:
    if step < WARMUP:
        return PEAK_RATE * (step + 1) / WARMUP
    cosine = 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (steps - WARMUP)))
    return PEAK_RATE * (FLOOR + (1 - FLOOR) * cosine)


def make_optimizer(model: HY3Tiny) -> torch.optim.AdamW:
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.95), eps=1e-8, fused=True)


def save_state(path: Path, model: HY3Tiny, optimizer: torch.optim.Optimizer, step: int) -> None:
    aside = path.with_suffix(".tmp")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, aside)
    os.replace(aside, path)


def sum_over_workers(tensors: list[torch.Tensor]) -> None:
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(flat)
    for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
        tensor.copy_(part.view_as(tensor))


def work(rank: int, args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{args.out.resolve()}/meeting", rank=rank, world_size=WORKERS)
    state = args.out / "state.pt"
    tok = tokenizer.train(args.seed)
    chat = Chat(tok)
    model = build(tok, args.seed)
    optimizer = make_optimizer(model)
    start = 0
    if args.resume and state.exists():
        saved = torch.load(state, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        start = saved["step"]

    def log(**record: object) -> None:
        if rank == 0:
            line = json.dumps({"time": round(time.time()), **record})
            print(line, flush=True)
            with (args.out / "log.jsonl").open("a") as file:
                file.write(line + "\n")

    parameters = list(model.parameters())
    log(event="start", step=start, steps=args.steps, parameters=sum(p.numel() for p in parameters))
    near_sum = far_sum = tokens = 0.0
    since = time.time()
    last = args.stop_at or args.steps
    for step in range(start, last):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, args.steps)
        batch = make_batch(chat, f"{args.seed}/{step}/{rank}", step / args.steps, args.tokens)
        computation = Step(model, batch)
        near, far = computation.losses()
        ((near.mean() + MTP_WEIGHT * far.mean()) / WORKERS).backward()
        loads = [load.float() for load in computation.loads]
        sum_over_workers([p.grad for p in parameters if p.grad is not None] + loads)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        balance(model, loads, BIAS_RATE * rate(step, args.steps) / PEAK_RATE)
        near_sum, far_sum, tokens = (
            near_sum + near.mean().item(),
            far_sum + far.mean().item(),
            tokens + len(batch.ids),
        )
        done = step + 1
        if done % 20 == 0:
            fullest = [round(float(load.max() / load.mean()), 2) for load in loads]
            seconds = time.time() - since
            log(
                step=done,
                loss=round(near_sum / 20, 4),
                mtp=round(far_sum / 20, 4),
                tok_s=round(WORKERS * tokens / seconds),
                seconds=round(seconds, 1),
                fullest=fullest,
            )
            near_sum = far_sum = tokens = 0.0
            since = time.time()
        if rank == 0 and (done % args.save_every == 0 or done == last):
            save_state(state, model, optimizer, done)
        if args.eval_every and (done % args.eval_every == 0 or done == args.steps):
            if rank == 0:
                log(step=done, scores={k: [round(x, 3) for x in v] for k, v in scores(model, chat).items()})
            since = time.time()
    if rank == 0 and last == args.steps:
        export(model, tok, args.out / "checkpoint")
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--steps", type=int, default=STEPS, help="length of the schedule")
    parser.add_argument("--stop-at", type=int, help="pause after this step, to go on with --resume")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="a worker and step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--eval-every", type=int, default=200, help="score after so many steps; 0: never")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "meeting").unlink(missing_ok=True)
    spawn(work, (args,), WORKERS)


if __name__ == "__main__":
    main()
