"""Image: a container image that serves with a session's kernels, built through the Docker API and proved live.

The context holds all that the build needs, so the build has no network. The tag moves only after the new image has been
started, has answered, and its kernels have been seen to run. Without a daemon the context is left, ready to be built.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from kernelwright.engine.image_base import Docker, base_name, find_or_make_base
from kernelwright.engine.image_context import DEFAULT_BASE, SessionParts, read_session, write_context
from kernelwright.engine.image_probe import Probe, probe_image
from kernelwright.profiles.digest import digest_of
from kernelwright.profiles.errors import EnvironmentLacks, KernelwrightError

Say = Callable[[str], None]


class Image(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """A built image, or its context."""

    schema_version: Literal[1] = 1
    state: Literal["live", "rebuilt", "not live", "context only"]
    """`live`: it serves and its kernels, as judged, run. `rebuilt`: they run, but another compiler made other
    binaries than were judged: take the verdicts again. Only `live` moves the tag.
    """
    tag: str
    id: str | None
    base: str
    """Name of the base."""
    base_digest: str | None
    pack: str
    """Digest of the PackManifest."""
    evidence: str
    """Digest of the evidence bundle."""
    model: str
    """SHA-256 of the weights."""
    context: str | None
    """Folder of the build context, where it was kept."""
    probe: Probe | None = None
    note: str = ""


def build_image(
    session_dir: Path,
    *,
    base: str | None = None,
    tag: str = "kernelwright:latest",
    model: Path | None = None,
    rootfs: Path | None = None,
    keep_context: bool = False,
    on_progress: Say = lambda text: None,
) -> Image:
    """Build an image from a finished session, start it and prove its kernels live; write `image.json` beside the
    session.

    `base` is an image that is there or can be pulled; None makes one by debootstrap (from `rootfs` if given). Raises
    BrokenInput or KernelwrightError as `read_session`, EnvironmentLacks when no base can be made, KernelwrightError
    when the build fails or the image does not serve.
    """
    parts = read_session(session_dir, model)
    context = session_dir / "image"
    client = connect()
    if client is None:
        named = base or base_name()
        write_context(context, parts, named, tag, on_progress)
        note = f"No Docker daemon answers. The context is ready: see {context / 'BUILD.md'}"
        return _keep(session_dir, _image("context only", tag, None, named, None, parts, context, note=note))
    with contextlib.closing(client):
        named, base_digest = _find_base(client, base, rootfs, on_progress)
        # pinned by a tag that says which image it is: both builders take it, an id only the classic one
        pinned = f"{DEFAULT_BASE}:{base_digest.removeprefix('sha256:')[:12]}"
        client.images.get(base_digest).tag(*pinned.split(":"))
        write_context(context, parts, pinned, tag, on_progress, base_digest)
        image_id = _build(client, context, on_progress)
        on_progress("starting the new image")
        judged = {entry.candidate: entry.binary for entry in parts.manifest.kernels}
        probe = probe_image(client, image_id, judged)
        if probe.state == "live":
            client.images.get(image_id).tag(*tag.rsplit(":", 1) if ":" in tag.rpartition("/")[2] else (tag, "latest"))
        if not keep_context:
            shutil.rmtree(context, ignore_errors=True)
        kept = context if keep_context else None
        note = "" if probe.state == "live" else f"The tag {tag} was not moved; the image is {image_id}."
        return _keep(
            session_dir, _image(probe.state, tag, image_id, named, base_digest, parts, kept, probe=probe, note=note)
        )  # fmt: skip


def connect() -> Docker | None:
    """Return a client of the daemon the environment names (DOCKER_HOST); None when nobody answers."""
    import docker
    import requests

    try:
        client: Docker = docker.DockerClient.from_env(timeout=600)  # type: ignore[no-untyped-call, attr-defined]
        client.ping()
    except (docker.errors.DockerException, requests.RequestException, OSError):
        return None
    return client


def _find_base(client: Docker, base: str | None, rootfs: Path | None, say: Say) -> tuple[str, str]:
    """Return the base's name and the digest the build is pinned to."""
    import docker

    if base is None:
        return base_name(), find_or_make_base(client, say, rootfs=rootfs)
    try:
        return base, str(client.images.get(base).id)
    except docker.errors.ImageNotFound:
        say(f"pulling {base}")
    try:
        return base, str(client.images.pull(*base.rsplit(":", 1)).id)
    except docker.errors.APIError as error:
        raise EnvironmentLacks(
            f"the base {base} cannot be had: {error.explanation}", "Give an image that is there"
        ) from error


def _build(client: Docker, context: Path, say: Say) -> str:
    """Build the context without a network and return the image's id; every step is told."""
    import docker

    say("sending the context to the daemon")
    last, found = "", None
    try:
        stream = client.api.build(path=str(context), rm=True, forcerm=True, network_mode="none", decode=True)
        for message in stream:
            if "error" in message:
                raise KernelwrightError(f"the image could not be built: {message['error'].strip()}", f"It said: {last}")
            found = _id_in(message) or found
            text = str(message.get("stream", "")).strip()
            if text:
                last = text
                if text.startswith(("Step ", "Successfully")):
                    say(text)
    except docker.errors.APIError as error:
        raise KernelwrightError(f"the image could not be built: {error.explanation}", f"It said: {last}") from error
    if found is None:
        raise KernelwrightError("the build ended without an image", f"It said: {last}")
    return found


def _id_in(message: dict[str, Any]) -> str | None:
    identifier = (message.get("aux") or {}).get("ID")
    return str(identifier) if identifier else None


def _image(
    state: Literal["live", "rebuilt", "not live", "context only"],
    tag: str,
    image_id: str | None,
    base: str,
    base_digest: str | None,
    parts: SessionParts,
    context: Path | None,
    *,
    probe: Probe | None = None,
    note: str = "",
) -> Image:
    return Image(
        state=state, tag=tag, id=image_id, base=base, base_digest=base_digest, pack=digest_of(parts.manifest),
        evidence=parts.evidence_digest, model=parts.manifest.model_digest, context=str(context) if context else None,
        probe=probe, note=note,
    )  # fmt: skip


def _keep(session_dir: Path, image: Image) -> Image:
    (session_dir / "image.json").write_text(image.model_dump_json(indent=2) + "\n")
    return image
