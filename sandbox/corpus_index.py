"""Corpus: kernels the selftest plays against the judge: exploits it must not call faster, honest ones it must pass.

One file per kernel in corpus/exploits and corpus/honest. Its first comment holds JSON after `kw:` (see `Entry`), its
language is its suffix. A native one brings the headers of corpus/include that it names with #include "...". A header
with `template` stands for the kernel family's own source at its default point, changed where `template` says so.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError, model_validator

from kernelwright.kernels.candidate import AxisRange, Candidate, PackedTensor, SourceFile
from kernelwright.kernels.families.table import family_of
from kernelwright.kernels.isa import detect_isa
from kernelwright.kernels.problem import Problem
from kernelwright.profiles.errors import BrokenInput
from kernelwright.sandbox.verdict import Outcome

CORPUS = Path(__file__).parent / "corpus"
FOLDERS: tuple[tuple[Literal["exploit", "honest"], str], ...] = (("exploit", "exploits"), ("honest", "honest"))
GROUPS = {
    "A": "not computing the answer",
    "B": "replaying an old answer",
    "C": "knowing which phase it is",
    "D": "fooling the clock",
    "E": "fooling the baseline",
    "F": "attacking the channel, files or process",
    "G": "winning against the spirit",
    "H": "defects that look like hacks",
}
_COMMENT = {".py": "# ", ".cpp": "// "}
_INCLUDE = re.compile(r'^#include "([a-z0-9_]+\.h)"', re.MULTILINE)


class Entry(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """One kernel of the corpus, as its header describes it."""

    name: str
    kind: Literal["exploit", "honest"]
    language: Literal["cpp", "python"]
    problem: str
    """Name in `selftest_problems.problems()`."""
    family: str = ""
    """Exploits: the hack's number in the catalogue, e.g. H17."""
    group: str = ""
    """Exploits: the hack's group, a key of `GROUPS`."""
    control: str = ""
    """Exploits: the judge's control that must stop it."""
    expect: tuple[Outcome, ...] = ()
    """Exploits: the outcomes that are right; never `faster`."""
    phase: Literal["search", "confirm"] = "search"
    """Exploits: `confirm` where a search cannot see what is wrong; then only the outcome of confirm counts."""
    fast: bool = False
    """Exploits: part of the short selftest."""
    faster: bool = False
    """Honest ones: whether it truly is at least 10 % faster than the incumbent."""
    text: str
    """What it does, in a few words."""
    packed: dict[str, tuple[str, tuple[int, ...]]] = {}
    """What `prepare` makes: name → (dtype, shape)."""
    ranges: dict[str, tuple[int, int]] = {}
    """Axes it claims to be right for, where fewer than all."""
    template: dict[str, int | str] | None = None
    source: str

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Entry:
        described = (self.family, self.group, self.control, self.expect)
        if self.kind == "honest" and (any(described) or self.phase != "search"):
            raise ValueError("an honest kernel has no family, group, control, expect or phase")
        if self.kind == "exploit" and (not all(described) or self.faster):
            raise ValueError("an exploit needs family, group, control and expect, and is never `faster`")
        if self.group and self.group not in GROUPS:
            raise ValueError(f"unknown group {self.group!r}; known: {', '.join(GROUPS)}")
        if "faster" in self.expect:
            raise ValueError("no exploit may be expected to be called faster")
        return self


def load_corpus(folder: Path = CORPUS) -> tuple[Entry, ...]:
    """Return every kernel under `folder`, exploits first, by name. Raises BrokenInput naming a bad file."""
    found = []
    for kind, name in FOLDERS:
        files = sorted(p for p in (folder / name).iterdir() if p.suffix in _COMMENT)
        found += [read_entry(path, kind) for path in files]
    return tuple(found)


def read_entry(path: Path, kind: Literal["exploit", "honest"]) -> Entry:
    """Return the kernel in `path`. Raises BrokenInput when its header is missing or malformed."""
    source = path.read_text()
    try:
        header = _read_header(source, _COMMENT[path.suffix])
        language = "python" if path.suffix == ".py" else "cpp"
        return Entry.model_validate(
            {"name": path.stem, "kind": kind, "language": language, "source": source, **header}, strict=False
        )
    except (ValueError, ValidationError) as error:
        raise BrokenInput(f"{path.name}: {error}", "start it with a comment `kw: {...}` as in its neighbours") from None


def candidate_of(entry: Entry, problem: Problem) -> Candidate:
    """Return the kernel as a candidate of `problem`.

    Raises BrokenInput when it includes a header that the corpus does not have, or names a family that has none.
    """
    if entry.template is not None:
        return _render_template(entry, problem)
    suffix = ".py" if entry.language == "python" else ".cpp"
    sources = (SourceFile(path=entry.name + suffix, content=entry.source), *_headers_of(entry.source))
    packed = tuple(PackedTensor(name=n, dtype=d, shape=s) for n, (d, s) in entry.packed.items())
    return Candidate(
        definition=problem.definition.name,
        language=entry.language,
        sources=sources,
        prepare="prepare" if packed else None,
        packed=packed,
        ranges={axis: AxisRange(low=low, high=high) for axis, (low, high) in entry.ranges.items()},
        proposer="import",
        author="selftest",
    )


def _read_header(source: str, mark: str) -> dict[str, object]:
    lines = []
    for line in source.splitlines():
        if not line.startswith(mark):
            break
        lines.append(line.removeprefix(mark))
    first, _, rest = " ".join(lines).partition("kw: ")
    if first or not rest:
        raise ValueError("the first line is no `kw:` header")
    header, _ = json.JSONDecoder().raw_decode(rest)
    if not isinstance(header, dict):
        raise ValueError("the header is no JSON object")
    return header


def _headers_of(source: str) -> list[SourceFile]:
    """Return the headers of corpus/include that `source` names, and those that these name."""
    found: dict[str, str] = {}
    todo = _INCLUDE.findall(source)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        path = CORPUS / "include" / name
        if not path.is_file():
            raise BrokenInput(f"the corpus has no header {name}", "put it into corpus/include")
        found[name] = path.read_text()
        todo += _INCLUDE.findall(found[name])
    return [SourceFile(path=name, content=found[name]) for name in sorted(found)]


def _render_template(entry: Entry, problem: Problem) -> Candidate:
    family = family_of(problem.definition)
    if family is None:
        raise BrokenInput(f"{entry.name}: no family makes {problem.definition.op_type}", "choose another problem")
    return family.render(problem.definition, {**family.default_point(), **(entry.template or {})}, detect_isa())
