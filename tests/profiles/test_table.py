from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

from kernelwright.profiles.build import ProfileContext, SlotCost, build_profile
from kernelwright.profiles.rank import rank_targets
from kernelwright.profiles.table import format_markdown, print_table, tabulate_profile, tabulate_targets

EVENTS = [
    ("step|decode|1|1", 0, 1_000_000),
    ("slot|linear|decode|1|0", 0, 600_000),
    ("slot|rope|decode|1|0", 700_000, 100_000),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_profile_table_shows_times_shares_and_the_rest(
    write_trace: Callable[..., Path], context: ProfileContext
) -> None:
    costs = (SlotCost(definition="linear", tokens=1, bytes=1_000_000, flops=2_000_000),)
    profile = build_profile(write_trace(*EVENTS), ProfileContext(**{**dict(context), "costs": costs}))
    text = format_markdown(tabulate_profile(profile))
    assert "| linear | decode | 1 | 1 | 0.60 | 60.0% | 60.0% | 600.0 | 1,000,000 | 2,000,000 |" in text
    assert "| rope | decode | 1 | 1 | 0.10 | 10.0% | 10.0% | 100.0 | unknown | unknown |" in text
    assert "(outside every slot)" in text and "30.0%" in text
    assert "1.00 ms with the profiler, 1.00 ms without" in text
    assert "memory 10.0 GB/s over 90 MB" in text

    targets = tabulate_targets(rank_targets(profile, {"linear"}))
    text = format_markdown(targets)
    assert "| linear | decode | chosen | 1 | 60.0% | 600.0 | 100.0 | memory | 6.0x | 2.00x |" in text
    assert "no slot through which" in text


def test_a_terminal_gets_a_drawn_table_and_a_pipe_gets_markdown(
    write_trace: Callable[..., Path], context: ProfileContext
) -> None:
    table = tabulate_profile(build_profile(write_trace(*EVENTS), context))
    pipe, terminal = io.StringIO(), Terminal()
    print_table(table, pipe)
    print_table(table, terminal)
    assert pipe.getvalue() == format_markdown(table)
    assert "linear" in terminal.getvalue() and "| ---" not in terminal.getvalue()
