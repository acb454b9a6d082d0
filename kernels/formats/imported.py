"""What a reader returns and a writer makes: problems, candidates, files, and a note of everything that did not fit."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Literal, TypeVar

from pydantic import BaseModel, ValidationError

from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.problem import Problem
from kernelwright.profiles.errors import BrokenInput, WrongUse

MAX_BYTES = 64 << 20
"""Most that one problem or solution file may hold."""


class Note(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """One line of a loss report."""

    kind: Literal["lost", "made_up", "changed", "kept"]
    """`lost`: not carried over. `made_up`: the other side has no such thing. `changed`: carried in another form.
    `kept`: worth knowing, nothing is missing."""
    what: str
    """The field or thing."""
    why: str


class Imported(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Problems and candidates read from files of one format."""

    format: str
    problems: tuple[Problem, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    unmeasured: dict[str, str] = {}
    """Definition and author of a candidate (`candidate_key`) → why this machine cannot judge it."""
    notes: tuple[Note, ...] = ()

    def problem(self, definition: str | None = None) -> Problem:
        """Return the problem of `definition`, or the only one. Raises BrokenInput or WrongUse."""
        found = [p for p in self.problems if definition in (None, p.definition.name)]
        if not found:
            raise BrokenInput(f"there is no problem {definition or ''} in it".replace("  ", " "), "name another file")
        if len(found) > 1:
            names = ", ".join(p.definition.name for p in found)
            raise WrongUse(f"it holds several problems: {names}", "name one with --definition")
        return found[0]


class Written(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Files to be written, by path relative to the folder of the output."""

    format: str
    files: dict[str, str]
    notes: tuple[Note, ...] = ()


def candidate_key(candidate: Candidate) -> str:
    """Return what `Imported.unmeasured` knows a candidate by."""
    return f"{candidate.definition}/{candidate.author}/{candidate.notes}"


SOLUTIONS = ("FlashInfer-Trace solution ", "SOL-ExecBench solution ")
"""What readers put before a solution's name in the notes of its candidate."""


def solution_name(candidate: Candidate, otherwise: str) -> str:
    """Return the name a candidate had as a solution of another tool, else `otherwise`."""
    prefix = next((p for p in SOLUTIONS if candidate.notes.startswith(p)), "")
    return candidate.notes.removeprefix(prefix) if prefix else otherwise


def lost(what: str, why: str) -> Note:
    return Note(kind="lost", what=what, why=why)


def made_up(what: str, why: str) -> Note:
    return Note(kind="made_up", what=what, why=why)


def changed(what: str, why: str) -> Note:
    return Note(kind="changed", what=what, why=why)


def kept(what: str, why: str) -> Note:
    return Note(kind="kept", what=what, why=why)


def write_files(written: Written, folder: Path, force: bool = False) -> list[Path]:
    """Write all files below `folder` and return their paths; nothing is written when one of them exists.

    Raises WrongUse naming the first file that exists, unless `force`, and BrokenInput for a path that leaves `folder`.
    """
    for name in written.files:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\0" in name:
            raise BrokenInput(
                f"a name in it leads out of the output's folder: {name!r}", "rename definition or op_type"
            )
    paths = {folder / name: text for name, text in written.files.items()}
    standing = [path for path in paths if path.exists()]
    if standing and not force:
        raise WrongUse(f"{standing[0]} exists already", "name another folder, or overwrite with --force")
    for path, text in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(paths)


def read_text(path: Path) -> str:
    """Return the text of a file. Raises BrokenInput when it cannot be read, is no text, or is far too large."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BrokenInput(f"{path} has {path.stat().st_size:,} bytes", f"at most {MAX_BYTES:,} are read")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenInput(f"cannot read {path}: {error}", "name a file of one of the formats of docs/formats.md") from (
            error
        )


Noun = TypeVar("Noun", bound=BaseModel)


def parse(text: str, noun: type[Noun], where: str) -> Noun:
    """Return `text` as a `noun`. Raises BrokenInput with the first three faults."""
    try:
        return noun.model_validate_json(text)
    except ValidationError as error:
        raise BrokenInput(f"{where} is no {noun.__name__}: {faults(error)}", "mend the file") from error


def faults(error: ValidationError) -> str:
    """Return the first three faults on one line."""
    found = [f"{'.'.join(str(part) for part in e['loc']) or 'whole'}: {e['msg']}" for e in error.errors()]
    return "; ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")


def strays(model: BaseModel, where: str) -> list[Note]:
    """Return a note for every field that `model` was given and its schema does not know (extra='allow')."""
    return [lost(f"{where}.{name}", "not in the schema of this format") for name in model.model_extra or {}]


def identifier(text: str, taken: Iterable[str] = ()) -> str:
    """Return `text` as a python identifier that is no keyword and not in `taken`; dots become `__`."""
    import keyword
    import re

    name = re.sub(r"\W", "_", text.replace(".", "__")) or "x"
    name = f"x{name}" if name[0].isdigit() or keyword.iskeyword(name) or name == "_" else name
    plain, number = name, 1
    while name in set(taken):
        name, number = f"{plain}_{number}", number + 1
    return name
