"""Screen of C++ and CUDA source text: includes, pragmas and attributes that change arithmetic, what hides its meaning.

Each file is read as the compiler reads it: lines spliced, comments and literals told apart. `expand` gives the text
after the preprocessor, where macros and token pasting hide nothing. Sources: C++17 [lex.phases] and [cpp]; GCC manual,
"Function Specific Option Pragmas" and "Optimize Options".
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from kernelwright.kernels.build import RunCommand, compile_command, write_sources
from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.problem import PrecisionPolicy
from kernelwright.sandbox.findings import Findings

LONG_LITERAL = 400
"""Characters of one string literal above which data may be hidden in it."""
MANY_NUMBERS = 256
"""Numbers in one braced list above which it may be a table of answers."""
EXPAND_SECONDS = 30.0
TOKENS = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))
      | (?P<raw>(?:u8|[uUL])?R"(?P<tag>[^()\\\s]{0,16})\(.*?(?:\)(?P=tag)"|\Z))
      | (?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"?)
      | (?P<char>(?<![0-9A-Fa-f])(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')""",
    re.VERBOSE | re.DOTALL,
)
DIRECTIVE = re.compile(r"^[ \t]*(?:\#|%:)[ \t]*(\w*)[ \t]*(.*)$", re.MULTILINE)
FAST = re.compile(
    r"O?fast|(unsafe|associative|finite|reciprocal)-math|math-optimizations|no-signed-zeros|no-honor|fpmath|cx-limited-range"
    r"|single-precision|daz-ftz"
)
"""Options that change what floating-point operations mean."""
ADDRESSED = re.compile(
    r"\b(reviewers?|judges?|graders?|evaluators?|auditors?|llm|language model"
    r"|ignore (all |any |the )?(previous|above)|(pre-?)?approved|do not (flag|reject)|please (accept|pass)"
    r"|not a (hack|cheat)|legitimate|allowed by the rules)\b",
    re.IGNORECASE,
)
BASE64 = re.compile(r"[A-Za-z0-9+/]{120,}={0,2}")
NOTICED = (
    ("has inline assembly", re.compile(r"\b(asm|__asm__|__asm)\b")),
    ("pastes tokens", re.compile(r"##|%:%:")),
    (
        "reads its arguments or environment",
        re.compile(r"\b(argv|argc|environ|getenv|__progname|program_invocation_\w+)\b"),
    ),
    (
        "redefines a keyword of the language",
        re.compile(r"#[ \t]*define[ \t]+(if|for|while|return|static|const|float|double|int|volatile)\b"),
    ),
    ("casts a number to code", re.compile(r"reinterpret_cast<[^<>;]*\(\s*\*[^<>;]*>\s*\(")),
)
_FILES = "it includes files outside its own"
_MATH = "it changes how floating-point operations work"


def screen_source(candidate: Candidate, policy: PrecisionPolicy, findings: Findings, expanded: str = "") -> None:
    """Add what the sources show, and the preprocessed text where there is one. Raises nothing."""
    own = {posixpath.normpath(source.path) for source in candidate.sources}
    for source in candidate.sources:
        _screen_text(source.content, source.path, own, policy, findings)
    if expanded:
        _screen_meaning(*_split(expanded), "preprocessed", policy, findings)


def _screen_text(text: str, path: str, own: set[str], policy: PrecisionPolicy, findings: Findings) -> None:
    code, comments, literals = _split(text)
    _screen_meaning(code, comments, literals, path, policy, findings)
    for match in DIRECTIVE.finditer(code):
        name, rest = match[1], match[2].strip()
        if name in ("include", "include_next", "import", "embed"):
            _screen_include(_restore(rest, literals), path, own, findings)
        elif name == "line" or name.isdigit():
            findings.refuse("it renames its own lines", f"{path}: #line")
    for warning in ADDRESSED.finditer(comments):
        findings.notice(f"speaks to whoever reviews it: {warning[0].lower()}")
    for literal in literals:
        if len(literal) > LONG_LITERAL or BASE64.search(literal):
            findings.notice(f"has a literal of {len(literal)} characters")
        if ADDRESSED.search(literal):
            findings.notice("speaks to whoever reviews it in a string")
    for table in re.finditer(r"\{[^{};]*\}", code):
        if table[0].count(",") > MANY_NUMBERS:
            findings.notice(f"has a table of {table[0].count(',')} entries")


