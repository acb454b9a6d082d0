from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from kernelwright.agent.report import render_markdown, write_reports
from kernelwright.agent.report_figures import describe_ratio, headline
from kernelwright.agent.report_html import render_html

FIXTURE = Path(__file__).resolve().parents[1] / "data" / "report.json"
"""Synthetic values, made for these tests; nothing in it was measured."""
ADDRESS = re.compile(r"""(?:src|href)\s*=|@import|url\(\s*['"]?(?!#)|https?://""")


@pytest.fixture
def report() -> dict[str, Any]:
    values: dict[str, Any] = json.loads(FIXTURE.read_text())
    return values


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Both reports of the fixture, written once: pictures take seconds."""
    return write_reports(json.loads(FIXTURE.read_text()), tmp_path_factory.mktemp("session") / "new")


class Reader(HTMLParser):
    """Collects the text, the tags and whether every element is closed."""

    VOID = frozenset({"meta", "br", "use", "path", "link"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_both_reports_say_the_same_with_interval_n_machine_and_command(written: tuple[Path, Path]) -> None:
    html, markdown = written
    assert (html.name, markdown.name) == ("report.html", "report.md")
    assert sorted(path.name for path in html.parent.iterdir()) == ["report.html", "report.json", "report.md"]
    for text in (Reader(html.read_text()).text, markdown.read_text()):
        for told in (
            "3.41×", "[3.35, 3.47]", "n=24 pairs over 3 launches", "48.2 → 164.4 tok/s",
            "Fixture CPU 9000, x86-64-v3, 2 cores, 2 threads", "kernelwright optimize --minutes 15 --json",
            "q4_1_gate_up_silu_f1536_h576", "8.00e-08", "kernelwright/fixture", "does not compile",
            "SYNTHETIC VALUES FOR TESTS", "Seconds by phase", "541.0",
        ):  # fmt: skip
            assert told in text, told


def test_the_page_is_sound_and_fetches_nothing(written: tuple[Path, Path]) -> None:
    page = written[0].read_text()
    reader = Reader(page)
    assert reader.open == []
    assert reader.tags.count("svg") == 5
    assert not ({"script", "img", "link", "iframe"} & set(reader.tags))
    links = page.replace('xlink:href="#', "").replace("url(#", "")
    assert not [found for found in ADDRESS.findall(links)]
    assert "prefers-color-scheme: dark" in page


@pytest.mark.parametrize("lost", ["interval", "n"])
def test_a_ratio_without_interval_or_n_is_not_shown(report: dict[str, Any], lost: str) -> None:
    del report["engine"]["decode"][lost]
    assert describe_ratio(report["engine"]["decode"]) is None
    page = render_html({key: report[key] for key in ("engine", "machine", "command")}, "title")
    for text in (page, render_markdown(report)):
        assert "3.41×" not in text
        assert "not shown: interval or n not recorded" in text


@pytest.mark.parametrize("lost", ["machine", "command"])
def test_a_ratio_without_machine_or_command_is_not_shown(report: dict[str, Any], lost: str) -> None:
    del report[lost]
    text = render_markdown(report)
    assert "3.41×" not in text and "3.93×" not in text
    assert f"not shown: {lost} not recorded" in text


def test_a_kernel_without_interval_is_listed_without_its_ratio(report: dict[str, Any]) -> None:
    report["accepted"][0]["interval"] = None
    text = render_markdown(report)
    assert "3.93×" not in text
    assert "The ratio of q4_1_linear_n960_k576 is not shown" in text


def test_n_of_a_kernel_is_counted_from_its_pairs(report: dict[str, Any]) -> None:
    del report["accepted"][0]["n"]
    report["pairs"]["q4_1_linear_n960_k576"].pop()
    assert "| 3.93× | [3.88, 3.97] | 39 |" in render_markdown(report)


def test_an_empty_session_says_what_is_missing_and_invents_nothing(tmp_path: Path) -> None:
    html, markdown = write_reports({}, tmp_path)
    assert json.loads((tmp_path / "report.json").read_text()) == {}
    for text in (Reader(html.read_text()).text, markdown.read_text()):
        for told in (
            "before the engine was measured", "The decode phase was not scored",
            "before a kernel was decided", "before the engine was profiled", "before targets were ranked",
            "before anything was attempted", "No phase was timed", "ceilings were not measured",
            "none: nothing was committed",
        ):  # fmt: skip
            assert told in text, told
        assert not re.search(r"\d×", text)
    assert "<svg" not in html.read_text()


def test_every_part_may_be_missing_on_its_own(report: dict[str, Any]) -> None:
    for key in report:
        for without in ({k: v for k, v in report.items() if k != key}, {**report, key: None}):
            render_markdown(without)
    few = {key: report[key] for key in ("accepted", "pairs", "machine", "command")}
    assert "<svg" in render_html(few, "title")
    assert "<svg" not in render_html(few | {"command": None}, "title")
    assert "<svg" in render_html({"kl_histogram": report["kl_histogram"]}, "title")


def test_arguments_stand_in_for_the_command(report: dict[str, Any]) -> None:
    report["arguments"] = {"minutes": 2.0, "threads": 2, "repo": None}
    del report["command"]
    text = render_markdown(report)
    assert "- command: `kernelwright optimize (minutes=2.0, threads=2)`" in text
    assert "3.41×" in text


def test_a_gate_that_did_not_pass_is_said_beside_its_figures(report: dict[str, Any]) -> None:
    text = render_markdown(report | {"gate": {"passed": False, "reason": "mean KLD of decode"}})
    assert "- gate: `not passed: mean KLD of decode`" in text
    assert "The gate did not pass (mean KLD of decode)" in text
    assert "- gate: `passed`" in render_markdown(report | {"gate": {"passed": True, "reason": None}})


def test_kernels_outside_the_stack_and_mere_wrappers_are_named(report: dict[str, Any]) -> None:
    report["accepted"][0]["labels"] = ["framework-wrap"]
    text = render_markdown(report | {"left_out": {"q4_1_mlp_block": "slower than its ops"}})
    assert "left out of the stack: q4_1_mlp_block (slower than its ops)" in text
    assert "q4_1_linear_n960_k576 is no kernel of its own making: framework-wrap." in text


def test_nothing_accepted_is_an_answer(report: dict[str, Any]) -> None:
    text = render_markdown(report | {"accepted": [], "pairs": {}})
    assert "No kernel was accepted." in text
    assert "**Kernels accepted: 0**" in text


def test_a_slower_engine_is_marked_so(report: dict[str, Any]) -> None:
    report["engine"]["prefill"] |= {"ratio": 0.9, "interval": [0.88, 0.92]}
    report["engine"]["decode"] |= {"ratio": 1.0, "interval": [0.98, 1.02]}
    assert [figure.good for figure in headline(report)[:2]] == [None, False]


def test_words_of_a_candidate_cannot_become_markup(report: dict[str, Any], tmp_path: Path) -> None:
    report["attempt_log"][0] |= {"outcome": "invalid", "reason": "<script>alert(1)</script> a|b\n# title"}
    report["accepted"][0]["author"] = "<b>$\\frac{1}{2}$</b>"
    report["profile"]["slots"][0]["definition"] = "odd$name$<i>"
    del report["attempt_log"][1:], report["kl_histogram"]
    html, markdown = write_reports(report, tmp_path)
    page = html.read_text()
    assert "<script" not in page and "<b>" not in page and "<i>" not in page
    assert "&lt;script>alert(1)&lt;/script> a\\|b # title" in markdown.read_text()


def test_attempts_in_flight_and_rejections_are_counted(report: dict[str, Any]) -> None:
    report["attempt_log"].append(report["attempt_log"][-1] | {"outcome": None, "ratio": None})
    rejected = [row for row in report["attempt_log"] if row["outcome"] == "incorrect"]
    text = render_markdown(report)
    assert "1 attempts were in flight" in text
    assert re.search(rf"\| incorrect \| numbers are off \|.* {len(rejected)} \|", text)


def test_the_same_report_gives_the_same_bytes(
    report: dict[str, Any], written: tuple[Path, Path], tmp_path: Path
) -> None:
    assert [path.read_bytes() for path in write_reports(report, tmp_path)] == [path.read_bytes() for path in written]


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(OSError):
        write_reports({}, blocked)
    assert blocked.read_text() == "not a folder"
