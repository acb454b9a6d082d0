"""A wheelhouse made from the environment that is running: the image gets the very files the session was measured with.

Every installed distribution that kernelwright needs is packed back into a wheel from the list of its installed files
(PEP 376 RECORD → PEP 427 wheel), so no package index is asked and no other build of torch slips in. What pip wrote
beside (byte code, scripts of entry points) it writes again when it installs the wheel.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlparse

from packaging.requirements import Requirement

from kernelwright.profiles.errors import EnvironmentLacks

NAME = "kernelwright"
FOLDERS = ("agent", "engine", "kernels", "profiles", "sandbox", "tui")
FILES = ("pyproject.toml", "README.md", "LICENSE")
PIPS_OWN = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")


def write_wheelhouse(folder: Path, on_progress: Callable[[str], None] = lambda text: None) -> list[Path]:
    """Write a wheel of kernelwright and of everything it needs to `folder`; return their paths.

    Raises EnvironmentLacks when a dependency is not installed or our own wheel cannot be built.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wheels = [write_own_wheel(folder)]
    for needed in find_dependencies(NAME):
        on_progress(f"packing {needed.metadata['Name']} {needed.version}")
        wheels.append(pack_installed(needed, folder))
    return wheels


def find_dependencies(root: str) -> list[Distribution]:
    """Return the installed distributions `root` needs, directly or not, by name. Raises EnvironmentLacks on a gap."""
    found: dict[str, Distribution] = {}
    todo: list[tuple[str, frozenset[str]]] = [(root, frozenset())]
    seen = set()
    while todo:
        name, extras = todo.pop()
        key = (_normal(name), extras)
        if key in seen:
            continue
        seen.add(key)
        try:
            dist = distribution(name)
        except PackageNotFoundError as error:
            raise EnvironmentLacks(
                f"{name} is needed but not installed in {sys.prefix}", f"pip install {name}"
            ) from error
        if _normal(name) != root:
            found[_normal(name)] = dist
        todo += [(need.name, frozenset(need.extras)) for need in _requirements(dist, extras)]
    return [found[name] for name in sorted(found)]


def _requirements(dist: Distribution, extras: frozenset[str]) -> Iterator[Requirement]:
    for line in dist.requires or ():
        need = Requirement(line)
        if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield need


def pack_installed(dist: Distribution, folder: Path) -> Path:
    """Pack an installed distribution back into a wheel in `folder` and return it.

    Files outside its site-packages (manual pages, scripts that are no entry points) are left out. Raises
    EnvironmentLacks when it has no list of files.
    """
    name = str(dist.metadata["Name"])
    files = sorted({file for file in dist.files or () if not _is_pips_own(file.as_posix())})
    info = next((file.parts[0] for file in files if file.parts[0].endswith(".dist-info")), None)
    if info is None:
        raise EnvironmentLacks(f"{name} has no list of its files (RECORD)", f"pip install --force-reinstall {name}")
    target = folder / f"{info.removesuffix('.dist-info')}-{_tag(dist)}.whl"
    record = []
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as wheel:
        for file in files:
            path = Path(str(dist.locate_file(file)))
            content = path.read_bytes()
            entry = zipfile.ZipInfo(file.as_posix())  # without a time: equal files make equal wheels
            runs = path.stat().st_mode & stat.S_IXUSR
            entry.external_attr = (stat.S_IFREG | (0o755 if runs else 0o644)) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content)
            record.append((file.as_posix(), f"sha256={_url_safe(hashlib.sha256(content).digest())}", len(content)))
        lines = io.StringIO()
        csv.writer(lines, lineterminator="\n").writerows([*record, (f"{info}/RECORD", "", "")])
        wheel.writestr(f"{info}/RECORD", lines.getvalue())
    return target


def write_own_wheel(folder: Path) -> Path:
    """Write kernelwright's own wheel: built from the checkout of an editable install, else packed as installed."""
    dist = distribution(NAME)
    source = find_source(dist)
    if source is None:
        return pack_installed(dist, folder)
    with tempfile.TemporaryDirectory(prefix="kw-wheel-") as scratch:
        # a copy: setuptools leaves a build folder behind, and takes stale files from one it finds
        copy = Path(scratch) / "source"
        for name in FOLDERS:
            shutil.copytree(source / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        for name in FILES:
            if (source / name).exists():
                shutil.copy(source / name, copy / name)
        command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--disable-pip-version-check"]
        if _has_setuptools():
            command.append("--no-build-isolation")
        done = subprocess.run([*command, "--wheel-dir", str(folder), str(copy)], capture_output=True, text=True)
    wheels = sorted(folder.glob(f"{NAME}-*.whl"))
    if done.returncode != 0 or not wheels:
        last = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise EnvironmentLacks(f"our own wheel cannot be built: {last}", "Needs pip and setuptools 77 or later")
    return wheels[-1]


def find_source(dist: Distribution) -> Path | None:
    """Return the checkout behind an editable install; None for an ordinary one."""
    text = dist.read_text("direct_url.json")
    origin = json.loads(text) if text else {}
    if not origin.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlparse(origin["url"]).path))


def _is_pips_own(path: str) -> bool:
    outside = path.startswith(("../", "/"))
    return outside or path.endswith(".pyc") or (path.rpartition("/")[2] in PIPS_OWN and ".dist-info/" in path)


def _tag(dist: Distribution) -> str:
    lines = (dist.read_text("WHEEL") or "Tag: py3-none-any").splitlines()
    tags = [line.partition(":")[2].strip().split("-") for line in lines if line.startswith("Tag:")]
    return "-".join(".".join(sorted({tag[i] for tag in tags})) for i in range(3))


def _has_setuptools() -> bool:
    try:
        return int(distribution("setuptools").version.partition(".")[0]) >= 77
    except PackageNotFoundError:
        return False


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _url_safe(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
