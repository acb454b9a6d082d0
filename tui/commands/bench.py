"""`kernelwright bench URL`: load a server and say how soon and how fast it answers.

Closed loop (--concurrency), open loop (--rate) or a recorded log again (--dataset FILE --replay). Field names of the
result are those of vLLM's `bench serve`. Exit code 1 where a request failed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.profiles.errors import WrongUse

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelwright.engine.bench_plan import Ask
    from kernelwright.engine.bench_result import Outcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", help="an OpenAI-compatible server, e.g. http://localhost:8000")
    parser.add_argument("--concurrency", type=int, help="requests under way at most (default: 8; with --rate no limit)")
    parser.add_argument("--rate", type=float, help="requests a second, at random times (open loop)")
    parser.add_argument("--burstiness", type=float, default=1.0, help="1: Poisson; less: in bursts; more: regular")
    parser.add_argument("--requests", type=int, help="how many (default: 64, or all of the dataset)")
    parser.add_argument("--input-len", type=int, default=128, help="random tokens of a prompt (default: 128)")
    parser.add_argument("--output-len", type=int, default=64, help="tokens of an answer (default: 64)")
    parser.add_argument("--spread", type=float, default=0.0, help="lengths differ by up to this share (default: 0)")
    parser.add_argument("--dataset", type=Path, help="JSONL: prompt or messages, max_tokens, at (seconds)")
    parser.add_argument(
        "--replay", type=float, nargs="?", const=1.0, metavar="SPEED", help="send the dataset's requests at their times"
    )
    parser.add_argument(
        "--slo", action="append", default=[], metavar="METRIC:MS", help="ttft:200, tpot:50 or e2el:2000: for goodput"
    )
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument(
        "--seed", type=int,
        help="of prompts, lengths and times (default: a new one each time, which the result tells: "
        "prompts that a server has seen are in its cache)",
    )  # fmt: skip
    parser.add_argument("--warmup", type=int, default=2, help="requests before, which do not count (default: 2)")
    parser.add_argument("--api-key", help="bearer key (better: environment OPENAI_API_KEY)")
    parser.add_argument("--detailed", action="store_true", help="also lists with an entry for each request")
    parser.add_argument("--out", type=Path, help="write the result here as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the result; return 1 when a request failed."""
    import asyncio
    import secrets

    from kernelwright.engine.bench import Target, load
    from kernelwright.engine.bench_plan import Arrivals, Ask
    from kernelwright.engine.bench_result import parse_slo, summarise
    from kernelwright.engine.client import EngineClient
    from kernelwright.tui.commands.traces import check_writable, write_report

    check_writable(args.out)
    if args.seed is None:
        args.seed = secrets.randbits(31)
    slo = dict(parse_slo(text) for text in args.slo)
    key = args.api_key or os.environ.get("OPENAI_API_KEY")
    url = args.url.rstrip("/").removesuffix("/v1")
    with EngineClient(url, api_key=key) as client:
        card = client.card()
    asks = _asks(args, int(card.get("vocab_size") or 32_000))
    arrivals = _arrivals(args)
    fields: dict[str, Any] = {"temperature": args.temperature}
    if args.dataset is None:
        fields["ignore_eos"] = True  # as many tokens as were asked for, whatever the model would have said
    target = Target(url, str(card["id"]), api_key=key, fields=fields)
    if args.warmup:
        warm = (Ask(prompt="Hello", max_tokens=8),) * args.warmup  # no prompt of the test: a cache would know it
        asyncio.run(load(target, warm, Arrivals(concurrency=1), args.seed, lambda _outcome: None))
    outcomes, seconds = asyncio.run(load(target, asks, arrivals, args.seed, _tell(len(asks))))
    facts = {
        "date": time.strftime("%Y%m%d-%H%M%S"), "backend": "openai", "model_id": target.model, "base_url": url,
        "request_rate": "inf" if args.rate is None else args.rate, "burstiness": args.burstiness,
        "max_concurrency": arrivals.concurrency, "seed": args.seed, "slo_ms": slo,
    }  # fmt: skip
    record = summarise(outcomes, seconds, slo, facts, args.detailed)
    if args.out:
        write_report(args.out, json.dumps(record, indent=1))
    if args.json:
        print(json.dumps(record))
    else:
        _print(record)
    return int(record["failed"] > 0)


def _asks(args: argparse.Namespace, vocab: int) -> tuple[Ask, ...]:
    from kernelwright.engine.bench_plan import draw_asks, read_asks

    if args.requests is not None and args.requests < 1:
        raise WrongUse("--requests must be above 0", "Give it a positive number.")
    if args.dataset is not None:
        return read_asks(args.dataset, args.requests)
    if args.replay is not None:
        raise WrongUse("--replay is for a recorded log", "Name it with --dataset FILE.")
    return draw_asks(args.requests or 64, args.input_len, args.output_len, args.spread, vocab, args.seed)


def _arrivals(args: argparse.Namespace) -> Any:
    from pydantic import ValidationError

    from kernelwright.engine.bench_plan import Arrivals

    if args.rate is not None and args.replay is not None:
        raise WrongUse("--rate and --replay both say when requests are sent", "Leave one of them out.")
    concurrency = args.concurrency or (8 if args.rate is None and args.replay is None else None)
    try:
        return Arrivals(concurrency=concurrency, rate=args.rate, burstiness=args.burstiness, replay_speed=args.replay)
    except ValidationError as error:
        first = error.errors()[0]
        raise WrongUse(f"{first['loc'][0]}: {first['msg']}", "Give it a positive number.") from error


def _tell(total: int) -> Callable[[Outcome], None]:
    """Return what shows progress on stderr: a line for each tenth, and for each of the first failures."""
    ended = failed = 0

    def tell(outcome: Outcome) -> None:
        nonlocal ended, failed
        ended += 1
        if outcome.error:
            failed += 1
            if failed <= 3:
                print(f"a request failed: {outcome.error}", file=sys.stderr, flush=True)
        if ended == total or ended % max(total // 10, 1) == 0:
            print(f"{ended} of {total} requests have ended", file=sys.stderr, flush=True)

    return tell


def _print(record: dict[str, Any]) -> None:
    from kernelwright.profiles.table import Table, print_table

    columns = ("mean", "median", "p90", "p99")
    rows = tuple(
        (label, *(_ms(record[f"{column}_{name}_ms"]) for column in columns))
        for name, label in (("ttft", "first token"), ("tpot", "per token"), ("itl", "gap"), ("e2el", "whole request"))
    )
    goodput = record["request_goodput"]
    good = f"; {goodput:.2f}/s within {record['slo_ms']} ms" if goodput is not None else ""
    notes = (
        f"{record['completed']} of {record['num_prompts']} requests in {record['duration']:.1f} s, "
        f"{record['max_concurrent_requests']} at once at most: {record['request_throughput']:.2f}/s{good}",
        f"{record['output_throughput']:.1f} tokens/s out, {record['total_token_throughput']:.1f} in and out",
    )
    print_table(Table(f"Load on {record['model_id']}", ("ms", *columns), rows, 1, notes))


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"
