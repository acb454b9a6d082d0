"""Render the session report as one HTML page: styles and pictures inside, nothing fetched, light and dark."""

from __future__ import annotations

import re
from html import escape
from importlib.resources import files

from kernelwright.agent.pictures import draw_pictures
from kernelwright.agent.report_figures import Report, evidence_line, headline
from kernelwright.agent.report_sections import SECTIONS


def render_html(report: Report, title: str) -> str:
    """Return the page. Text of the report is escaped; only our own pictures are inserted as they are."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["prose"] = lambda text: Markup(mark_code(text))
    template = environment.from_string(files("kernelwright.agent").joinpath("report.html.j2").read_text("utf-8"))
    return template.render(
        title=title,
        note=report.get("note"),
        figures=headline(report),
        evidence=evidence_line(report),
        sections=[make(report) for make in SECTIONS],
        pictures={name: Markup(svg) for name, svg in draw_pictures(report).items()},
    )


def mark_code(text: str) -> str:
    """Return `text` escaped for HTML, its `backquoted` parts set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
