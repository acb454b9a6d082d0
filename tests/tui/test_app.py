"""The app shows every screen, follows a live session, fits small and large terminals, and says what is wrong."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from kernelwright.agent import events
from kernelwright.agent.ledger import Ledger
from kernelwright.profiles.errors import BrokenInput, WrongUse
from kernelwright.tui.app import SessionApp, run_app
from kernelwright.tui.screens.attempt import AttemptScreen
from kernelwright.tui.screens.attempts import AttemptsPane
from kernelwright.tui.screens.broken import BrokenScreen
from kernelwright.tui.screens.help import HelpScreen
from kernelwright.tui.widgets.quiet_table import QuietTable

SIZES = [(80, 24), (120, 40)]


def text_of(app: SessionApp) -> str:
    """Return what stands on the terminal, line by line."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


async def press(pilot: Pilot[Any], *keys: str) -> str:
    await pilot.press(*keys)
    await pilot.pause(0.1)
    return text_of(pilot.app)  # type: ignore[arg-type]


async def until(pilot: Pilot[Any], seen: Callable[[str], bool]) -> str:
    """Wait until the terminal shows what is expected; return what it shows (after 8 s, whatever that is)."""
    for _ in range(80):
        text = text_of(pilot.app)  # type: ignore[arg-type]
        if seen(text):
            break
        await pilot.pause(0.1)
    return text


@pytest.mark.parametrize("size", SIZES)
async def test_overview(finished: Path, size: tuple[int, int]) -> None:
    app = SessionApp(finished)
    async with app.run_test(size=size) as pilot:
        text = await until(pilot, lambda text: "Best so far" in text)
        assert (
            "● done" in text and "synthetic-test-data" in text and "of 15:00" in text and "attempts 63 of 500" in text
        )
        assert "12.4 →   41.8 tok/s  3.37× [3.31, 3.42]" in text and "1.08× [1.05, 1.11]" in text
        for phase in ("✓ selftest", "✓ solve 7/7", "✓ commit"):
            assert phase in text
        assert "decode_attention_q9_kv3_d64_p16" in text and "4.21× [4.10, 4.30]" in text
        assert "q Quit" in text and "? Help" in text
        assert ("Latest" in text) == (size[1] >= 34), "the last facts are shown where there is room for them"


@pytest.mark.parametrize("size", SIZES)
async def test_targets(finished: Path, size: tuple[int, int]) -> None:
    app = SessionApp(finished)
    async with app.run_test(size=size) as pilot:
        text = await press(pilot, "2")
        assert "80.6 ms a decode step" in text and "outside slots" in text and "DRAM 21.4 GB/s" in text
        first = next(line for line in text.splitlines() if "q4_1_gate_up_silu_f1536_h576" in line)
        assert all(word in first for word in ("decode 1 ", "31.2 %", "━", "6.9×", "1.36×"))
        assert "bound by memory" in text and "worked on" in text
        assert "excluded: below 2 % of the step: not worth a problem" in await press(pilot, "end")


@pytest.mark.parametrize("size", SIZES)
async def test_attempts_are_filtered_and_ordered(finished: Path, size: tuple[int, int]) -> None:
    app = SessionApp(finished)
    async with app.run_test(size=size) as pilot:
        text = await press(pilot, "3")
        assert "all 63" in text and "faster 28" in text and "suspect 7" in text
        table = app.screen.query_one("#attempts-table", QuietTable)
        assert table.row_count == 63 and table.cursor_key == "63"
        await press(pilot, "f", "f", "f", "f")
        assert app.screen.query_one(AttemptsPane).outcome == "incorrect" and table.row_count == 7
        await press(pilot, "F", "F", "F", "o")
        assert app.screen.query_one(AttemptsPane).outcome == "faster" and table.row_count == 28
        text = text_of(app)
        first = next(line for line in text.splitlines() if "4.21×" in line)
        assert "q4_1_gate_up_silu_f1536_h576" in first, "fastest first"
        assert ("isolation L3" in text) == (size[0] >= 118), "the verdict stands beside the list where there is room"


@pytest.mark.parametrize("size", SIZES)
async def test_an_attempt_is_opened(finished: Path, size: tuple[int, int]) -> None:
    app = SessionApp(finished)
    async with app.run_test(size=size) as pilot:
        text = await press(pilot, "3", "enter")
        assert isinstance(app.screen, AttemptScreen)
        assert "faster  add_rmsnorm_h576" in text and "confirm" in text and "isolation L3" in text
        assert "┼" in text and "━" in text and "1.44× [1.40, 1.47] at 95%" in text and "n 240, 3 launches" in text
        assert "cpp · x86-64-v3" in text and "#include <immintrin.h>" in text
        text = await press(pilot, "d")
        assert "against its parent" in text or "against the family's default" in text
        assert "rows 1 → 8" in text and "--- a/kernel.cpp" in text and "@@" in text
        text = await press(pilot, "e")
        assert "captured-decode-0" in text and "PASSED" in text and "max relative" in text
        assert "add_rmsnorm_h576" in await press(pilot, "right") and "hidden-batch-7" in text
        await press(pilot, "escape")
        assert not isinstance(app.screen, AttemptScreen)


