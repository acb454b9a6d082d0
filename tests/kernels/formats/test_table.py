"""Formats are told apart by what they hold; what is none of them is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelwright.kernels.formats.imported import write_files
from kernelwright.kernels.formats.probe import ask
from kernelwright.kernels.formats.table import FORMATS, read_any, sniff, write_as
from kernelwright.profiles.errors import BrokenInput, KernelwrightError, WrongUse
from tests.kernels.formats.sampling import SAMPLES, probe_here

PLACES = {
    "flashinfer_trace": "flashinfer-trace", "sol_execbench": "sol-execbench", "gpu_mode/row_scale": "gpu-mode",
    "kernelbench/20_log.py": "kernelbench", "sol_execbench/solution.json": "sol-execbench",
    "flashinfer_trace/definitions/norm/scaled_rmsnorm_h64.json": "flashinfer-trace",
    "flashinfer_trace/solutions/alice/norm/fused_torch.json": "flashinfer-trace",
    "gpu_mode/row_scale/submission.py": "gpu-mode", "gpu_mode/row_scale/task.yml": "gpu-mode",
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_each_format_is_told_by_what_it_holds(place: str) -> None:
    assert sniff(SAMPLES / place) == PLACES[place]


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("place", ["flashinfer_trace", "sol_execbench", "gpu_mode/row_scale", "kernelbench/20_log.py"])
def test_every_format_is_written_as_every_other_and_read_again(place: str, target: str, tmp_path: Path) -> None:
    found = read_any(SAMPLES / place, probe_here)
    written = write_as(target, found)
    write_files(written, tmp_path / "out")
    assert sniff(tmp_path / "out") == target
    if place == "kernelbench/20_log.py" and target == "sol-execbench":
        return  # its constraints stay behind, and with them nothing that this problem needs
    back = read_any(tmp_path / "out", probe_here)
    assert len(back.problem().definition.outputs) == len(found.problem().definition.outputs)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=60), st.sampled_from([".json", ".py", ".yml", ".txt"]))
def test_anything_else_is_an_error_with_a_remedy_and_never_a_traceback(
    tmp_path: Path, content: bytes, end: str
) -> None:
    path = tmp_path / f"a{end}"
    path.write_bytes(content)
    with pytest.raises(KernelwrightError) as raised:
        read_any(path, probe_here)
    assert raised.value.remedy


def test_an_empty_folder_is_no_format(tmp_path: Path) -> None:
    with pytest.raises(BrokenInput, match="no known format"):
        sniff(tmp_path)


def test_an_unknown_target_is_wrong_use() -> None:
    with pytest.raises(WrongUse, match="unknown format"):
        write_as("triton-bench", read_any(SAMPLES / "sol_execbench", probe_here))


@pytest.mark.parametrize("answer", ["link", "folder", "large", "text", "list"])
def test_a_probe_that_was_tampered_with_is_not_believed(answer: str, tmp_path: Path) -> None:
    from kernelwright.kernels.build import CommandResult

    def run(_command: object, folder: Path, _seconds: float) -> CommandResult:
        found = folder / "found.json"
        if answer == "link":
            found.symlink_to("/etc/hostname")
        elif answer == "folder":
            found.mkdir()
        else:
            found.write_text({"large": " " * (5 << 20), "text": "hello", "list": "[1]"}[answer])
        return CommandResult(0, "")

    with pytest.raises(BrokenInput):
        ask({"kind": "kernelbench", "source": ""}, run)
