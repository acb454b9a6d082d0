"""Colours, and what they mean. Everything that has no meaning of its own is text or dim text."""

from __future__ import annotations

GROUND = "#15181d"
PANEL = "#1c2027"
RAISED = "#272c35"
TEXT = "#d3d7de"
DIM = "#7c8491"
FAINT = "#454c58"
ACCENT = "#86aee0"
GREEN = "#7fc08f"
YELLOW = "#dfbf69"
RED = "#e2777a"
LITERAL = "#b9a3d3"
"""Numbers and strings in source code; has no other meaning."""

OUTCOMES = {
    "faster": GREEN,
    "slower": DIM,
    "inconclusive": DIM,
    "incorrect": RED,
    "suspect": YELLOW,
    "invalid": DIM,
    "unmeasured": DIM,
    "running": ACCENT,
    "interrupted": YELLOW,
}
STANDINGS = {"live": ACCENT, "done": GREEN, "interrupted": YELLOW, "killed": YELLOW, "failed": RED}