async def test_an_attempt_that_does_not_compile_shows_the_compiler(finished: Path) -> None:
    app = SessionApp(finished)
    async with app.run_test(size=(120, 40)) as pilot:
        await press(pilot, "3", *"ffffff")
        assert app.screen.query_one(AttemptsPane).outcome == "invalid"
        text = await press(pilot, "enter", "e")
        assert "does not compile" in text and "COMPILE_ERROR" in text and "expected ';'" in text and "┼" not in text


@pytest.mark.parametrize("size", SIZES)
async def test_engine(finished: Path, size: tuple[int, int]) -> None:
    app = SessionApp(finished)
    async with app.run_test(size=size) as pilot:
        text = await press(pilot, "4")
        assert "Gate  passed" in text and "kernelwright/synthetic-test-data at 5e7a5e7a5e7a" in text
        assert "12.4 tok/s" in text and "41.8 tok/s" in text and "n 40, 4 launches, floor 1.1 %" in text
        assert "mean KLD" in text and "3.1e-9" in text and "≤ 1e-8 or 4 × null" in text and "≥ 99.99 %" in text
        text += await press(pilot, "end")
        assert "26,880" in text and "538.0 MB → 96.4 MB" in text


async def test_a_refused_gate_says_why(scripted: Any, tmp_path: Path) -> None:
    scripted.write_finished(tmp_path / "s", passed=False)
    app = SessionApp(tmp_path / "s")
    async with app.run_test(size=(80, 24)) as pilot:
        assert "Gate  refused  prefill: mean KLD 3.00e-06 > 1e-06" in await press(pilot, "4")


async def test_log_hides_progress_until_asked(finished: Path) -> None:
    app = SessionApp(finished)
    async with app.run_test(size=(80, 24)) as pilot:
        text = await press(pilot, "5")
        assert "Session ended" in text and "done: every target was tried" in text and "Patch committed" in text
        assert "progress not shown" in text and "Progress made" not in text
        assert "progress not shown" not in await press(pilot, "p")
        assert "Progress made" in await press(pilot, *["pageup"] * 3)


async def test_help_opens_and_closes(finished: Path) -> None:
    app = SessionApp(finished)
    async with app.run_test(size=(80, 24)) as pilot:
        text = await press(pilot, "question_mark")
        assert isinstance(app.screen, HelpScreen) and "newest or fastest first" in text and "unmeasured" in text
        await press(pilot, "escape")
        assert not isinstance(app.screen, HelpScreen)
        await pilot.press("q")
    assert app.return_code == 0


async def test_a_live_session_is_followed(live: Any, scripted: Any) -> None:
    app = SessionApp(live.ledger.folder)
    name = "q4_1_linear_n960_k576"
    async with app.run_test(size=(80, 24)) as pilot:
        text = await until(pilot, lambda text: "solve 3/7" in text)
        assert "● live" in text and "incumbent decodes 12.4 tok/s" in text and "2/24" in text
        live.judge(scripted.scripted_candidate(name, 3), "search", "faster", 3.3)
        live.emit(events.ProgressMade, phase=f"solve:{name}", done=3, total=24, text="best 3.30×")
        text = await until(pilot, lambda text: "3/24" in text)
        assert "best 3.30×" in text and "attempts 30 of 500" in text
        live.finish(f"solve:{name}", 40.0, {})
        assert "solve 4/7" in await until(pilot, lambda text: "solve 4/7" in text)
        live.gate()
        text = await until(pilot, lambda text: "3.37× [3.31, 3.42]" in text)
        assert "✓ gate" in text
        live.end()
        live.ledger.close()
        await until(pilot, lambda text: "● done" in text and "done: every target was tried" in text)
        await pilot.press("5")
        assert "Session ended" in await until(pilot, lambda text: "Session ended" in text)


async def test_the_log_follows_the_newest_until_scrolled_up(live: Any, scripted: Any) -> None:
    app = SessionApp(live.ledger.folder)
    phase = "solve:q4_1_linear_n960_k576"
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "5", "p")
        for burst in range(3):
            for done in range(4, 24):
                live.emit(events.ProgressMade, phase=phase, done=done, total=24, text=f"burst {burst}")
            assert f"23/24 burst {burst}" in await until(pilot, lambda text: f"23/24 burst {burst}" in text)  # noqa: B023
        assert "23/24 burst 2" not in await press(pilot, "pageup", "pageup")
        live.emit(events.ProgressMade, phase=phase, done=24, total=24, text="the last")
        await pilot.pause(1.5)
        assert "the last" not in text_of(app)
        await pilot.press("end")
        assert "the last" in await until(pilot, lambda text: "the last" in text)


