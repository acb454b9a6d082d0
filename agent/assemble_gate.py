"""The gate's part of the report object."""

from __future__ import annotations

from typing import Any

FIDELITY = (
    "tokens", "mean_kld", "null_kld", "p999_kld", "max_kld", "top1", "mismatches_beyond_ties",
    "largest_mismatch_margin", "ln_ppl_ratio", "ln_ppl_interval", "rms_delta_p", "non_finite",
)  # fmt: skip


def gate_sections(result: dict[str, Any]) -> dict[str, Any]:
    """Return gate, engine, fidelity, kl_histogram, memory and hits of a GateResult (as JSON)."""
    fidelity = {phase["phase"]: phase for phase in result["fidelity"]}
    incumbent, patched = result["resident_bytes"]
    return {
        "gate": {
            "passed": result["state"] == "pass",
            "state": result["state"],
            "reason": "; ".join(result["reasons"]),
            "isolation": result["isolation"],
            "kernels": result["kernels"],
            "generation": result["generation"],
            "seconds": result["seconds"],
        },
        "engine": {phase: _comparison(result[phase]) for phase in ("decode", "prefill")},
        "fidelity": {name: {key: phase[key] for key in FIDELITY} for name, phase in fidelity.items()},
        "kl_histogram": {
            name: {"edges": phase["histogram_edges"], "counts": phase["histogram"]} for name, phase in fidelity.items()
        },
        "memory": {"incumbent_bytes": incumbent, "patched_bytes": patched},
        "hits": {kernel["definition"]: kernel["hits"] for kernel in result["kernels"]},
    }


def _comparison(measured: dict[str, Any]) -> dict[str, Any]:
    kept = ("incumbent_tok_s", "patched_tok_s", "ratio", "n", "launches", "floor", "prompt_tokens", "new_tokens")
    return {**{name: measured[name] for name in kept}, "interval": [measured["low"], measured["high"]]}
