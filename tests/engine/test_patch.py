"""Kernels become commits on a branch of any repository, and nothing else in it moves."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.engine.bundle import bundle_digest, write_bundle
from kernelwright.engine.pack import read_manifest, write_kernel
from kernelwright.engine.patch import Patch, commit_pack
from kernelwright.profiles.digest import digest_of
from kernelwright.profiles.errors import BrokenInput, EnvironmentLacks
from kernelwright.sandbox.selftest_record import record_path, save_record
from tests.vouch import make_record

_spec = importlib.util.spec_from_file_location("packing", Path(__file__).with_name("packing.py"))
assert _spec and _spec.loader
packing = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(packing)

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="no git")


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No user.name, no user.email, no configuration of the person who runs the tests."""
    for name in list(os.environ):
        if name.startswith("GIT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    save_record(make_record())


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def add_kernel(folder: Path, hidden: int, source: str = packing.SOURCE) -> str:
    problem = packing.make_problem(hidden)
    candidate = packing.make_candidate(problem, source)
    verdict = packing.make_verdict(problem, candidate, "b" * 64)
    write_kernel(folder, candidate, verdict, problem, model_digest="0" * 64, hardware="a test machine, 2 cores")
    return digest_of(candidate)


@pytest.fixture
def session(tmp_path: Path) -> Path:
    folder = tmp_path / "20260101-120000"
    add_kernel(folder / "pack", 576)
    add_kernel(folder / "pack", 64)
    write_bundle(folder / "evidence", {"gate.json": "{}\n"})
    return folder


def commit(repo: Path | None, session: Path, **more: object) -> Patch:
    return commit_pack(repo, session, session / "pack", session / "evidence", **more)  # type: ignore[arg-type]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository of somebody's, with a file, a hook that forbids everything, and signing switched on."""
    folder = tmp_path / "engine"
    folder.mkdir()
    git(folder, "init", "--quiet", "-b", "trunk")
    (folder / "main.py").write_text("print('hello')\n")
    (folder / ".gitignore").write_text("*.json\nkernels/\n")
    git(folder, "add", "--all")
    git(folder, "-c", "user.name=Ada", "-c", "user.email=ada@example.org", "commit", "--quiet", "-m", "Begin")
    for hook in ("pre-commit", "commit-msg", "prepare-commit-msg", "post-checkout", "post-commit"):
        path = folder / ".git" / "hooks" / hook
        path.write_text(f"#!/bin/sh\ntouch {tmp_path}/hook-ran\nexit 1\n")
        path.chmod(0o755)
    git(folder, "config", "commit.gpgSign", "true")
    git(folder, "config", "gpg.program", "/bin/false")
    return folder


def state_of(repo: Path) -> tuple[str, str, str]:
    return (git(repo, "status", "--porcelain"), git(repo, "rev-parse", "HEAD"), git(repo, "stash", "list"))


def test_makes_a_pack_repository_where_there_is_none(session: Path) -> None:
    patch = commit(None, session, comparison="c" * 64)
    repository = Path(patch.repository)
    assert repository == session / "repository"
    assert patch.branch == "kernelwright/20260101-120000" and patch.folder == "."
    assert patch.selftest == digest_of(make_record())
    assert git(repository, "rev-parse", patch.branch) == patch.commit
    assert git(repository, "rev-list", "--count", f"{patch.base}..{patch.commit}") == "3"  # two kernels, the evidence
    assert [k.definition for k in patch.kernels] == ["add_rmsnorm_h576", "add_rmsnorm_h64"]
    assert patch.evidence == bundle_digest(session / "evidence") and patch.comparison == "c" * 64
    assert git(repository, "status", "--porcelain") == "" and not (session / "worktree").exists()
    assert git(repository, "log", "-1", "--format=%an <%ae>", patch.commit) == "kernelwright <kernelwright@localhost>"


def test_each_message_has_outcome_interval_machine_disclosure_and_an_open_sign_off(session: Path) -> None:
    note = "Attempts: 12 judged, 3 rejected."
    patch = commit(None, session, notes={read_manifest(session / "pack").kernels[0].candidate: note})
    text = git(Path(patch.repository), "log", "-1", "--format=%B", patch.kernels[0].commit)
    assert text.splitlines()[0] == "Run add_rmsnorm 2.50 times as fast (T 1..8)"
    for part in (
        "2.50x [2.25, 2.75]",
        "n=60 pairs",
        "3 launches",
        "a test machine, 2 cores",
        note,
        "Made as: unlabelled",
        "AI use:",
    ):
        assert part in text
    assert patch.kernels[0].candidate in text and patch.kernels[0].verdict in text
    assert text.rstrip().splitlines()[-1] == "Signed-off-by:"
    assert all(len(line) <= 100 for line in text.splitlines())


def test_goes_to_somebodys_repository_and_touches_nothing_else(repo: Path, session: Path, tmp_path: Path) -> None:
    (repo / "main.py").write_text("print('work in progress')\n")
    (repo / "staged.txt").write_text("staged\n")
    git(repo, "add", "staged.txt")
    before = state_of(repo)
    patch = commit(repo, session)
    assert state_of(repo) == before
    assert not (tmp_path / "hook-ran").exists()
    assert patch.folder == "kernel-pack" and patch.base == before[1]
    files = git(repo, "ls-tree", "-r", "--name-only", patch.branch).splitlines()
    kernel = read_manifest(session / "pack").kernels[0].folder
    for name in ("candidate.json", "verdict.json", "kernel.cpp", "test_kernel.py", "LICENSE.spdx"):
        assert f"kernel-pack/{kernel}/{name}" in files  # though .gitignore names *.json and kernels/
    assert "kernel-pack/evidence/20260101-120000/SHA256SUMS" in files and "main.py" in files
    assert git(repo, "diff", "--name-status", "trunk", patch.branch, "--", ".", ":!kernel-pack") == ""
    assert git(repo, "worktree", "list").count("\n") == 0


def test_the_users_own_name_is_the_author(repo: Path, session: Path) -> None:
    git(repo, "config", "user.name", "Ada")
    git(repo, "config", "user.email", "ada@example.org")
    patch = commit(repo, session)
    assert git(repo, "log", "-1", "--format=%an %ae %cn", patch.commit) == "Ada ada@example.org Ada"


def test_detached_head_and_bare_repositories_work(repo: Path, session: Path, tmp_path: Path) -> None:
    git(repo, "-c", "core.hooksPath=/dev/null", "checkout", "--quiet", "--detach")
    assert commit(repo, session).base == git(repo, "rev-parse", "trunk")
    subprocess.run(["git", "clone", "--quiet", "--bare", str(repo), str(tmp_path / "bare.git")], check=True)
    patch = commit(tmp_path / "bare.git", session)
    assert git(tmp_path / "bare.git", "rev-parse", patch.branch) == patch.commit


def test_a_branch_that_exists_is_left_alone(repo: Path, session: Path) -> None:
    first, second = commit(repo, session), commit(repo, session)
    assert second.branch == f"{first.branch}-2"
    assert git(repo, "rev-parse", first.branch) == first.commit
    git(repo, "branch", "-D", first.branch, second.branch)
    git(repo, "branch", "kernelwright")
    assert commit(repo, session).branch == "kernelwright-20260101-120000"


def test_a_second_session_replaces_kernels_of_the_same_ranges(session: Path, tmp_path: Path) -> None:
    first = commit(None, session)
    repository = Path(first.repository)
    git(repository, "merge", "--quiet", first.branch)
    later = tmp_path / "later"
    new = add_kernel(later / "pack", 576, packing.SOURCE + "// better\n")
    write_bundle(later / "evidence", {"gate.json": "{}\n"})
    patch = commit(repository, later)
    git(repository, "checkout", "--quiet", patch.branch)
    listed = {entry.definition: entry.candidate for entry in read_manifest(repository).kernels}
    assert listed["add_rmsnorm_h576"] == new and len(listed) == 2
    assert [p.name for p in (repository / "kernels" / "add_rmsnorm_h576").iterdir()] == [new[:12]]


def test_what_a_killed_session_left_is_no_obstacle(repo: Path, session: Path) -> None:
    git(repo, "-c", "core.hooksPath=/dev/null", "worktree", "add", "--quiet", "-b", "x", str(session / "worktree"))
    assert commit(repo, session).branch == "kernelwright/20260101-120000"


def test_on_failure_neither_branch_nor_worktree_stays(repo: Path, session: Path) -> None:
    before = git(repo, "branch", "--list")
    (session / "evidence" / "gate.json").write_text("changed")
    with pytest.raises(BrokenInput, match=r"gate\.json"):
        commit(repo, session)
    assert git(repo, "branch", "--list") == before
    assert git(repo, "worktree", "list").count("\n") == 0 and not (session / "worktree").exists()


def test_no_repository_and_no_commit_are_told_apart(session: Path, tmp_path: Path) -> None:
    with pytest.raises(BrokenInput, match="not a git repository"):
        commit(tmp_path, session)
    with pytest.raises(BrokenInput, match="not a git repository"):
        commit(tmp_path / "missing", session)
    git(tmp_path, "init", "--quiet", "unborn")
    with pytest.raises(BrokenInput, match="no commit") as caught:
        commit(tmp_path / "unborn", session)
    assert caught.value.remedy


def test_an_empty_pack_makes_no_patch(session: Path) -> None:
    manifest = session / "pack" / "manifest.json"
    manifest.write_text(read_manifest(session / "pack").model_copy(update={"kernels": ()}).model_dump_json())
    with pytest.raises(ValueError, match="empty pack"):
        commit(None, session)


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_a_clean_clone_passes_its_own_tests(tmp_path: Path) -> None:
    session = tmp_path / "s1"
    packing.make_pack(session / "pack", 576, 64)
    write_bundle(session / "evidence", {"gate.json": "{}\n"})
    patch = commit(None, session)
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "-b", patch.branch, patch.repository, str(clone)], check=True)
    environment = os.environ | {"PYTHONSAFEPATH": "1", "KERNELWRIGHT_KERNEL_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"], cwd=clone, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr
    assert bundle_digest(clone / "evidence" / "s1") == patch.evidence
    assert digest_of(read_manifest(clone)) == patch.pack


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (None, "has not been tested"),
        (make_record(harness="0" * 64), "has changed"),
        (make_record(host="0" * 64), "another machine"),
        (make_record(accepted=True), "exploit fake was accepted"),
        (make_record(isolation="L1"), "isolation L1"),
    ],
)
def test_without_a_good_selftest_of_this_judge_there_is_no_patch(session: Path, record: object, why: str) -> None:
    record_path().unlink()
    if record is not None:
        save_record(record)  # type: ignore[arg-type]
    with pytest.raises(EnvironmentLacks, match=why) as caught:
        commit(None, session)
    assert "kernelwright selftest" in caught.value.remedy
    assert not (session / "repository").exists()
