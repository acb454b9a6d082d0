"""doctor says, for every cage: usable or not, the level it reaches here, what is missing, its cost and the remedy."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kernelwright.engine.doctor import Finding, examine
from kernelwright.sandbox.remedy import APPARMOR_PROFILE, CONTAINER_FLAGS, explain_refusal


def find(name: str) -> Finding:
    return {finding.name: finding for finding in examine()}[name]


@pytest.fixture
def no_daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")


@pytest.mark.cage
def test_bubblewrap_is_measured(no_daemon: None) -> None:
    found = find("bubblewrap")
    assert (found.level, found.state, found.needed, found.cost) == ("L3", "ok", True, "")
    assert "limits by" in found.detail


def test_the_process_cage_says_what_it_costs(no_daemon: None) -> None:
    found = find("process")
    assert (found.level, found.state, found.needed) == ("L1", "note", False)
    assert "no patch" in found.cost and found.cost in found.detail and "bubblewrap" in found.remedy


def test_no_daemon_says_what_that_costs_and_how_to_start_one(no_daemon: None) -> None:
    found = find("docker")
    assert (found.level, found.state, found.needed) == (None, "missing", False)
    assert "`image build`" in found.cost and "dockerd" in found.remedy and "no Docker daemon" in found.detail


def test_no_bubblewrap_is_a_lack_of_the_main_job(
    no_daemon: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find("bubblewrap")
    assert (found.level, found.state, found.needed) == (None, "missing", True)
    assert "unverified" in found.cost and "apt-get install" in found.remedy


def test_a_bubblewrap_that_is_refused_says_why(
    no_daemon: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A program that fails as bwrap does where namespaces are refused stands for such a machine."""
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    program.chmod(0o755)
    tmp_path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find("bubblewrap")
    assert (found.level, found.state) == (None, "missing")
    assert found.remedy and "unverified" in found.detail


@pytest.mark.alone
@pytest.mark.docker
@pytest.mark.cage
def test_a_daemon_is_measured_and_stands_in_for_bubblewrap(
    daemon: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert (find("docker").level, find("docker").state) == ("L3", "ok")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find("bubblewrap")
    assert (found.state, found.needed) == ("missing", False), "the main job can be done with --cage docker"


def test_without_a_daemon_it_is_fast(no_daemon: None) -> None:
    started = time.process_time()
    examine()
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("file", "value", "remedy"),
    [
        ("proc/sys/user/max_user_namespaces", "0\n", "user.max_user_namespaces="),
        ("proc/sys/kernel/unprivileged_userns_clone", "0\n", "unprivileged_userns_clone=1"),
        ("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n", APPARMOR_PROFILE),
        (".dockerenv", "", CONTAINER_FLAGS),
        ("run/.containerenv", "", CONTAINER_FLAGS),
        ("nothing", "", "--cage docker"),
    ],
)
def test_each_cause_has_its_own_remedy(tmp_path: Path, file: str, value: str, remedy: str) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(value)
    cause, advice = explain_refusal(tmp_path)
    assert cause and remedy in advice


def test_settings_that_allow_namespaces_are_no_cause(tmp_path: Path) -> None:
    folder = tmp_path / "proc/sys/kernel"
    folder.mkdir(parents=True)
    (folder / "unprivileged_userns_clone").write_text("1\n")
    (folder / "apparmor_restrict_unprivileged_userns").write_text("0\n")
    assert "no setting" in explain_refusal(tmp_path)[0]
