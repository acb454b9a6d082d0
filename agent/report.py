"""Write the session report: one self-contained HTML page with pictures, and the same in Markdown.

Both come from `report.json`, the object of `optimize --json` (docs/architecture.md, "JSON of the verbs") with these
keys beside it, each of which may be missing when a session ended early:

    command, status, reason, model     strings
    machine                            {cpu, isa, cores, torch, kernel}
    ceilings                           a Ceilings
    kl_histogram                       {decode, prefill}: {edges, counts}, nats, len(edges) = len(counts) + 1
    pairs                              {definition: [ln(incumbent time ÷ kernel time), …]} of accepted kernels
    attempt_log                        [{definition, candidate, proposer, author, phase, outcome, reason,
                                         ratio, low, high, at}] in the order tried
    limits                             [sentence, …] that the caller adds to the limits
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from kernelwright.agent.report_figures import Report, evidence_line, headline
from kernelwright.agent.report_html import render_html
from kernelwright.agent.report_sections import SECTIONS, Section
from kernelwright.profiles.table import format_markdown

TITLE = "kernelwright session report"


def write_reports(report: Report, folder: Path) -> tuple[Path, Path]:
    """Write `report.html`, `report.md` and `report.json` into `folder`; return the paths of the first two.

    Each file appears whole or not at all. Raises OSError when the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / "report.json", json.dumps(report, indent=1) + "\n")
    return (
        _replace(folder / "report.html", render_html(report, TITLE)),
        _replace(folder / "report.md", render_markdown(report)),
    )


def render_markdown(report: Report) -> str:
    """Return the report as Markdown: headline, evidence, and every section with its tables."""
    lines = [f"# {TITLE}", ""]
    for figure in headline(report):
        lines.append(f"- **{figure.label}: {figure.value or 'no figure'}** ({figure.evidence})")
    lines.append("")
    lines += [f"- {label}: `{value}`" for label, value in evidence_line(report)]
    lines.append("")
    if report.get("note"):
        lines += [f"> {report['note']}", ""]
    for make in SECTIONS:
        lines += _section_lines(make(report))
    return "\n".join(lines).rstrip() + "\n"


def _section_lines(section: Section) -> list[str]:
    lines = [f"## {section.title}", ""]
    for text in (*section.lead, *(f"**Missing.** {text}" for text in section.missing)):
        lines += [text, ""]
    for table in section.tables:
        lines += [format_markdown(table, level=3)]
    if section.evidence:
        lines += [section.evidence, ""]
    if section.points:
        lines += [*(f"- {point}" for point in section.points), ""]
    return lines


def _replace(path: Path, text: str) -> Path:
    """Write beside and rename, so that a reader never sees half a report."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    return path
