"""A bundle says what was judged and nothing about whoever judged it; whatever is changed in it is found."""

from __future__ import annotations

import gzip
import io
import math
import shutil
import socket
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelwright.kernels.candidate import Candidate, SourceFile
from kernelwright.kernels.definition import RandomInput, StoredInput, Workload
from kernelwright.kernels.problem import Problem
from kernelwright.profiles.digest import digest_of
from kernelwright.profiles.errors import BrokenInput
from kernelwright.sandbox import bundle as bundles
from kernelwright.sandbox.bundle import pack_bundle, read_bundle, without_places, write_bundle
from kernelwright.sandbox.controls import Controls
from kernelwright.sandbox.replay import Replay, parse_keys, replay
from kernelwright.sandbox.ruling import Ruling, write_verdict
from kernelwright.sandbox.stats import Launch, bootstrap, decide
from kernelwright.sandbox.verdict import Correctness, Evaluation, Verdict
from tests.sandbox.posed import load_evil, pose

SECRET = "the words somebody typed"


def stored_problem() -> Problem:
    workload = Workload(
        uuid="captured",
        axes={"T": 3},
        inputs={"x": StoredInput(path="inputs/a.safetensors", tensor_key="x"), "w": RandomInput()},
    )
    return pose().model_copy(update={"workloads": (workload,)})


def recorded(problem: Problem, candidate: Candidate, phase: str = "confirm") -> Verdict:
    """A verdict as the judge writes it for a candidate twice as fast, from made-up samples."""
    times = [1e-3 * (1 + 0.01 * math.sin(i)) for i in range(12)]
    launches = [Launch(tuple(times), tuple(t / 2 * (1 + 0.001 * n) for t in times)) for n in range(5)]
    ruling = Ruling(candidate, phase, started=0.0)
    ruling.keys = [f"{n:064x}" for n in range(1, 6)]
    ruling.saw_isolation("L3", {"seccomp": "filter"})
    ruling.evaluations.append(
        Evaluation(
            workload="hidden-0",
            status="PASSED",
            correctness=Correctness(max_relative_error=1e-7, max_absolute_error=2e-6),
        )
    )
    interval = bootstrap(launches)
    ruling.compare(interval, launches, 0.01, 0.95)
    ruling.note("lower end of the speed-up's interval", interval.low, 1.01, interval.low > 1.01)
    ruling.settle(*decide(interval, 0.01))
    return write_verdict(problem, ruling, Controls())


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evidence")
    (folder / "problem/inputs").mkdir(parents=True)
    (folder / "problem/inputs/a.safetensors").write_bytes(SECRET.encode())
    problem = stored_problem()
    candidate = load_evil("honest.cpp", problem)
    return write_bundle(
        folder / "bundle",
        problem,
        candidate,
        recorded(problem, candidate),
        problem_dir=folder / "problem",
        model="a" * 64,
    )


def check(folder: Path) -> Replay:
    return replay(read_bundle(folder), full=False)


def failed(found: Replay) -> set[str]:
    return {c.name for c in found.checks if c.passed is False}


def changed(written: Path, target: Path, **nouns: Any) -> Path:
    """Write the bundle again with `verdict=…` and so on changed, and with digests that hold."""
    bundle = read_bundle(written)
    parts = {"problem": bundle.problem, "candidate": bundle.candidate, "verdict": bundle.verdict, **nouns}
    return write_bundle(target, parts["problem"], parts["candidate"], parts["verdict"])


def test_what_was_written_is_read_and_holds(written: Path, tmp_path: Path) -> None:
    bundle = read_bundle(written)
    assert (digest_of(bundle.problem), digest_of(bundle.candidate)) == (
        bundle.verdict.problem,
        bundle.verdict.candidate,
    )
    assert list(bundle.problem.definition.inputs) == list(pose().definition.inputs), "their order has a meaning"
    assert bundle.sources.keys() == {"honest.cpp", "linear.h"} and bundle.altered == ()
    found = check(written)
    assert found.passed and found.accepted, found
    packed = pack_bundle(written, tmp_path / "b.tar.gz")
    assert read_bundle(packed) == bundle


def test_equal_verdicts_give_equal_bytes(written: Path, tmp_path: Path) -> None:
    bundle = read_bundle(written)
    for name in ("a", "b"):
        write_bundle(tmp_path / name, bundle.problem, bundle.candidate, bundle.verdict)
        pack_bundle(tmp_path / name, tmp_path / f"{name}.tar.gz")
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="sha256sum is not installed")
def test_plain_tools_check_the_digests(written: Path) -> None:
    assert subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=written).returncode == 0