async def test_the_cursor_stays_on_its_attempt_while_new_ones_come(live: Any, scripted: Any) -> None:
    app = SessionApp(live.ledger.folder)
    async with app.run_test(size=(120, 40)) as pilot:
        await press(pilot, "3", "down", "down", "down")
        table = app.screen.query_one("#attempts-table", QuietTable)
        before = table.cursor_key
        live.judge(scripted.scripted_candidate("q4_1_linear_n960_k576", 5), "search", "suspect", 9.0)
        await until(pilot, lambda text: "all 30" in text)
        assert table.row_count == 30 and table.cursor_key == before == "26"


@pytest.mark.parametrize("size", SIZES)
async def test_an_empty_session_has_all_its_screens(tmp_path: Path, size: tuple[int, int]) -> None:
    Ledger.create(tmp_path, {"model": "m.gguf"}).close()
    app = SessionApp(tmp_path)
    async with app.run_test(size=size) as pilot:
        assert "its process was killed" in await until(pilot, lambda text: "killed" in text)
        assert "no profile yet" in await press(pilot, "2")
        assert "all 0" in await press(pilot, "3", "enter", "f", "o")
        text = await press(pilot, "4")
        assert "not finished" in text and "ended before the gate" in text
        assert "0 events" in await press(pilot, "5")


async def test_a_terminal_may_be_resized(finished: Path) -> None:
    app = SessionApp(finished)
    async with app.run_test(size=(120, 40)) as pilot:
        await press(pilot, "2")
        assert "excluded because" in text_of(app)
        await pilot.resize_terminal(80, 24)
        text = await until(pilot, lambda text: "excluded because" not in text)
        assert "excluded because" not in text and "ceiling" in text
        await pilot.resize_terminal(40, 10)
        await pilot.pause(0.1)
        assert app.is_running


async def test_a_session_that_breaks_while_it_is_shown(live: Any) -> None:
    app = SessionApp(live.ledger.folder)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda text: "● live" in text)
        live.begin("gate")
        digest = live.ledger.finish_step("gate", {"passed": True})
        live.ledger.objects.path_of(digest).write_text("{}")
        await until(pilot, lambda text: "cannot be read" in text)
        assert isinstance(app.screen, BrokenScreen)
        assert "was changed after it was written" in " ".join(text_of(app).split())
        await pilot.press("q")
    assert app.return_code == 0


async def test_a_damaged_candidate_leaves_the_rest_readable(finished: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    with Ledger.open(copy, readonly=True) as ledger:
        ledger.objects.path_of(ledger.attempts()[-3].candidate).unlink()
    app = SessionApp(copy)
    async with app.run_test(size=(80, 24)) as pilot:
        text = await press(pilot, "3", "down", "down", "enter")
        assert "cannot be read" in " ".join(text.split()) and "Restore the session folder" in text
        assert "isolation L3" in await press(pilot, "right")


@pytest.mark.parametrize("make", ["missing", "empty", "text"])
def test_what_is_no_session_ends_with_a_message(tmp_path: Path, make: str) -> None:
    folder = tmp_path / "s"
    if make != "missing":
        folder.mkdir()
    if make == "text":
        (folder / "session.db").write_text("not a database " * 100)
    with pytest.raises(BrokenInput if make == "text" else WrongUse) as caught:
        SessionApp(folder)
    assert caught.value.remedy


def test_without_a_terminal_the_screens_say_so(finished: Path) -> None:
    with pytest.raises(WrongUse, match="need a terminal"):
        run_app(finished)


def test_in_a_real_terminal_it_opens_and_quits(finished: Path) -> None:
    program = "import sys, pathlib, kernelwright.tui.app as app; sys.exit(app.run_app(pathlib.Path(sys.argv[1])))"
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(finished)], stdin=terminal, stdout=terminal, stderr=terminal,
        env={**os.environ, "PYTHONSAFEPATH": "1", "TERM": "xterm-256color"},
    )  # fmt: skip
    os.close(terminal)
    shown = b""
    try:
        while b"Best so far" not in shown:
            shown += os.read(screen, 65536)
        os.write(screen, b"q")
        with contextlib.suppress(OSError):  # the terminal closes with the program
            while os.read(screen, 65536):
                pass
        assert child.wait(timeout=60) == 0
    finally:
        child.kill()
        os.close(screen)
