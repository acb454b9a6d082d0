"""Throughput at N concurrent requests with and without a kernel pack, over HTTP: python benchmarks/serving.py PACK

Both servers are started as `serve` starts them; the idle one is stopped (SIGSTOP) while the other is loaded. Closed
loop of random prompts, each asked once of each server, ABBA by rounds. Prints a line a round, then one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
from contextlib import ExitStack
from pathlib import Path

from kernelwright.engine.bench import Target, load
from kernelwright.engine.bench_plan import Arrivals, Ask, draw_asks
from kernelwright.engine.client import ServerProcess
from kernelwright.engine.server import ServeOptions
from kernelwright.engine.weights import find_default_model
from kernelwright.sandbox.stats import Launch, bootstrap
from kernelwright.sandbox.timing import timing_lock


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--requests", type=int, default=16, help="of one turn")
    parser.add_argument("--input-len", type=int, default=64)
    parser.add_argument("--output-len", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3, help="ABBA rounds: two pairs each")
    args = parser.parse_args()
    model = args.model or find_default_model()
    threads = len(os.sched_getaffinity(0))
    with ExitStack() as stack:
        servers = [
            stack.enter_context(ServerProcess.start(ServeOptions(model=model, port=0, threads=threads, packs=packs)))
            for packs in ((), (args.pack,))
        ]
        for server in servers:
            server.wait_until_healthy()
        with timing_lock():
            print(json.dumps(compare(servers, args)))


def compare(servers: list[ServerProcess], args: argparse.Namespace) -> dict[str, object]:
    """Return output tokens a second of both servers and the ratio with its interval."""
    rates: tuple[list[float], list[float]] = ([], [])
    launches = []
    for server in servers:
        turn(servers, server, draw_asks(args.concurrency, 16, 4, 0.0, 40_000, 0), args.concurrency)
    for number in range(args.rounds):
        pairs: list[dict[int, float]] = []
        first = random.randrange(2)
        for order in ((first, 1 - first), (1 - first, first)):
            asks = draw_asks(args.requests, args.input_len, args.output_len, 0.25, 40_000, random.randrange(2**31))
            pairs.append({which: turn(servers, servers[which], asks, args.concurrency) for which in order})
        for pair in pairs:
            rates[0].append(pair[0])
            rates[1].append(pair[1])
        launches.append(Launch(tuple(1 / pair[0] for pair in pairs), tuple(1 / pair[1] for pair in pairs)))
        print(f"round {number + 1}: " + ", ".join(f"{pair[0]:.1f} → {pair[1]:.1f}" for pair in pairs), flush=True)
    found = bootstrap(launches)
    return {
        "concurrency": args.concurrency, "requests": args.requests, "input_len": args.input_len,
        "output_len": args.output_len, "incumbent_tok_s": sorted(rates[0])[len(rates[0]) // 2],
        "patched_tok_s": sorted(rates[1])[len(rates[1]) // 2], "ratio": found.ratio, "low": found.low,
        "high": found.high, "n": found.n,
    }  # fmt: skip


def turn(servers: list[ServerProcess], server: ServerProcess, asks: tuple[Ask, ...], concurrency: int) -> float:
    """Return output tokens a second of one server under load, the other one stopped."""
    for other in servers:
        signal_all(other, signal.SIGCONT if other is server else signal.SIGSTOP)
    with server.client() as client:
        name = client.model
    fields = {"temperature": 0, "ignore_eos": True}
    target = Target("http://engine", name, uds=server.options.uds, fields=fields)
    outcomes, seconds = asyncio.run(load(target, asks, Arrivals(concurrency=concurrency), 0, lambda outcome: None))
    for other in servers:
        signal_all(other, signal.SIGCONT)
    failed = [outcome.error for outcome in outcomes if outcome.error]
    if failed:
        raise SystemExit(f"{len(failed)} requests failed: {failed[0]}")
    return sum(outcome.output_tokens for outcome in outcomes) / seconds


def signal_all(server: ServerProcess, number: signal.Signals) -> None:
    from kernelwright.sandbox.cage import descendants

    for pid in {server.process.pid, *descendants(server.process.pid)}:
        os.kill(pid, number)


if __name__ == "__main__":
    main()
