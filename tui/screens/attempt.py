"""AttemptScreen: one attempt in full. Verdict, source, difference to what it came from, evaluations."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from pygments.token import Token  # type: ignore[import-untyped]
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.highlight import HighlightTheme, highlight
from textual.screen import Screen
from textual.widgets import Footer, Static, TabbedContent, TabPane, Tabs

from kernelwright.agent.ledger import Attempt
from kernelwright.profiles.errors import KernelwrightError
from kernelwright.tui.attempt_view import AttemptView
from kernelwright.tui.palette import ACCENT, DIM, FAINT, GREEN, LITERAL, RED, TEXT
from kernelwright.tui.widgets.verdict_card import VerdictCard
from kernelwright.tui.words import tiny

_LANGUAGES = {"cpp": "cpp", "cuda": "cpp", "python": "python", "triton": "python"}


class SourceTheme(HighlightTheme):
    """Few colours: what is a word of the language, what is a literal, what is a remark."""

    STYLES = {  # noqa: RUF012  (declared so by Textual)
        Token.Comment: DIM,
        Token.Comment.Preproc: ACCENT,
        Token.Comment.PreprocFile: LITERAL,
        Token.Keyword: ACCENT,
        Token.Literal: LITERAL,
        Token.Operator.Word: ACCENT,
        Token.Name.Decorator: ACCENT,
        Token.Name.Function: f"bold {TEXT}",
        Token.Name.Class: f"bold {TEXT}",
    }


class AttemptScreen(Screen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "app.pop_screen", "Back", key_display="esc"),
        Binding("s", "tab('source')", "Source"),
        Binding("d", "tab('diff')", "Diff"),
        Binding("e", "tab('evaluations')", "Evaluations"),
        Binding("right,n", "move(1)", "Next", key_display="→"),
        Binding("left,p", "move(-1)", "Previous", key_display="←"),
    ]

    def __init__(self, attempts: tuple[Attempt, ...], at: int, read: Callable[[Attempt], AttemptView]) -> None:
        super().__init__()
        self._attempts, self._at, self._read = attempts, at, read

    def compose(self) -> ComposeResult:
        yield VerdictCard()
        with TabbedContent(initial="source"):
            for name in ("source", "diff", "evaluations"):
                with TabPane(name.capitalize(), id=name), VerticalScroll():
                    yield Static(id=f"{name}-text")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(Tabs).can_focus = False
        self._show()
        self.action_tab("source")

    def action_tab(self, name: str) -> None:
        self.query_one(TabbedContent).active = name
        self.query_one(f"#{name}", TabPane).query_one(VerticalScroll).focus()

    def action_move(self, by: int) -> None:
        self._at = (self._at + by) % len(self._attempts)
        self._show()

    def _show(self) -> None:
        try:
            shown = self._read(self._attempts[self._at])
        except KernelwrightError as error:
            # One damaged record does not make the rest unreadable: say so in its place.
            self.query_one(VerdictCard).show(None)
            self.query_one("#source-text", Static).update(Text(f"{error.message}\n\n{error.remedy}", RED))
            for name in ("diff", "evaluations"):
                self.query_one(f"#{name}-text", Static).update("")
            return
        self.query_one(VerdictCard).show(shown)
        self.query_one("#source-text", Static).update(_source(shown))
        self.query_one("#diff-text", Static).update(_diff(shown))
        self.query_one("#evaluations-text", Static).update(_evaluations(shown))


def _source(shown: AttemptView) -> Content:
    candidate = shown.candidate
    point = "  ".join(f"{name} {value}" for name, value in candidate.parameters.items())
    head = f"{candidate.language} · {candidate.isa} · {' '.join(candidate.compile_flags) or 'no flags of its own'}"
    parts = [Content.styled(f"{head}\n{point}\n" if point else f"{head}\n", DIM)]
    for source in candidate.sources:
        code = highlight(source.content, language=_LANGUAGES[candidate.language], theme=SourceTheme)
        parts += [Content.styled(f"\n{source.path}\n", f"bold {TEXT}"), code, Content("\n")]
    return Content("").join(parts)


def _diff(shown: AttemptView) -> Text:
    if shown.base is None:
        return Text(f"nothing to compare with: {shown.base_name}", DIM)
    text = Text.assemble(("against ", DIM), (shown.base_name, TEXT), "\n")
    for change in shown.changes:
        text.append(f"  {change}\n", TEXT)
    if not shown.diff:
        return text.append("\nthe sources are equal", DIM)
    text.append("\n")
    colours = {"+": GREEN, "-": RED, "@": FAINT}
    for line in shown.diff.splitlines():
        named = line.startswith(("+++", "---"))
        text.append(line + "\n", DIM if named else colours.get(line[:1], TEXT))
    return text


def _evaluations(shown: AttemptView) -> Text | Table:
    if shown.verdict is None or not shown.verdict.evaluations:
        return Text("no evaluations recorded", FAINT)
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_row(*(Text(name, DIM) for name in ("workload", "status", "max relative", "max absolute", "")))
    for evaluation in shown.verdict.evaluations:
        right = evaluation.correctness
        passed = evaluation.status == "PASSED"
        table.add_row(
            Text(evaluation.workload, TEXT),
            Text(evaluation.status, GREEN if passed else RED),
            Text(tiny(right.max_relative_error) if right else "–", TEXT, justify="right"),
            Text(tiny(right.max_absolute_error) if right else "–", TEXT, justify="right"),
            Text(evaluation.log.strip(), DIM),
        )
    return table