def test_captured_tensors_stay_out_and_are_named_by_digest(written: Path) -> None:
    content = b"".join(p.read_bytes() for p in written.rglob("*") if p.is_file())
    assert SECRET.encode() not in content and not list(written.rglob("*.safetensors"))
    assert len(read_bundle(written).named.withheld["inputs/a.safetensors"]) == 64


def test_texts_lose_paths_host_and_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "ada-box")
    monkeypatch.setenv("LOGNAME", "lovelace")
    log = 'File "/home/lovelace/engine/x.py", line 3\nada-box: lovelace ran at 3/4 of /tmp/a-b/c.so'
    problem = pose()
    verdict = recorded(problem, problem.incumbent)
    noisy = verdict.model_copy(
        update={
            "evaluations": (Evaluation(workload="run", status="RUNTIME_ERROR", log=log),),
            "isolation_facts": {"host": "ada-box"},
        }
    )
    clean = without_places(noisy)
    assert clean.evaluations[0].log == 'File ".../x.py", line 3\nHOST: ACCOUNT ran at 3/4 of .../c.so'
    assert clean.isolation_facts == {"host": "HOST"}
    assert without_places(verdict) == verdict


def test_what_is_not_finite_survives(tmp_path: Path) -> None:
    problem = pose()
    worst = Evaluation(
        workload="a", status="INCORRECT_NUMERICAL",
        correctness=Correctness(max_relative_error=math.inf, max_absolute_error=math.nan),
    )  # fmt: skip
    verdict = recorded(problem, problem.incumbent).model_copy(update={"evaluations": (worst,)})
    read = read_bundle(write_bundle(tmp_path / "b", problem, problem.incumbent, verdict)).verdict.evaluations[0]
    assert read.correctness is not None
    assert math.isinf(read.correctness.max_relative_error) and math.isnan(read.correctness.max_absolute_error)


# ---- whatever is changed is found


def test_any_changed_byte_is_found(written: Path, tmp_path: Path) -> None:
    files = sorted(p.relative_to(written) for p in written.rglob("*") if p.is_file())

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(files), st.integers(0, 10**9), st.integers(1, 255))
    def edit(name: Path, at: int, flip: int) -> None:
        shutil.rmtree(tmp_path / "edited", ignore_errors=True)
        shutil.copytree(written, tmp_path / "edited")
        content = bytearray((written / name).read_bytes())
        content[at % len(content)] ^= flip
        (tmp_path / "edited" / name).write_bytes(content)
        try:
            found = check(tmp_path / "edited")
        except BrokenInput:
            return
        assert not found.passed and "files" in failed(found)

    edit()


@pytest.mark.parametrize("change", ["removed", "added"])
def test_a_file_too_few_or_too_many_is_found(written: Path, tmp_path: Path, change: str) -> None:
    shutil.copytree(written, tmp_path / "b")
    if change == "added":
        (tmp_path / "b/note.txt").write_text("it is fine")
    else:
        (tmp_path / "b/sources/linear.h").unlink()
    assert "files" in failed(check(tmp_path / "b"))


def with_comparison(verdict: Verdict, **values: Any) -> Verdict:
    assert verdict.comparison is not None
    return verdict.model_copy(update={"comparison": verdict.comparison.model_copy(update=values)})


def with_sample(verdict: Verdict, value: float) -> Verdict:
    first = verdict.launches[0]
    faster = first.model_copy(update={"candidate": (value,) * len(first.candidate)})
    return verdict.model_copy(update={"launches": (faster, *verdict.launches[1:])})


def with_waits(verdict: Verdict, share: float, **of_candidate: Any) -> Verdict:
    """The incumbent waited for `share` of its time."""
    launches = []
    for launch in verdict.launches:
        waits = {"incumbent_waited": tuple(share * t for t in launch.incumbent), "candidate_waited": (0.0,) * 12}
        launches.append(launch.model_copy(update=waits | of_candidate))
    return verdict.model_copy(update={"launches": tuple(launches)})


def with_rule(verdict: Verdict, **values: Any) -> Verdict:
    return verdict.model_copy(update={"decisions": (verdict.decisions[0].model_copy(update=values),)})


