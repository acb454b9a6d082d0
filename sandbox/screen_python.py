"""Screen of python and Triton host code by its syntax tree: what it may name, and who does its arithmetic.

Names are followed through imports, `import … as`, and plain assignments (`t = torch`), so that a rule about a module
holds for its other names too. It decides about what is written, not about what could be computed: a name made at run
time is refused instead (`getattr` with anything but a literal), and a literal that is executed is read as a module. The
files that an imported solution came with are read one by one, without the loader of ours that holds them.
"""

from __future__ import annotations

import ast
import importlib.util
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

from kernelwright.kernels.candidate import Candidate
from kernelwright.kernels.formats.adapters import unbundle
from kernelwright.sandbox import python_names as names
from kernelwright.sandbox.findings import Findings
from kernelwright.sandbox.screen_source import ADDRESSED, BASE64, LONG_LITERAL, MANY_NUMBERS

BEYOND = "it reaches beyond its inputs"
GLOBAL = "it changes settings of the whole process"
FOREIGN = "it changes code or modules of others"
DYNAMIC = "it makes code or names at run time"
NO_PYTHON = "its source is no python"


def screen_python(candidate: Candidate, findings: Findings) -> None:
    """Add what the sources show; text that does not parse is refused. Raises nothing."""
    for source in candidate.sources:
        files, rest = unbundle(source.content)
        own = frozenset(path.removesuffix(".py").split("/")[0] for path in files)
        own = frozenset(name for name in own if _is_free(name))
        loader = frozenset({"_kw_load", "_KW_FILES"}) if files else frozenset()
        held = _follow_files(files)
        for path, text in {**files, source.path: rest}.items():
            _screen_text(path, text, candidate.entry_point, findings, Company(own, loader, held))


def _is_free(name: str) -> bool:
    """Return whether no installed module has this name: a module of one's own must not open the way to another's."""
    try:
        return name.isidentifier() and importlib.util.find_spec(name) is None
    except ValueError:  # a module that is loaded without a spec, such as __main__
        return False


@dataclass(frozen=True, slots=True)
class Company:
    """What a module came with."""

    own: frozenset[str]
    """Modules of its own."""
    loader: frozenset[str]
    """Names of the loader, which it may not use."""
    hold: dict[str, str]
    """What the own modules hold of others: dotted path → dotted path of what it is."""


