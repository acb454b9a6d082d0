"""What the commits of a patch say: the outcome with its evidence, how it was made, and a sign-off left to a person."""

from __future__ import annotations

from pathlib import Path

from kernelwright.engine.pack import PackedKernel

DISCLOSURE = {
    "templates": "none in the source: a program searched the parameters of a kernel family ({author}).",
    "model": "the source was written by a language model, {author}.",
    "import": "not known: the source was handed in by {author}.",
    "incumbent": "none: the engine's own incumbent.",
}
UNREVIEWED = """\
No person has read this commit. It was measured and committed by kernelwright, unattended. Whoever
takes it over adds their own sign-off on the line below.

Signed-off-by:
"""


def kernel_message(kernel: PackedKernel, note: str = "") -> str:
    """Return the commit message of one kernel: speed-up with interval, n and machine, digests, disclosure."""
    entry, comparison = kernel.entry, kernel.verdict.comparison
    if comparison is None:
        raise ValueError("an accepted verdict has a comparison")
    ranges = ", ".join(f"{axis} {r.low}..{r.high}" for axis, r in sorted(entry.ranges.items())) or "unrestricted"
    speed = f"{comparison.ratio:.2f}x [{comparison.low:.2f}, {comparison.high:.2f}]"
    lines = [
        f"Run {kernel.definition.op_type} {comparison.ratio:.2f} times as fast ({_span(ranges)})",
        "",
        f"Kernel level: {speed}, {comparison.confidence:.0%} interval, n={comparison.n} pairs over",
        f"{comparison.launches} launches; {comparison.incumbent_us:.1f} us -> {comparison.candidate_us:.1f} us a call.",
        f"Machine: {entry.hardware}; {entry.isa}.",
        *([note] if note else []),
        "",
        f"Definition: {entry.definition} ({ranges})",
        f"Candidate: {entry.candidate}",
        f"Verdict: {entry.verdict}",
        f"Binary: {entry.binary or 'not compiled'}",
        f"Isolation: {kernel.verdict.isolation}; judge: {kernel.verdict.harness[:12]}",
        f"Made as: {', '.join(kernel.verdict.labels) or 'unlabelled'}",
        f"Author: {entry.author}; proposer: {entry.proposer}; licence: {entry.licence}",
        "",
        "AI use: " + DISCLOSURE[entry.proposer].format(author=entry.author),
        UNREVIEWED,
    ]
    return "\n".join(lines)


def evidence_message(session: str, kernels: int, digest: str, evidence_dir: Path) -> str:
    """Return the commit message of the evidence bundle."""
    files = sum(path.is_file() for path in evidence_dir.rglob("*"))
    return "\n".join(
        [
            f"Show the evidence of session {session} for {kernels} kernel{'s' if kernels != 1 else ''} together",
            "",
            f"{files} files: what was measured, in the engine and kernel by kernel, and with what.",
            f"Evidence: {digest}",
            "",
            UNREVIEWED,
        ]
    )


def _span(ranges: str) -> str:
    return ranges if len(ranges) <= 24 else f"{ranges[:21]}..."
