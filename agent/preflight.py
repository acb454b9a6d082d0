"""Refuse what cannot work before a session exists: nothing half-written, and the remedy in the error."""

from __future__ import annotations

import shutil

from kernelwright.agent.options import OptimizeOptions
from kernelwright.profiles.errors import BrokenInput, EnvironmentLacks, WrongUse

FREE_BYTES = 512 << 20
KNOWN_BRAINS = ("templates", "self")


def preflight(options: OptimizeOptions) -> None:
    """Raises BrokenInput (model, repository), EnvironmentLacks (compiler, cage, disk) or WrongUse (brain)."""
    from kernelwright.engine.model_slots import ModelSlots
    from kernelwright.engine.weights import is_model
    from kernelwright.sandbox.cage import open_cage

    if not is_model(options.model):
        remedy = "Give a GGUF file or a Hugging Face folder with --model, or leave --model out."
        raise BrokenInput(f"no such model: {options.model}", remedy)
    slots = ModelSlots(options.model)
    unknown = set(options.only) - slots.definitions().keys()
    if unknown:
        raise WrongUse(f"this model has no {', '.join(sorted(unknown))}", f"It has: {', '.join(slots.definitions())}.")
    if shutil.which("g++") is None:
        raise EnvironmentLacks("no C++ compiler: g++ is not on the PATH", "Install it: apt-get install -y g++")
    open_cage(options.cage)
    for brain in options.brains:
        if brain not in KNOWN_BRAINS and not brain.startswith(("http://", "https://")):
            raise WrongUse(
                f"unknown brain {brain!r}", "Use templates, self, or the URL of an OpenAI-compatible endpoint."
            )
    if options.repo is not None:
        _check_repository(options)
    parent = next(folder for folder in (options.out, *options.out.parents) if folder.exists())
    if shutil.disk_usage(parent).free < FREE_BYTES:
        raise EnvironmentLacks(
            f"less than 512 MiB free in {parent}", "Free some space, or name another folder with --out."
        )


def _check_repository(options: OptimizeOptions) -> None:
    import git

    try:
        repository = git.Repo(options.repo)
    except (git.InvalidGitRepositoryError, git.NoSuchPathError) as error:
        raise BrokenInput(
            f"{options.repo} is no git repository", "Run git init and make a first commit there."
        ) from error
    repository.close()
