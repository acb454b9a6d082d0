"""Deliver: gate the stack in the engine, commit it with its evidence, write the reports."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.agent.budget import REPORT_SECONDS
from kernelwright.agent.events import GateFinished, PatchCommitted, ReportWritten
from kernelwright.agent.session import Session
from kernelwright.kernels.problem import Problem
from kernelwright.profiles.digest import digest_of

if TYPE_CHECKING:
    from kernelwright.agent.workbench import Workbench


def gate_stack(session: Session, bench: Workbench, stack: dict[str, Any]) -> dict[str, Any]:
    """Write the pack of the chosen kernels and gate it as a whole; return the GateResult as JSON."""
    from kernelwright.engine.gate import run_gate

    pack = write_pack(session, bench, stack["chosen"])
    result = run_gate(
        session.options.model,
        pack,
        session_dir=session.folder,
        threads=session.options.threads,
        cage=session.options.cage,
        budget_s=session.budget.left_s - REPORT_SECONDS,
        on_progress=lambda done, total, text: session.progress("gate", done, total, text),
    )
    session.emit(GateFinished(passed=result.passed, reason="; ".join(result.reasons)))
    return {"passed": result.passed, "result": result.model_dump(mode="json")}


def write_pack(session: Session, bench: Workbench, chosen: list[str]) -> Path:
    """Write the kernel pack of the session and return its folder."""
    from kernelwright.engine.pack import write_kernel

    pack, profile, accepted = session.folder / "pack", bench.profile(), bench.accepted()
    for name in chosen:
        problem = Problem.model_validate_json((bench.problem_folder(name) / "problem.json").read_text(encoding="utf-8"))
        write_kernel(
            pack,
            accepted[name].candidate,
            accepted[name].verdict,
            problem,
            model_digest=profile.model_digest,
            hardware=profile.machine.cpu,
            name=session.folder.name,
        )
    return pack


def commit_stack(session: Session, bench: Workbench, stack: dict[str, Any], gate: dict[str, Any]) -> dict[str, Any]:
    """Commit the pack on a branch of the user's repository (or a new one) and return the Patch as JSON."""
    from kernelwright.engine.bundle import write_bundle
    from kernelwright.engine.gate_result import GateResult
    from kernelwright.engine.pack import keep_kernels
    from kernelwright.engine.patch import commit_pack

    result, accepted = GateResult.model_validate(gate["result"]), bench.accepted()
    records: dict[str, Any] = {"gate.json": result, "profile.json": bench.profile()}
    notes = {}
    for name in stack["chosen"]:
        kernel = accepted[name]
        records |= evidence_of(bench, name)
        judged = session.ledger.attempts(name, state="judged")
        notes[digest_of(kernel.candidate)] = f"{len(judged)} verdicts were taken on this definition."
    evidence = session.folder / "evidence"
    write_bundle(evidence, records)
    idle = set(result.idle)
    live = [digest_of(accepted[name].candidate) for name in stack["chosen"]]
    keep_kernels(session.folder / "pack", [digest for digest in live if digest not in idle])
    patch = commit_pack(
        session.options.repo,
        session.folder,
        session.folder / "pack",
        evidence,
        comparison=digest_of(result),
        notes=notes,
    )
    session.emit(PatchCommitted(branch=patch.branch, commit=patch.commit))
    return patch.model_dump(mode="json")


def evidence_of(bench: Workbench, name: str) -> dict[str, str]:
    """Return the files of the verdict's own evidence bundle, for `kernelwright verify-bundle EVIDENCE/<definition>`."""
    from kernelwright.sandbox.bundle import write_bundle

    folder, kernel = bench.problem_folder(name), bench.accepted()[name]
    problem = Problem.model_validate_json((folder / "problem.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="kernelwright-bundle-") as place:
        whole = write_bundle(
            Path(place) / "bundle", problem, kernel.candidate, kernel.verdict, problem_dir=folder,
            model=bench.profile().model_digest,
        )  # fmt: skip
        files = [path for path in sorted(whole.rglob("*")) if path.is_file()]
        return {f"{name}/{path.relative_to(whole)}": path.read_text(encoding="utf-8") for path in files}


def write_session_report(session: Session, report: dict[str, Any]) -> None:
    """Write report.json, report.html and report.md into the session folder."""
    from kernelwright.agent.report import write_reports

    html, _ = write_reports(report, session.folder)
    session.emit(ReportWritten(path=str(html)))