def _follow_files(files: Mapping[str, str]) -> dict[str, str]:
    """Return dotted path through a module of its own → dotted path of what it leads to."""
    held: dict[str, str] = {}
    for path, text in files.items():
        try:
            found = _follow_names(ast.parse(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue  # refused where it is screened
        held |= {f"{path.removesuffix('.py').replace('/', '.')}.{name}": target for name, target in found.items()}
    return held


def _screen_text(path: str, text: str, entry_point: str, findings: Findings, company: Company) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text, path)
            screen = _Screen(path, findings, company)
            screen.roots = {**company.hold, **_follow_names(tree)}
            screen.visit(tree)
            _screen_state(tree, findings)
            _label_work(tree, entry_point, findings)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        findings.refuse(NO_PYTHON, f"{path}: {type(error).__name__}")
    for word in ADDRESSED.finditer(text):
        findings.notice(f"speaks to whoever reviews it: {word[0].lower()}")


def _follow_names(tree: ast.AST) -> dict[str, str]:
    """Return local name → dotted path of what it was imported from or plainly assigned from."""
    roots: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                roots[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                roots[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}"
    for _ in range(3):  # an alias of an alias of an alias
        for node in ast.walk(tree):
            value = getattr(node, "value", None)
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and isinstance(
                value, ast.Name | ast.Attribute
            ):
                path = dotted(value, roots)
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    if path and isinstance(target, ast.Name):
                        roots.setdefault(target.id, path)
    return roots


def dotted(node: ast.AST, roots: dict[str, str]) -> str:
    """Return the dotted path of a chain of attributes that starts at an imported name, else ''."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in roots:
        return ""
    path = ".".join([roots[node.id], *reversed(parts)])
    for _ in range(3):  # through modules of its own
        path = _lead(path, roots)
    return path


def _lead(path: str, roots: Mapping[str, str]) -> str:
    parts = path.split(".")
    for count in range(len(parts), 1, -1):
        if found := roots.get(".".join(parts[:count])):
            return ".".join([found, *parts[count:]])
    return path


class _Screen(ast.NodeVisitor):
    """Applies the rules about names to one module."""

    def __init__(self, path: str, findings: Findings, company: Company) -> None:
        self.path = path
        self.findings = findings
        self.company = company
        self.roots: dict[str, str] = {}

    def _refuse(self, reason: str, node: ast.AST, what: str) -> None:
        self.findings.refuse(reason, f"{self.path}:{getattr(node, 'lineno', 0)}: {what}")

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._import(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            self._refuse(BEYOND, node, "a relative import")
            return
        self._import(node, module)
        for alias in node.names:
            if alias.name == "*":
                self.findings.notice(f"imports everything from {module}")
            else:
                self._attribute(node, alias.name, module)

    def _import(self, node: ast.AST, module: str) -> None:
        top = module.split(".")[0]
        if top in self.company.own:
            return
        if top not in names.ALLOWED_IMPORTS | names.NOTICED_IMPORTS or _below(module, names.REFUSED_MODULES):
            self._refuse(BEYOND, node, f"import {module}")
            return
        if top in names.NOTICED_IMPORTS:
            self.findings.notice(f"imports {top}")
        if _below(module, names.COMPILERS):
            self.findings.label("compiler")
        for part in module.split(".")[1:]:
            self._attribute(node, part, "")

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in names.REFUSED_NAMES or node.id in self.company.loader:
            self._refuse(DYNAMIC if node.id not in ("open", "breakpoint") else BEYOND, node, node.id)
        elif node.id == "getattr" or (node.id.startswith("__") and node.id not in names.OPEN_DUNDERS):
            self._refuse(DYNAMIC, node, node.id)
        elif node.id == "id" and isinstance(node.ctx, ast.Load):
            self.findings.notice("uses addresses of objects")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._attribute(node, node.attr, dotted(node.value, self.roots))
        if not isinstance(node.ctx, ast.Load):
            self._write(node)
        self.generic_visit(node)

    def _attribute(self, node: ast.AST, name: str, owner: str) -> None:
        """Judge one attribute. `owner`: the dotted path it is taken from, '' where that is not a module."""
        path = f"{owner}.{name}" if owner else name
        special = name.startswith("__") and name.endswith("__")
        if name in names.REFUSED_ATTRIBUTES or name in names.REFUSED_BELOW.get(owner, ()):
            self._refuse(GLOBAL if name.startswith(("set", "use_", "allow", "manual", "seed")) else BEYOND, node, path)
        elif name in (names.PLUMBING if owner else names.CORE_PLUMBING) or (
            owner and _below(path, names.REFUSED_MODULES)
        ):
            self._refuse(BEYOND, node, path)
        elif special and name not in names.OPEN_DUNDERS and name != "__future__":
            self._refuse(BEYOND, node, path)
        elif _below(path, names.COMPILERS):
            self.findings.label("compiler")
            self.findings.notice(f"hands its work to {path}")
        elif name in names.GRAPHS and owner.startswith("torch.cuda"):
            self.findings.label("graph")
        elif path.startswith("torch.ops.") and not path.startswith("torch.ops.aten"):
            self.findings.label("vendor-wrap")
        elif name in names.NOTICED_ATTRIBUTES:
            self.findings.notice(names.NOTICED_ATTRIBUTES[name])

    def _write(self, node: ast.Attribute | ast.Subscript) -> None:
        """Refuse a write to what was imported; notice one to an object of its own, unless it is `self`."""
        base = node.value
        while isinstance(base, ast.Attribute | ast.Subscript):
            base = base.value
        if dotted(base, self.roots):
            self._refuse(FOREIGN, node, ast.unparse(node)[:80])
        elif isinstance(node, ast.Attribute) and not (isinstance(base, ast.Name) and base.id == "self"):
            self.findings.notice("writes attributes of objects")

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._write(node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr"):
            literal = node.args[1] if len(node.args) > 1 else None
            if isinstance(literal, ast.Constant) and isinstance(literal.value, str):
                self._attribute(node, literal.value, dotted(node.args[0], self.roots))
            elif node.func.id == "getattr":
                self._refuse(DYNAMIC, node, "getattr with a name that is not a literal")
            for argument in [*node.args, *node.keywords]:
                self.visit(argument)
            return
        if (text := _literal_code(node)) is not None:  # what it would execute can be read: it is screened, too
            _screen_text(self.path, text, "", self.findings, self.company)
            for argument in node.args[1:]:
                self.visit(argument)
            return
        if isinstance(node.func, ast.Name) and node.func.id == "type" and len(node.args) > 1:
            self._refuse(DYNAMIC, node, "type with three arguments")
        self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for base in [*node.bases, *(keyword.value for keyword in node.keywords)]:
            path = dotted(base, self.roots)
            if path.split(".")[-1] in ("Tensor", "Parameter", "ndarray"):
                self._refuse(FOREIGN, node, f"a class made from {path}")
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name in names.HOOKS:
            self._refuse(FOREIGN, node, node.name)
        elif node.name in names.REFUSED_NAMES:
            self._refuse(DYNAMIC, node, node.name)
        self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.findings.notice("has asynchronous functions")
        self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self.findings.notice("falls back on an exception")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str | bytes):
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            if len(text) > LONG_LITERAL * (1 if " " not in text else 4) or BASE64.search(text):
                self.findings.notice(f"has a literal of {len(text)} characters")

    def visit_List(self, node: ast.List) -> None:
        self._count(node.elts)
        self.generic_visit(node)

    def visit_Tuple(self, node: ast.Tuple) -> None:
        self._count(node.elts)
        self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        self._count(node.values)
        self.generic_visit(node)

    def _count(self, entries: list[ast.expr]) -> None:
        if len(entries) > MANY_NUMBERS:
            self.findings.notice(f"has a table of {len(entries)} entries")


def _literal_code(node: ast.Call) -> str | None:
    """Return the text of `exec(compile("…", "…", "exec"), names)`, None for any other call."""
    if not (isinstance(node.func, ast.Name) and node.func.id == "exec" and len(node.args) == 2 and not node.keywords):
        return None
    made = node.args[0]
    if not (isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id == "compile"):
        return None
    values = [argument.value if isinstance(argument, ast.Constant) else None for argument in made.args]
    plain = len(values) == 3 and values[2] == "exec" and not made.keywords
    return values[0] if plain and isinstance(values[0], str) else None


def _below(path: str, modules: frozenset[str]) -> bool:
    parts = path.split(".")
    return any(".".join(parts[:count]) in modules for count in range(1, len(parts) + 1))


def _screen_state(tree: ast.Module, findings: Findings) -> None:
    """Notice containers that outlive a call and are written inside one, and what runs when the module is loaded."""
    for node in tree.body:
        bare = isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
        if bare or isinstance(node, ast.For | ast.While | ast.With):
            findings.notice("does work when it is loaded")
    kept = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and _is_container(node.value)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for function in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.Lambda)):
        defaults = [*function.args.defaults, *(d for d in function.args.kw_defaults if d is not None)]
        if any(_is_container(default) for default in defaults):
            findings.notice("keeps state between calls in a default argument")
        for inner in ast.walk(function):
            written = _written(inner)
            if written in kept:
                findings.notice(f"keeps state between calls in {written[:40]}")
            if isinstance(inner, ast.Global | ast.Nonlocal):
                findings.notice("keeps state between calls in a variable of the module")


def _is_container(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return called in names.CONTAINERS or called.endswith("Dictionary")
    return isinstance(node, ast.Dict | ast.List | ast.Set | ast.DictComp | ast.ListComp | ast.SetComp)


def _written(node: ast.AST) -> str:
    """Return the name of the container that `node` writes to, else ''."""
    target: ast.AST | None = None
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        target = node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names.WRITERS:
        target = node.func.value
    return target.id if isinstance(target, ast.Name) else ""


def _label_work(tree: ast.Module, entry_point: str, findings: Findings) -> None:
    """Label who does the arithmetic: a Triton kernel that is launched, else the framework's operators.

    A Triton kernel that nobody launches is noticed as a decoy; so is a heavy operator of the framework beside a kernel.
    """
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    kernels = {name for name, f in functions.items() if any("jit" in ast.unparse(d) for d in f.decorator_list)}
    launched = {
        node.func.value.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript) and isinstance(node.func.value, ast.Name)
    }
    for name in sorted(kernels - launched):
        if not any(
            isinstance(n, ast.Name) and n.id == name for f in functions.values() if f.name != name for n in ast.walk(f)
        ):
            findings.notice(f"defines a kernel it never launches: {name[:40]}")
    if kernels & launched:
        findings.label("custom")
        host = [n for name, f in functions.items() if name not in kernels for n in ast.walk(f)]
        for node in host:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names.HEAVY:
                findings.notice(f"its host code also calls {node.func.attr}")
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                findings.notice("its host code also calls matmul")
    else:
        findings.label("framework-wrap")
    run = functions.get(entry_point)
    if run is not None:
        findings.fact("bare_wrapper", "yes" if _is_bare(run) else "no")


def _is_bare(run: ast.FunctionDef) -> bool:
    """Return whether the body is one `return` of a call (or a tuple of one) on plain arguments."""
    body = [n for n in run.body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
    if len(body) != 1 or not isinstance(body[0], ast.Return):
        return False
    value = body[0].value
    if isinstance(value, ast.Tuple) and len(value.elts) == 1:
        value = value.elts[0]
    if not isinstance(value, ast.Call):
        return False
    return not any(isinstance(n, ast.BinOp | ast.Call) for a in value.args for n in ast.walk(a))