FORGERIES: dict[str, tuple[Callable[[Verdict], Verdict], str]] = {
    "ratio": (lambda v: with_comparison(v, ratio=2.1), "statistics"),
    "low": (lambda v: with_comparison(v, low=1.999), "statistics"),
    "high": (lambda v: with_comparison(v, high=3.0), "statistics"),
    "pairs": (lambda v: with_comparison(v, n=600), "statistics"),
    "time": (lambda v: with_comparison(v, candidate_us=1.0), "statistics"),
    "confidence": (lambda v: with_comparison(v, confidence=0.5), "statistics"),
    "sample": (lambda v: with_sample(v, 1e-9), "statistics"),
    "sample_zero": (lambda v: with_sample(v, 0.0), "statistics"),
    "sample_nan": (lambda v: with_sample(v, math.nan), "statistics"),
    "waits_of_most": (lambda v: with_waits(v, 0.6), "statistics"),
    "waits_below_zero": (lambda v: with_waits(v, -0.1), "statistics"),
    "waits_of_one_arm": (lambda v: with_waits(v, 0.0, candidate_waited=()), "statistics"),
    "waits_nan": (lambda v: with_waits(v, math.nan), "statistics"),
    "no_samples": (lambda v: v.model_copy(update={"launches": ()}), "statistics"),
    "slower": (lambda v: v.model_copy(update={"outcome": "slower"}), "statistics"),
    "inconclusive": (lambda v: v.model_copy(update={"outcome": "inconclusive"}), "statistics"),
    "floor": (lambda v: with_comparison(v, floor=1.5), "statistics"),
    "a_failed_rule": (lambda v: with_rule(v, passed=False), "decisions"),
    "another_low": (lambda v: with_rule(v, found=1.7), "decisions"),
    "no_rules": (lambda v: v.model_copy(update={"decisions": ()}), "decisions"),
    "a_failed_case": (
        lambda v: v.model_copy(update={"evaluations": (Evaluation(workload="a", status="TIMEOUT"),)}), "decisions",
    ),
    "isolation": (lambda v: v.model_copy(update={"isolation": "L1"}), ""),
    "isolation_claimed": (lambda v: v.model_copy(update={"isolation_facts": {"controls_off": "poison"}}), "acceptance"),
    "one_key": (lambda v: v.model_copy(update={"key": ",".join(["00" * 32] * 5)}), "acceptance"),
    "no_evaluations": (lambda v: v.model_copy(update={"evaluations": ()}), "acceptance"),
    "other_problem": (lambda v: v.model_copy(update={"problem": "0" * 64}), "belonging"),
    "other_candidate": (lambda v: v.model_copy(update={"candidate": "0" * 64}), "belonging"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_verdict_with_digests_that_hold_is_found(written: Path, tmp_path: Path, name: str) -> None:
    forge, caught_by = FORGERIES[name]
    found = check(changed(written, tmp_path / "b", verdict=forge(read_bundle(written).verdict)))
    assert "files" not in failed(found)
    if name == "isolation":
        assert "acceptance" in failed(found), "it calls itself faster in confirm and may not"
    else:
        assert caught_by in failed(found), found


def test_a_digest_from_elsewhere_binds_what_no_statistic_does(written: Path, tmp_path: Path) -> None:
    bundle = read_bundle(written)
    first = bundle.verdict.launches[0]
    outlier = first.model_copy(update={"candidate": (1e-9, *first.candidate[1:])})
    verdict = bundle.verdict.model_copy(update={"launches": (outlier, *bundle.verdict.launches[1:])})
    forged = read_bundle(changed(written, tmp_path / "b", verdict=verdict))
    assert replay(forged, full=False).passed, "one sample moves no median; whoever rewrites the digests goes unseen"
    assert failed(replay(forged, full=False, digest=bundle.digest)) == {"files"}
    assert replay(bundle, full=False, digest=bundle.digest).passed


def test_another_source_or_problem_is_found(written: Path, tmp_path: Path) -> None:
    bundle = read_bundle(written)
    source = SourceFile(path="honest.cpp", content="// another\n")
    other = bundle.candidate.model_copy(update={"sources": (source,)})
    assert failed(check(changed(written, tmp_path / "a", candidate=other))) == {"belonging"}
    looser = bundle.problem.model_copy(update={"timed_axes": {"T": 1}})
    assert failed(check(changed(written, tmp_path / "b", problem=looser))) == {"belonging"}


def test_a_search_claims_nothing(tmp_path: Path) -> None:
    problem = pose()
    verdict = recorded(problem, problem.incumbent, "search").model_copy(update={"isolation": "L1"})
    found = check(write_bundle(tmp_path / "b", problem, problem.incumbent, verdict))
    assert found.passed and not found.accepted


def test_keys_must_be_keys() -> None:
    problem = pose()
    verdict = recorded(problem, problem.incumbent)
    assert len(parse_keys(verdict)) == 5
    for wrong in ("xyz", "00" * 31, "00" * 32 + ",0"):
        with pytest.raises(ValueError, match=r"byte|hex"):
            parse_keys(verdict.model_copy(update={"key": wrong}))


# ---- what is no bundle


def archive(folder: Path, *entries: tarfile.TarInfo) -> Path:
    with tarfile.open(folder / "x.tar.gz", "w:gz") as tar:
        for entry in entries:
            tar.addfile(entry, io.BytesIO(b"x" * entry.size) if entry.isreg() else None)
    return folder / "x.tar.gz"


def entry(name: str, size: int = 1, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = size if kind == tarfile.REGTYPE else 0, kind, link
    return info


@pytest.mark.parametrize(
    "bad",
    [
        entry("../escape"),
        entry("/etc/cron.d/x"),
        entry("sources/../../x"),
        entry("verdict.json", kind=tarfile.SYMTYPE, link="/etc/passwd"),
        entry("verdict.json", kind=tarfile.LNKTYPE, link="/etc/passwd"),
        entry("pipe", kind=tarfile.FIFOTYPE),
        entry("disk", kind=tarfile.CHRTYPE),
        entry("huge", size=bundles.FILE_BYTES + 1),
    ],
    ids=lambda e: f"{e.name}-{e.type.decode()}",
)
def test_archives_that_reach_out_are_refused(tmp_path: Path, bad: tarfile.TarInfo) -> None:
    with pytest.raises(BrokenInput):
        read_bundle(archive(tmp_path, entry("problem.json"), bad))


def test_a_name_twice_and_too_many_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BrokenInput, match="twice"):
        read_bundle(archive(tmp_path, entry("a"), entry("a")))
    with pytest.raises(BrokenInput, match="too many"):
        read_bundle(archive(tmp_path, *(entry(f"f{i}") for i in range(bundles.MOST_FILES + 1))))


def test_an_archive_that_swells_is_refused(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "x.tar.gz", "wb", compresslevel=1) as stream:
        for _ in range(bundles.TOTAL_BYTES // (1 << 20) + 1):
            stream.write(bytes(1 << 20))
    with pytest.raises(BrokenInput, match="unpacks to more"):
        read_bundle(tmp_path / "x.tar.gz")


def test_links_in_a_folder_are_refused(written: Path, tmp_path: Path) -> None:
    shutil.copytree(written, tmp_path / "b")
    (tmp_path / "b/sources/more.h").symlink_to("/etc/passwd")
    with pytest.raises(BrokenInput, match="neither"):
        read_bundle(tmp_path / "b")


def test_what_is_missing_or_no_json_is_told(written: Path, tmp_path: Path) -> None:
    with pytest.raises(BrokenInput, match="cannot read"):
        read_bundle(tmp_path / "nowhere.tar.gz")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BrokenInput, match="SHA256SUMS"):
        read_bundle(tmp_path / "empty")
    shutil.copytree(written, tmp_path / "b")
    (tmp_path / "b/verdict.json").write_text("{}")
    with pytest.raises(BrokenInput, match="no Verdict"):
        read_bundle(tmp_path / "b")


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=400), st.integers(0, 3))
def test_no_bytes_are_more_than_broken_input(tmp_path: Path, content: bytes, kind: int) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(gzip.compress(content) if kind else content)
    with pytest.raises(BrokenInput):
        read_bundle(path)


def test_no_damage_to_an_archive_is_more_than_broken_input(written: Path, tmp_path: Path) -> None:
    whole = pack_bundle(written, tmp_path / "b.tar.gz").read_bytes()
    digest = read_bundle(tmp_path / "b.tar.gz").digest

    @settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, len(whole) - 1), st.integers(1, 255))
    def damage(at: int, flip: int) -> None:
        content = bytearray(whole)
        content[at] ^= flip
        (tmp_path / "b.tar.gz").write_bytes(content)
        try:
            bundle = read_bundle(tmp_path / "b.tar.gz")
        except BrokenInput:
            return
        assert (bundle.digest, bundle.altered) == (digest, ()), "only the archive's own header may change unseen"

    damage()
