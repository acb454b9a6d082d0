"""A pack is read back as written, rebuilt to the same bytes, checked against its reference; refused when it lies."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.engine.pack import read_kernel, read_manifest, write_kernel
from kernelwright.engine.pack_check import check_kernel
from kernelwright.engine.pack_load import build_pack, kernel_cache, load_pack
from kernelwright.kernels.isa import levels_of, read_flags
from kernelwright.profiles.errors import BrokenInput

_spec = importlib.util.spec_from_file_location("packing", Path(__file__).with_name("packing.py"))
assert _spec and _spec.loader
packing = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(packing)

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler"),
    pytest.mark.skipif("x86-64-v2" not in levels_of(read_flags()), reason="the test kernel is for x86-64-v2"),
]


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    return packing.make_pack(tmp_path / "pack")


def only_folder(pack: Path) -> Path:
    return pack / read_manifest(pack).kernels[0].folder


def test_reads_back_what_was_written(pack: Path) -> None:
    (entry,) = read_manifest(pack).kernels
    kernel = read_kernel(pack, entry)
    assert entry.folder == f"kernels/add_rmsnorm_h576/{entry.candidate[:12]}"
    assert kernel.candidate.sources[0].content == packing.SOURCE
    assert (pack / entry.folder / "kernel.cpp").read_text() == packing.SOURCE
    assert kernel.verdict.accepted and entry.licence == "Apache-2.0"
    assert entry.ranges["T"].high == 8
    assert kernel.cases == ({"T": 1}, {"T": 8})


def test_rebuilds_to_the_bytes_that_were_judged(pack: Path, tmp_path: Path) -> None:
    (built,) = build_pack(pack, tmp_path / "cache")
    assert built.state == "as_judged" and built.binary is not None
    before = built.binary.stat().st_mtime_ns
    (again,) = build_pack(pack, tmp_path / "cache")
    assert again.binary == built.binary and again.binary.stat().st_mtime_ns == before
    (loaded,) = load_pack(pack, tmp_path / "cache")
    assert loaded.binary == built.binary


def test_another_binary_is_kept_and_said(pack: Path, tmp_path: Path) -> None:
    manifest = pack / "manifest.json"
    (entry,) = read_manifest(pack).kernels
    manifest.write_text(manifest.read_text().replace(str(entry.binary), "f" * 64))
    said: list[str] = []
    assert build_pack(pack, tmp_path / "cache")[0].state == "rebuilt"
    assert len(load_pack(pack, tmp_path / "cache", said.append)) == 1
    assert "rebuilt" in said[0] and "ffffffffffff" in said[0]


def test_a_kernel_for_another_cpu_is_skipped_with_the_reason(tmp_path: Path) -> None:
    problem = packing.make_problem()
    candidate = packing.make_candidate(problem, isa="armv8.2")
    verdict = packing.make_verdict(problem, candidate, "b" * 64)
    write_kernel(tmp_path / "pack", candidate, verdict, problem, model_digest="0" * 64, hardware="elsewhere")
    said: list[str] = []
    assert load_pack(tmp_path / "pack", tmp_path / "cache", said.append) == []
    assert "armv8.2" in said[0]


def test_a_source_that_does_not_compile_is_skipped_with_the_reason(tmp_path: Path) -> None:
    problem = packing.make_problem()
    candidate = packing.make_candidate(problem, source="this is no C++;\n")
    verdict = packing.make_verdict(problem, candidate, "b" * 64)
    write_kernel(tmp_path / "pack", candidate, verdict, problem, model_digest="0" * 64, hardware="elsewhere")
    (built,) = build_pack(tmp_path / "pack", tmp_path / "cache")
    assert built.state == "skipped" and "compile" in built.reason


def test_a_cache_that_cannot_be_written_is_used_but_not_filled(pack: Path, tmp_path: Path) -> None:
    build_pack(pack, tmp_path / "cache")
    blocked = tmp_path / "file"
    blocked.touch()
    (built,) = build_pack(pack, blocked)
    assert built.state == "skipped" and "cannot be written" in built.reason


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KERNELWRIGHT_KERNEL_CACHE", str(tmp_path))
    assert kernel_cache() == tmp_path


def test_checks_the_kernel_against_its_reference(pack: Path, tmp_path: Path) -> None:
    report = check_kernel(only_folder(pack), tmp_path / "cache")
    assert (report.state, report.binary, report.cases) == ("right", "as_judged", 6), report.describe()


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ("sum / (double)h + eps", "sum / (double)h + 2 * eps + 1e-4"),  # a wrong constant
        ("t < x.size[0]", "t < 1"),  # rows after the first are not written
        ("w.data[i];", "w.data[i ^ 1];"),  # a wrong index
    ],
)
def test_the_check_fires_on_a_wrong_kernel(tmp_path: Path, good: str, bad: str) -> None:
    assert good in packing.SOURCE
    pack = packing.make_pack(tmp_path / "pack", source=packing.SOURCE.replace(good, bad))
    report = check_kernel(only_folder(pack), tmp_path / "cache")
    assert report.state == "wrong" and report.findings


def test_its_own_test_passes_and_fails_with_the_kernel(pack: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONSAFEPATH": "1", "KERNELWRIGHT_KERNEL_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(pack)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr
    source = only_folder(pack) / "kernel.cpp"
    source.write_text(source.read_text().replace("* w.data[i]", ""))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 1 and "differs from what was judged" in done.stdout


def test_a_better_kernel_of_the_same_ranges_takes_the_place(pack: Path) -> None:
    problem = packing.make_problem()
    candidate = packing.make_candidate(problem, source=packing.SOURCE + "// again\n")
    write_kernel(
        pack,
        candidate,
        packing.make_verdict(problem, candidate, "b" * 64),
        problem,
        model_digest="0" * 64,
        hardware="x",
    )
    (entry,) = read_manifest(pack).kernels
    assert entry.binary == "b" * 64


@pytest.mark.parametrize("outcome", ["slower", "inconclusive", "incorrect", "suspect", "invalid", "unmeasured"])
def test_only_faster_gets_in(tmp_path: Path, outcome: str) -> None:
    problem = packing.make_problem()
    candidate = packing.make_candidate(problem)
    verdict = packing.make_verdict(problem, candidate, "b" * 64, outcome)
    with pytest.raises(ValueError, match="allows no patch"):
        write_kernel(tmp_path / "pack", candidate, verdict, problem, model_digest="0" * 64, hardware="x")


def test_a_verdict_about_something_else_does_not_get_it_in(tmp_path: Path) -> None:
    problem = packing.make_problem()
    candidate, other = packing.make_candidate(problem), packing.make_candidate(problem, source="// other\n")
    with pytest.raises(ValueError, match="another candidate"):
        write_kernel(
            tmp_path, candidate, packing.make_verdict(problem, other, None), problem, model_digest="", hardware="x"
        )
    wider = problem.model_copy(update={"timed_axes": {"T": 2}})
    with pytest.raises(ValueError, match="another problem"):
        write_kernel(
            tmp_path, candidate, packing.make_verdict(problem, candidate, None), wider, model_digest="", hardware="x"
        )


@pytest.mark.parametrize("path", ["conftest.py", "test_kernel.py", "verdict.json", "sub/conftest.py", ".hidden.cpp"])
def test_a_source_must_not_pose_as_something_else(tmp_path: Path, path: str) -> None:
    problem = packing.make_problem()
    candidate = packing.make_candidate(problem, path=path)
    with pytest.raises(BrokenInput, match="takes no"):
        write_kernel(
            tmp_path, candidate, packing.make_verdict(problem, candidate, None), problem, model_digest="", hardware="x"
        )


def damaged(pack: Path, what: str) -> None:
    folder = only_folder(pack)
    if what == "no manifest":
        (pack / "manifest.json").unlink()
    elif what == "half a manifest":
        (pack / "manifest.json").write_text((pack / "manifest.json").read_text()[:100])
    elif what == "path in a name":
        text = (pack / "manifest.json").read_text()
        (pack / "manifest.json").write_text(text.replace("add_rmsnorm_h576", "../../etc"))
    elif what == "other verdict":
        (folder / "verdict.json").write_text((folder / "verdict.json").read_text().replace("2.5", "9.5"))
    elif what == "other candidate":
        (folder / "candidate.json").write_text((folder / "candidate.json").read_text().replace("plain_loop", "me"))
    elif what == "no definition":
        (folder / "definition.json").unlink()


@pytest.mark.parametrize(
    "what", ["no manifest", "half a manifest", "path in a name", "other verdict", "other candidate", "no definition"]
)
def test_a_broken_pack_is_refused_with_a_remedy(pack: Path, tmp_path: Path, what: str) -> None:
    damaged(pack, what)
    with pytest.raises(BrokenInput) as caught:
        load_pack(pack, tmp_path / "cache")
    assert caught.value.remedy and caught.value.exit_code == 4
