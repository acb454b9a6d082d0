"""Assemble the object of `optimize --json` from the ledger; nothing in it comes from anywhere else."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from kernelwright.agent.assemble_gate import gate_sections
from kernelwright.agent.ledger import Attempt, Ledger
from kernelwright.kernels.candidate import Candidate
from kernelwright.sandbox.verdict import Verdict


def assemble_report(ledger: Ledger) -> dict[str, Any]:
    """Return the report object. Parts of steps that were not reached are None or empty, never invented."""
    result = {step.name: ledger.step_result(step.name) for step in ledger.steps()}
    gate, patch, profile = result.get("gate"), result.get("commit"), result.get("profile")
    attempts = ledger.attempts()
    measured = gate_sections(gate["result"]) if gate else {}
    return {
        "session": str(ledger.folder),
        "command": ledger.arguments.get("command", ""),
        "arguments": ledger.arguments,
        "model": profile["model"] if profile else None,
        "status": ledger.status,
        "machine": profile["machine"] if profile else None,
        "ceilings": profile["ceilings"] if profile else None,
        "profile": _profile(ledger, profile),
        "targets": _targets(result.get("rank")),
        "attempts": _counts(attempts),
        "attempt_log": [_attempt(a) for a in attempts],
        "accepted": _accepted(ledger, result, attempts, measured.get("hits", {})),
        "left_out": (result.get("compose") or {}).get("left_out", {}),
        "selftest": result.get("selftest"),
        "incumbent": result.get("incumbent"),
        "gate": measured.get("gate") or _no_gate(result.get("compose")),
        "engine": {**measured["engine"], "compiled": result.get("control")} if gate else None,
        "fidelity": measured.get("fidelity"),
        "kl_histogram": measured.get("kl_histogram"),
        "memory": measured.get("memory"),
        "bytes_per_token": (result.get("compose") or {}).get("bytes_per_token"),
        "branch": patch["branch"] if patch else None,
        "commit": patch["commit"] if patch else None,
        "repository": patch["repository"] if patch else None,
        "report": str(ledger.folder / "report.html"),
        "seconds": _seconds(ledger),
        "spent": ledger.spent(),
    }


def _profile(ledger: Ledger, profile: dict[str, Any] | None) -> dict[str, Any] | None:
    if profile is None:
        return None
    digest = next(step.result for step in ledger.steps() if step.name == "profile")
    kept = ("model", "busy_ns", "step_ms_profiled", "step_ms_unprofiled", "steps", "step_ns", "slots")
    share = profile["unattributed_ns"] / max(profile["busy_ns"], 1)
    return {"digest": digest, "unattributed_share": share, **{name: profile[name] for name in kept}}


def _targets(rank: dict[str, Any] | None) -> list[dict[str, Any]]:
    kept = ("definition", "phase", "tokens", "share", "headroom", "ceiling", "bound", "excluded")
    return [{name: target[name] for name in kept} for target in (rank or {}).get("targets", [])]


def _counts(attempts: list[Attempt]) -> dict[str, dict[str, int]]:
    """Return proposer → outcome → verdicts, search and confirm together; attempts in flight are not counted."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for attempt in attempts:
        if attempt.outcome:
            counts[attempt.proposer][attempt.outcome] += 1
    return {proposer: dict(counter) for proposer, counter in counts.items()}


def _attempt(attempt: Attempt) -> dict[str, Any]:
    kept = (
        "definition",
        "candidate",
        "proposer",
        "author",
        "phase",
        "state",
        "outcome",
        "reason",
        "ratio",
        "low",
        "high",
    )
    return {**{name: getattr(attempt, name) for name in kept}, "at": attempt.started_at}


def _accepted(
    ledger: Ledger, result: dict[str, Any], attempts: list[Attempt], hits: dict[str, int]
) -> list[dict[str, Any]]:
    rows = []
    chosen = (result.get("compose") or {}).get("chosen", [])
    for name, solved in result.items():
        if not name.startswith("solve:") or not solved or not solved["candidate"]:
            continue
        candidate = ledger.load(solved["candidate"], Candidate)
        verdict = ledger.load(solved["verdict"], Verdict)
        timed = verdict.comparison
        assert timed is not None  # an accepted verdict has one
        mine = [a for a in attempts if a.definition == candidate.definition and a.state == "judged"]
        rows.append(
            {
                "definition": candidate.definition,
                "author": candidate.author,
                "proposer": candidate.proposer,
                "parameters": candidate.parameters,
                "live": candidate.definition in chosen and hits.get(candidate.definition) != 0,
                "attempts_judged": len(mine),
                "attempts_rejected": sum(a.outcome != "faster" for a in mine),
                "ratio": timed.ratio,
                "interval": [timed.low, timed.high],
                "n": timed.n,
                "launches": timed.launches,
                "floor": timed.floor,
                "incumbent_us": timed.incumbent_us,
                "candidate_us": timed.candidate_us,
                "gain_over_default": solved["gain_over_default"],
                "isolation": verdict.isolation,
                "labels": list(verdict.labels),
                "hits": hits.get(candidate.definition),
            }
        )
    return rows


def _no_gate(stack: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return why accepted kernels were not gated; None when there were none or the session did not come that far."""
    if not stack or not stack["gate_lacks"] or not stack["chosen"]:
        return None
    return {"passed": None, "state": "not run", "reason": stack["gate_lacks"]}


def _seconds(ledger: Ledger) -> dict[str, float]:
    """Return wall seconds by step; the problems solved are summed under `solve`."""
    seconds: dict[str, float] = defaultdict(float)
    for step in ledger.steps():
        if step.ended_at is not None:
            seconds[step.name.partition(":")[0]] += step.ended_at - step.started_at
    return dict(seconds)
