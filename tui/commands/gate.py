"""`kernelwright gate A B`: incumbent engine against a kernel pack, or one running server against another."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.profiles.errors import EnvironmentLacks, WrongUse

if TYPE_CHECKING:
    from kernelwright.engine.client import EngineClient
    from kernelwright.engine.gate_fidelity import PhaseFidelity
    from kernelwright.engine.gate_speed import EngineComparison


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", help="model (GGUF file or Hugging Face folder), or URL of the server that is trusted")
    parser.add_argument("b", help="kernel pack, e.g. SESSION/pack, or URL of the server to be judged")
    parser.add_argument(
        "--seconds", type=float, default=600.0,
        help="time to spend; more pairs and each kernel switched off in turn, as far as it goes (default 600)",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--cage", choices=("bubblewrap", "docker", "process"), default="bubblewrap")
    parser.add_argument("--out", type=Path, help="folder for gate.json and gate.html")
    parser.add_argument("--api-key", help="bearer key of both servers (better: environment OPENAI_API_KEY)")
    parser.add_argument(
        "--precision",
        choices=("fp32", "half"),
        help="whose limits apply to two servers (default: fp32 for two of ours, else half)",
    )
    parser.add_argument("--no-speed", action="store_true", help="two servers: compare what they say alone")
    parser.add_argument("--tokens", type=int, default=16384, help="two servers: tokens of prefill (default 16384)")


def run(args: argparse.Namespace) -> int:
    """Return 0 when it passes, 1 when it does not."""
    urls = [text.startswith(("http://", "https://")) for text in (args.a, args.b)]
    if any(urls) and not all(urls):
        raise WrongUse("a server is compared with a server", "Give two URLs, or a model and a kernel pack.")
    return _gate_servers(args) if all(urls) else _gate_pack(args)


def _gate_pack(args: argparse.Namespace) -> int:
    from kernelwright.engine.gate import run_gate

    with tempfile.TemporaryDirectory(prefix="kernelwright-gate-") as folder:
        result = run_gate(
            Path(args.a),
            Path(args.b),
            session_dir=args.out or Path(folder),
            budget_s=args.seconds,
            threads=args.threads,
            cage=args.cage,
            on_progress=_tell(),
        )
    if args.json:
        print(result.model_dump_json())
        return 0 if result.passed else 1
    _print_speed(result.decode, result.prefill)
    _print_fidelity(result.fidelity)
    before, after = (size / 1e6 for size in result.resident_bytes)
    print(f"{'memory':<14} {before:.0f} → {after:.0f} MB resident ({after / before - 1:+.1%})")
    print("; ".join([result.state, *result.reasons]))
    return 0 if result.passed else 1


def _gate_servers(args: argparse.Namespace) -> int:
    from contextlib import ExitStack

    from kernelwright.engine.bench import Target
    from kernelwright.engine.client import EngineClient
    from kernelwright.engine.gate_endpoints import gate_endpoints

    if args.tokens < 1:
        raise WrongUse("--tokens must be above 0", "Give it a positive number.")
    key = args.api_key or os.environ.get("OPENAI_API_KEY")
    with ExitStack() as stack:
        arms, ours = [], True
        for text in (args.a, args.b):
            url = text.rstrip("/").removesuffix("/v1")
            client = stack.enter_context(EngineClient(url, api_key=key, timeout_s=300.0))
            ours = ours and _card(client, url).get("owned_by") == "kernelwright"
            fields = {"temperature": 0, "ignore_eos": True}
            arms.append((url, client, Target(url, client.model, api_key=key, fields=fields)))
        result = gate_endpoints(
            arms[0], arms[1], precision=args.precision or ("fp32" if ours else "half"), speed=not args.no_speed,
            prefill_tokens=args.tokens, on_progress=lambda text: print(text, file=sys.stderr, flush=True),
        )  # fmt: skip
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "gate.json").write_text(result.model_dump_json(indent=2) + "\n")
    if args.json:
        print(result.model_dump_json())
    else:
        _print_speed(*(speed for speed in (result.decode, result.prefill) if speed))
        _print_fidelity(result.fidelity, f"at least, from the {result.shown} likeliest tokens")
        print("; ".join([result.state, *result.reasons]))
    return 0 if result.state == "pass" else 1


def _card(client: EngineClient, url: str) -> dict[str, Any]:
    """Return the entry of the server's model; a server that is not there is no answer to the question."""
    from kernelwright.engine.client import EngineFailed

    try:
        return client.card()
    except EngineFailed as error:
        raise EnvironmentLacks(f"{url}: {error}", "Start the server, or mend its URL or key.") from error


def _print_speed(*compared: EngineComparison) -> None:
    for measured in compared:
        print(
            f"{measured.kind:<14} {measured.incumbent_tok_s:.1f} → {measured.patched_tok_s:.1f} tok/s, "
            f"{measured.ratio:.2f}x [{measured.low:.2f}, {measured.high:.2f}], n={measured.n}, over HTTP"
        )


def _print_fidelity(phases: Sequence[PhaseFidelity], note: str = "") -> None:
    for phase in phases:
        null = f"null {phase.null_kld:.1e}" + (f", {note}" if note else "")
        print(
            f"{phase.phase:<14} mean KLD {phase.mean_kld:.1e} ({null}), top-1 {100 * phase.top1:.3f} %, "
            f"draws {100 * phase.synchronised_draws:.2f} % of {phase.tokens} tokens"
        )


def _tell() -> Callable[[int, int, str], None]:
    last = ""

    def tell(done: int, total: int, text: str) -> None:
        nonlocal last
        if text != last:
            last = text
            print(text, file=sys.stderr, flush=True)

    return tell