def _screen_include(target: str, path: str, own: set[str], findings: Findings) -> None:
    """Judge the operand of one include: own files and the names of headers are fine, other places are not."""
    name = target[1:-1] if target[:1] in ('"', "<") else ""
    if not name:
        findings.refuse(_FILES, f"{path}: computed include")
        return
    inside = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
    if inside in own or posixpath.normpath(name) in own:
        return
    if posixpath.isabs(name) or ".." in name.split("/") or "\\" in name:
        findings.refuse(_FILES, f"{path}: {name[:80]}")
    elif target[0] == '"' and not re.fullmatch(r"[\w./+-]+", name):
        findings.refuse(_FILES, f"{path}: {name[:80]}")


def _screen_meaning(
    code: str, comments: str, literals: list[str], path: str, policy: PrecisionPolicy, findings: Findings
) -> None:
    """Judge what holds before and after the preprocessor: pragmas, attributes, assembly."""
    for text, pattern in NOTICED:
        if pattern.search(code):
            findings.notice(text)
    for literal in literals:
        if ".incbin" in literal or re.search(r"\.include\b", literal):
            findings.refuse(_FILES, f"{path}: .incbin")
    for use in re.finditer(
        r"\b(pragma|_Pragma)\b([^\n]*)|\b(__attribute__|__attribute)\b\s*\(\(([^;{}]*)|\[\[([^\]]*)\]\]", code
    ):
        words = _restore(next(group for group in (use[2], use[4], use[5], "") if group is not None), literals)
        _screen_options(words, bool(use[1]), path, policy, findings)


def _screen_options(words: str, pragma: bool, path: str, policy: PrecisionPolicy, findings: Findings) -> None:
    words = words.replace("\\", "")
    if re.search(r"\b(_*optimi[sz]e_*)\b", words):
        if not policy.allow_fast_math and FAST.search(words):
            findings.refuse(_MATH, f"{path}: {words[:80]}")
        else:
            findings.notice("sets its own optimisation options")
    if re.search(r"\b_*target(_clones)?_*\b", words) and (not pragma or "GCC" in words):
        if not policy.allow_fast_math and FAST.search(words):
            findings.refuse(_MATH, f"{path}: {words[:80]}")
        else:
            findings.notice("sets its own target")
    if re.search(r"\b_*(constructor|destructor|init_priority|ifunc)_*\b", words):
        findings.notice("has a constructor or destructor")
    if pragma and re.search(r"\bSTDC\b", words):
        findings.notice("sets a floating-point pragma")


def _split(text: str) -> tuple[str, str, list[str]]:
    """Return (code, comments, string literals). In `code` a comment is a blank and literal i is `"i"`."""
    comments: list[str] = []
    literals: list[str] = []
    text = re.sub(r"\\[ \t]*\r?\n", "", text.replace("\r\n", "\n"))

    def take(match: re.Match[str]) -> str:
        if match["comment"]:
            comments.append(match[0])
            return "\n" * match[0].count("\n") or " "
        if match["char"]:
            return "' '"
        literals.append(match[0])
        return f'"{len(literals) - 1}"'

    return TOKENS.sub(take, text), "\n".join(comments), literals


def _restore(code: str, literals: list[str]) -> str:
    def put(match: re.Match[str]) -> str:
        number = int(match[1])
        return literals[number] if number < len(literals) else ""

    return re.sub(r'"(\d+)"', put, code)


def expand(candidate: Candidate, workdir: Path, run: RunCommand, isa: str | None = None) -> str:
    """Return the candidate's own lines after the preprocessor, '' when it fails (the build then says why).

    `run` is the builder's cage, as for a build. Headers of others are left out by their line markers, which a source
    cannot forge: `#line` is refused.
    """
    out = "expanded.txt"
    try:
        write_sources(candidate, workdir)
        command = compile_command(candidate, Path(out), isa)
    except ValueError:
        return ""
    command.insert(1, "-E")
    if run(command, workdir, EXPAND_SECONDS).returncode != 0:
        return ""
    text = (workdir / out).read_text(errors="replace")
    own = {posixpath.normpath(source.path) for source in candidate.sources}
    kept: list[str] = []
    mine = False
    for line in text.splitlines():
        marker = re.match(r'# \d+ "((?:\\.|[^"\\])*)"', line)
        if marker:
            mine = posixpath.normpath(marker[1]) in own
        elif mine:
            kept.append(line)
    return "\n".join(kept)
