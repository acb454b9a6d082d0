"""Patch: the accepted kernels as commits on a branch of a git repository, with their evidence.

Commits are made in a worktree of their own in which only the pack is checked out: the user's checkout, index and stash
are never touched, and the size of the repository does not matter. Hooks are off for these commits: they would run in an
unattended process on sources nobody has read; they run when a person merges. Signing is off: a person's key must not
vouch for what no person has seen.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ValidationError

from kernelwright.engine.bundle import bundle_digest
from kernelwright.engine.pack import MANIFEST, KernelEntry, PackManifest, read_kernel, read_manifest, write_manifest
from kernelwright.engine.patch_message import evidence_message, kernel_message
from kernelwright.profiles.digest import digest_of
from kernelwright.profiles.errors import BrokenInput, EnvironmentLacks
from kernelwright.sandbox.selftest_record import require_selftest

if TYPE_CHECKING:
    import git

PACK_FOLDER = "kernel-pack"
QUIET = ("-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false", "-c", "core.autocrlf=false")
NOBODY = "kernelwright"


class PatchedKernel(BaseModel, frozen=True, extra="forbid"):
    definition: str
    candidate: str
    verdict: str
    commit: str


class Patch(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """A branch of commits, one per kernel and one with the evidence of the whole stack."""

    schema_version: Literal[1] = 1
    repository: str
    branch: str
    base: str
    """Commit it starts from."""
    commit: str
    """Tip of the branch."""
    folder: str
    """The pack's folder in the repository; "." when the repository is a pack."""
    kernels: tuple[PatchedKernel, ...]
    pack: str
    """Digest of the PackManifest."""
    evidence: str
    """Digest of the evidence bundle."""
    comparison: str | None
    """Digest of the GateResult in the evidence; None when no gate was run."""
    selftest: str
    """Digest of this machine's selftest record, which vouches for the judge."""


def commit_pack(
    repo: Path | None,
    session_dir: Path,
    pack_dir: Path,
    evidence_dir: Path,
    *,
    session_id: str | None = None,
    comparison: str | None = None,
    notes: dict[str, str] | None = None,
    selftest: Path | None = None,
) -> Patch:
    """Commit the kernels of `pack_dir` and the bundle `evidence_dir` on a branch `kernelwright/<session id>`.

    `repo` is any git repository, bare or with a checkout in any state; None makes a kernel-pack repository in the
    session folder. In a repository that is no pack the kernels go to `kernel-pack/`. `notes` are lines for a kernel's
    message, by candidate digest (attempts judged, engine-level gain). If the branch exists, `-2`, `-3` … is used.

    Raises BrokenInput when `repo` is no git repository or has no commit, or when the pack cannot be read,
    EnvironmentLacks without git or without a passed selftest of this judge on this machine (`selftest`: its record,
    default: the usual place), ValueError when the pack is empty.
    """
    vouched = require_selftest(selftest)
    manifest = read_manifest(pack_dir)
    if not manifest.kernels:
        raise ValueError("an empty pack makes no patch")
    repository = _open(repo) if repo else _pack_repository(session_dir / "repository", manifest)
    with contextlib.closing(repository):
        base = _base_commit(repository)
        branch = _free_branch(repository, f"kernelwright/{_ref_name(session_id or session_dir.resolve().name)}")
        with _worktree(repository, branch, base, session_dir.resolve() / "worktree") as tree:
            folder = _pack_folder(tree)
            kernels = _commit_kernels(tree, folder, pack_dir, manifest, notes or {})
            evidence = _commit_evidence(tree, folder, evidence_dir, branch.rpartition("/")[2], manifest)
        return Patch(
            repository=str(Path(repository.working_tree_dir or repository.git_dir).resolve()),
            branch=branch,
            base=base,
            commit=repository.commit(branch).hexsha,
            folder=folder,
            kernels=kernels,
            pack=digest_of(manifest),
            evidence=evidence,
            comparison=comparison,
            selftest=digest_of(vouched),
        )


def _commit_kernels(
    tree: git.Repo, folder: str, pack_dir: Path, manifest: PackManifest, notes: dict[str, str]
) -> tuple[PatchedKernel, ...]:
    root = Path(str(tree.working_tree_dir)) / folder
    listed = read_manifest(root) if (root / MANIFEST).exists() else manifest.model_copy(update={"kernels": ()})
    done = []
    for entry in manifest.kernels:
        kernel = read_kernel(pack_dir, entry)
        # what it replaces goes with it, so that the tests of a checkout are the tests of what is listed
        replaced = [k for k in listed.kernels if (k.definition, k.ranges) == (entry.definition, entry.ranges)]
        kept = [k for k in listed.kernels if k not in replaced]
        for old in (*replaced, entry):
            shutil.rmtree(root / old.folder, ignore_errors=True)
        shutil.copytree(pack_dir / entry.folder, root / entry.folder)
        listed = PackManifest(name=listed.name, model_digest=manifest.model_digest, kernels=(*kept, entry))
        write_manifest(root, listed)
        _add(tree, folder, [k.folder for k in replaced], entry)
        _commit(tree, kernel_message(kernel, notes.get(entry.candidate, "")))
        done.append(
            PatchedKernel(
                definition=entry.definition,
                candidate=entry.candidate,
                verdict=entry.verdict,
                commit=tree.head.commit.hexsha,
            )
        )
    return tuple(done)


def _add(tree: git.Repo, folder: str, removed: Sequence[str], entry: KernelEntry) -> None:
    # forced: a user's ignore rules (*.json, kernels/ …) must not drop half of a kernel
    paths = [MANIFEST, "pytest.ini", ".gitattributes", entry.folder]
    tree.git.add("--force", "--all", "--", *(_inside(folder, path) for path in paths))
    for gone in removed:
        if gone != entry.folder:
            tree.git.rm("-r", "--quiet", "--cached", "--ignore-unmatch", "--", _inside(folder, gone))


