"""`kernelwright serve`: the embedded engine behind an OpenAI-compatible HTTP front end."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.profiles.errors import WrongUse

if TYPE_CHECKING:
    from kernelwright.engine.server import ServeOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", type=Path, help="GGUF file or Hugging Face folder (default: SmolLM2-135M-Instruct)")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--uds", type=Path, help="serve on this unix socket instead of TCP")
    parser.add_argument("--pack", type=Path, action="append", default=[], help="kernel pack to switch on (repeatable)")
    parser.add_argument("--no-packs", action="store_true", help="run the incumbents only")
    parser.add_argument("--disable", action="append", default=[], metavar="DEFINITION", help="switch one kernel off")
    parser.add_argument("--threads", type=int, help="threads of the engine (default: cores)")
    parser.add_argument("--max-num-seqs", type=int, default=16, help="sequences decoded together")
    parser.add_argument("--max-model-len", type=int, help="context length (default: the model's)")
    parser.add_argument(
        "--guard", choices=("observe", "stop", "retry"), default="observe",
        help="what to do about a generation that collapses: count it, also end it, or have the incumbents decode it "
        "again first (default: observe)",
    )  # fmt: skip
    parser.add_argument(
        "--guard-repeats", type=int, default=7, help="a token drawn more often in a row is a collapse (default: 7)"
    )
    parser.add_argument(
        "--shadow", type=float, metavar="RATE",
        help="share of kernel calls that the reference computes, too; 0 switches it off (default: 0.0002)",
    )  # fmt: skip
    parser.add_argument("--request-timeout", type=float, metavar="SECONDS", help="give an answer up after so long")
    parser.add_argument("--kv-pages", type=int, metavar="N", help="pages of the KV cache, 16 tokens each")
    parser.add_argument("--no-prefix-cache", action="store_true", help="compute every prompt anew")
    parser.add_argument("--profile-dir", type=Path, help="where /start_profile writes traces")
    parser.add_argument("--served-model-name", help="name in /v1/models")
    parser.add_argument("--api-key", help="require this bearer key (better: environment KERNELWRIGHT_API_KEY)")


def run(args: argparse.Namespace) -> int:
    from kernelwright.engine.server import serve

    return serve(_options(args))


def _options(args: argparse.Namespace) -> ServeOptions:
    """Return the options given. Raises WrongUse with the one that is out of range, before a model is looked for."""
    import os

    from pydantic import ValidationError

    from kernelwright.engine.server import ServeOptions
    from kernelwright.engine.weights import find_default_model

    options = dict(
        model=args.model,
        host=args.host,
        port=args.port,
        uds=args.uds,
        packs=tuple(args.pack),
        no_packs=args.no_packs,
        disable=tuple(args.disable),
        threads=args.threads,
        max_num_seqs=args.max_num_seqs,
        max_model_len=args.max_model_len,
        request_timeout_s=args.request_timeout,
        prefix_cache=not args.no_prefix_cache,
        guard_repeats=args.guard_repeats,
        guard_action=args.guard,
        num_pages=args.kv_pages,
        profile_dir=args.profile_dir,
        served_name=args.served_model_name,
        api_key=args.api_key or os.environ.get("KERNELWRIGHT_API_KEY"),
    )
    if args.shadow is not None:
        options["shadow"] = args.shadow
    try:
        checked = ServeOptions.model_validate(options)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise WrongUse(f"{first['loc'][0]}: {first['msg']}", "See kernelwright serve --help") from error
    return checked if args.model else checked.model_copy(update={"model": find_default_model()})
