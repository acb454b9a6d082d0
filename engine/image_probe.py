"""Start an image and ask it: does it serve, and do its kernels run? The container gets no network and no privileges."""

from __future__ import annotations

import json
import time
from typing import Any, Literal

from pydantic import BaseModel

from kernelwright.engine.image_base import Docker
from kernelwright.profiles.errors import KernelwrightError

READY_S = 240.0
QUESTION = "What is the capital of France?"
ASK = f"""
import json
from kernelwright.engine.client import EngineClient
client = EngineClient("http://127.0.0.1:8000")
before = client.kernels()["kernels"]
try:
    answer = client.chat([{{"role": "user", "content": {QUESTION!r}}}], max_tokens=24, temperature=0)
    text = answer["choices"][0]["message"]["content"]
except Exception:  # a model without a chat template completes plain text
    text = client.complete({QUESTION!r}, max_tokens=24, temperature=0)["choices"][0]["text"]
print(json.dumps({{"before": before, "after": client.kernels()["kernels"], "text": text}}))
"""
HEALTH = "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"


class KernelInImage(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    definition: str
    candidate: str
    state: str
    hits: int
    """Slot calls one completion made."""
    binary: str | None
    as_judged: bool
    """Whether the shared object in the image is the one that was judged."""


class Probe(BaseModel, frozen=True, extra="forbid"):
    question: str
    answer: str
    kernels: tuple[KernelInImage, ...]

    @property
    def state(self) -> Literal["live", "rebuilt", "not live"]:
        """`live`: every kernel is loaded as judged and a completion ran some; `rebuilt`: they run, but other
        binaries.
        """
        loaded = self.kernels and all(kernel.state == "live" for kernel in self.kernels)
        if not loaded or not any(kernel.hits for kernel in self.kernels):
            return "not live"
        return "live" if all(kernel.as_judged for kernel in self.kernels) else "rebuilt"


def probe_image(client: Docker, image: str, judged: dict[str, str | None]) -> Probe:
    """Start `image`, wait until it is healthy, ask for a completion and return what its kernels did.

    `judged`: candidate digest → digest of the binary in the pack. Raises KernelwrightError when it does not serve.
    """
    container = client.containers.create(
        image,
        network_mode="none",
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        read_only=True,
        tmpfs={"/tmp": "size=256m,mode=1777"},
        pids_limit=256,
        labels={"org.kernelwright.probe": "1"},
    )
    try:
        container.start()
        _wait(container)
        status, output = container.exec_run(["python3", "-P", "-c", ASK], demux=True)
        if status != 0:
            raise _failed(container, f"it did not answer: {(output[1] or b'').decode(errors='replace')[-400:]}")
        return _read(json.loads(output[0]), judged)
    finally:
        container.remove(force=True)


def _wait(container: Any) -> None:
    deadline = time.monotonic() + READY_S
    while container.exec_run(["python3", "-P", "-c", HEALTH])[0] != 0:
        container.reload()
        if container.status != "running":
            raise _failed(container, "it ended while it was loading")
        if time.monotonic() > deadline:
            raise _failed(container, f"it was not healthy after {READY_S:.0f} s")
        time.sleep(1)


def _failed(container: Any, why: str) -> KernelwrightError:
    said = container.logs(tail=8).decode(errors="replace").strip().replace("\n", " | ")
    return KernelwrightError(f"the new image does not serve: {why}", f"Its last words: {said or 'none'}")


def _read(answer: dict[str, Any], judged: dict[str, str | None]) -> Probe:
    before = {kernel["candidate"]: kernel["hits"] for kernel in answer["before"]}
    kernels = [kernel for kernel in answer["after"] if kernel["candidate"] is not None]
    return Probe(
        question=QUESTION,
        answer=answer["text"],
        kernels=tuple(
            KernelInImage(
                definition=kernel["definition"],
                candidate=kernel["candidate"],
                state=kernel["state"],
                hits=kernel["hits"] - before.get(kernel["candidate"], 0),
                binary=kernel["binary"],
                as_judged=kernel["binary"] == judged.get(kernel["candidate"]),
            )
            for kernel in kernels
        ),
    )