def _commit_evidence(tree: git.Repo, folder: str, evidence_dir: Path, name: str, manifest: PackManifest) -> str:
    target = Path(str(tree.working_tree_dir)) / folder / "evidence" / name
    digest = bundle_digest(evidence_dir)
    shutil.copytree(evidence_dir, target)
    tree.git.add("--force", "--all", "--", _inside(folder, f"evidence/{name}"))
    _commit(tree, evidence_message(name, len(manifest.kernels), digest, evidence_dir))
    return digest


def _commit(tree: git.Repo, message: str) -> None:
    import git

    name, email = _identity(tree)
    author: dict[str, str] = {}
    for role in ("AUTHOR", "COMMITTER"):
        author |= {f"GIT_{role}_NAME": name, f"GIT_{role}_EMAIL": email}
    try:
        with tree.git.custom_environment(**author):
            # whitespace cleanup keeps the open sign-off line as written
            tree.git.execute(["git", *QUIET, "commit", "--quiet", "--no-verify", "--cleanup=verbatim", "-m", message])
    except git.GitCommandError as error:
        raise EnvironmentLacks(
            f"git could not commit: {error.stderr.strip()}", "Check the repository: git fsck"
        ) from error


def _identity(tree: git.Repo) -> tuple[str, str]:
    reader = tree.config_reader()
    name, email = reader.get_value("user", "name", ""), reader.get_value("user", "email", "")
    return (str(name), str(email)) if name and email else (NOBODY, f"{NOBODY}@localhost")


def _open(path: Path) -> git.Repo:
    import git

    try:
        return git.Repo(path)
    except (git.InvalidGitRepositoryError, git.NoSuchPathError) as error:
        raise BrokenInput(
            f"{path} is not a git repository",
            f"Make it one (git init {path}, then a first commit), or leave --repo out for a repository in the session",
        ) from error


def _pack_repository(path: Path, manifest: PackManifest) -> git.Repo:
    """Make (or reopen) the session's own kernel-pack repository, with an empty pack as its first commit."""
    import git

    if (path / ".git").exists():
        repository = git.Repo(path)
        if repository.head.is_valid():
            return repository
        repository.close()
        shutil.rmtree(path)  # killed before its first commit
    path.mkdir(parents=True, exist_ok=True)
    try:
        repository = git.Repo.init(path, initial_branch="main")
    except git.GitCommandNotFound as error:
        raise EnvironmentLacks("git is not installed", "Install it: apt-get install git") from error
    write_manifest(path, manifest.model_copy(update={"kernels": ()}))
    repository.git.add("--force", "--all")
    _commit(repository, "Begin a kernel pack\n\nMade by kernelwright; holds no kernel yet.\n")
    return repository


def _base_commit(repository: git.Repo) -> str:
    """Return the commit HEAD is at, detached or not. Raises BrokenInput when there is none."""
    if not repository.head.is_valid():
        raise BrokenInput(
            f"{repository.working_tree_dir or repository.git_dir} has no commit to branch from",
            "Make a first commit there, or leave --repo out for a repository in the session",
        )
    return repository.head.commit.hexsha


def _ref_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-") or "session"


def _free_branch(repository: git.Repo, wanted: str) -> str:
    """Return `wanted`, or the first of `wanted-2`, `wanted-3` … that no branch has: nobody's branch is moved."""
    taken = {head.name for head in repository.heads}
    if NOBODY in taken:  # a branch of that name leaves no room for a folder of branches
        wanted = wanted.replace("/", "-")
    number = 1
    while (name := wanted if number == 1 else f"{wanted}-{number}") in taken:
        number += 1
    return name


@contextlib.contextmanager
def _worktree(repository: git.Repo, branch: str, base: str, path: Path) -> Iterator[git.Repo]:
    """Give a worktree of `branch` at `base` with nothing but the pack checked out; removed on every way out.

    On failure the branch goes too, so that a patch is whole or absent.
    """
    import git

    done = False
    try:
        _remove_worktree(repository, path)  # left by a session that was killed
        path.parent.mkdir(parents=True, exist_ok=True)
        add = ["worktree", "add", "--quiet", "--no-checkout", "-b", branch, str(path), base]
        repository.git.execute(["git", *QUIET, *add])
        with contextlib.closing(git.Repo(path)) as tree:
            tree.git.read_tree("HEAD")
            held = tree.head.commit.tree
            names = {str(entry.path) for entry in held}
            wanted = names if _pack_folder(tree) == "." else names & {PACK_FOLDER}
            if wanted:
                tree.git.execute(["git", *QUIET, "checkout", "--quiet", "HEAD", "--", *sorted(wanted)])
            yield tree
        done = True
    except git.GitCommandError as error:
        said = str(error.stderr).strip()
        raise EnvironmentLacks(f"git could not make the patch: {said}", "See: git fsck; git worktree list") from error
    finally:
        with contextlib.suppress(git.GitCommandError):
            _remove_worktree(repository, path)
        if not done:
            with contextlib.suppress(git.GitCommandError):
                repository.git.branch("-D", branch)


def _remove_worktree(repository: git.Repo, path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    repository.git.worktree("prune")


def _pack_folder(tree: git.Repo) -> str:
    """Return where the pack lies: the root of a repository that is a pack, else `kernel-pack`."""
    try:
        PackManifest.model_validate_json((tree.head.commit.tree / MANIFEST).data_stream.read())
    except (KeyError, ValidationError):  # none, or somebody else's manifest.json
        return PACK_FOLDER
    return "."


def _inside(folder: str, path: str) -> str:
    return path if folder == "." else f"{folder}/{path}"
