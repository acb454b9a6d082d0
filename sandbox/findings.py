"""Findings: what a screen collects about one candidate while it reads it."""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_FACTS = 400
"""Characters kept of one fact: what a candidate wrote must not fill a verdict."""


@dataclass(slots=True)
class Findings:
    """Refusals (reason, detail), tripwires, labels and facts, in the order they were found."""

    refusals: list[tuple[str, str]] = field(default_factory=list)
    tripwires: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)

    def refuse(self, reason: str, detail: str = "") -> None:
        """Note a hard rule that is broken. `reason` may be told to a proposer, `detail` goes to the facts."""
        self.refusals.append((reason, detail))

    def notice(self, text: str) -> None:
        """Note a tripwire once."""
        if text not in self.tripwires:
            self.tripwires.append(text)

    def label(self, text: str) -> None:
        """Note where the result comes from, once."""
        if text not in self.labels:
            self.labels.append(text)

    def fact(self, name: str, value: object) -> None:
        self.facts[name] = str(value)[:MOST_FACTS]
