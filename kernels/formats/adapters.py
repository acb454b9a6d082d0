"""Source text put behind somebody's code so that it answers to our `run(inputs…) -> tuple`.

Everything after `MARK` is ours and can be taken off again (`strip`), so that what was read can be written back.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

from kernelwright.kernels.definition import Definition
from kernelwright.profiles.errors import BrokenInput

MARK = "# kernelwright: adapter, not part of the original"
FILES = "_KW_FILES = "
_CUDA = re.compile(r"""(["'])cuda(:\d+)?\1|\.cuda\(\)""")
WHY_NOT = {
    "triton": "it is written in Triton, and this machine's judge has no GPU to time it on",
    "cuda": "it is written in CUDA, and this machine's judge has no GPU to run it on",
    "tilelang": "it is written in TileLang, which the judge cannot build",
    "torch": "its binding is torch's C++ extension, which the judge does not build; tvm-ffi it does",
    "cpp": "it compiles C++ inline each time it is loaded, which takes longer than a runner may take to load",
}
"""Kind of source (`extension_of`), language or binding → why a candidate is `unmeasured`."""


def strip(source: str) -> str:
    """Return `source` without its last adapter."""
    head, mark, _ = source.rpartition("\n\n" + MARK)
    return head + "\n" if mark else source


def with_adapter(source: str, adapter: str) -> str:
    """Return `source` with `adapter` behind it."""
    return f"{source.rstrip(chr(10))}\n\n{MARK}\n{adapter.strip()}\n"


def names_defined(source: str) -> set[str]:
    """Return the functions, classes and plain names assigned at the top level. Raises BrokenInput on a syntax error."""
    found: set[str] = set()
    for node in parse_source(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {t.id for t in node.targets if isinstance(t, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
    return found


def parse_source(source: str) -> ast.Module:
    """Raises BrokenInput when `source` is not python."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise BrokenInput(f"not valid python: {error}", "mend the source") from error


def returns_tuples(source: str) -> bool:
    """Return whether every `return` of the top-level `run` is written as a tuple, so that it needs no adapter."""
    runs = [n for n in parse_source(source).body if isinstance(n, ast.FunctionDef) and n.name == "run"]
    if not runs:
        return False
    inner = {id(r) for f in ast.walk(runs[-1]) if isinstance(f, ast.FunctionDef | ast.Lambda) and f is not runs[-1]
             for r in ast.walk(f)}  # fmt: skip
    returns = [n for n in ast.walk(runs[-1]) if isinstance(n, ast.Return) and id(n) not in inner]
    return bool(returns) and all(isinstance(r.value, ast.Tuple) for r in returns)


def tuple_adapter(inputs: Sequence[str], outputs: Sequence[str], entry: str = "run") -> str:
    """Return a `run` that calls `entry` by name and makes a tuple of whatever it returns."""
    given = ", ".join(f"{name}={name}" for name in inputs)
    return f"""
_kw_entry = {entry}


def run({", ".join(inputs)}):
    _kw_results = _kw_entry({given})
    if isinstance(_kw_results, dict):
        _kw_results = [_kw_results[name] for name in {list(outputs)!r}]
    return tuple(_kw_results) if isinstance(_kw_results, (tuple, list)) else (_kw_results,)
"""


def passing_adapter(definition: Definition, entry: str) -> str:
    """Return a `run` for an `entry` in destination-passing style: it allocates the outputs and returns them.

    Raises BrokenInput when an axis of an output is neither const nor an axis of an input.
    """
    lines = []
    for name, spec in definition.outputs.items():
        sizes = ", ".join(_size(definition, axis) for axis in spec.shape or ())
        lines.append(f"    {name} = _kw_torch.empty(({sizes}{',' if sizes else ''}), dtype=_kw_torch.{spec.dtype})")
    made = "\n".join(lines)
    inputs, outputs = ", ".join(definition.inputs), ", ".join(definition.outputs)
    return f"""
import torch as _kw_torch

_kw_entry = {entry}


def run({inputs}):
{made}
    _kw_entry({inputs}, {outputs})
    return ({outputs},)
"""


def _size(definition: Definition, axis: str) -> str:
    value = definition.axes[axis].value
    if value is not None:
        return str(value)
    for name, spec in definition.inputs.items():
        if axis in (spec.shape or ()):
            return f"{name}.shape[{(spec.shape or ()).index(axis)}]"
    raise BrokenInput(f"{definition.name}: no input has the axis {axis} of its outputs", "mend the definition")


def bundle(files: Mapping[str, str], entry: str) -> str:
    """Return one source that holds python `files` (path → text) as modules and loads `entry` as `_kw_main`.

    Modules are found by name while it loads; afterwards `sys.modules` is as it was.
    """
    modules = {path.removesuffix(".py").replace("/", "."): text for path, text in files.items()}
    main = entry.removesuffix(".py").replace("/", ".")
    return f"""{FILES}{modules!r}


def _kw_load(main):
    import importlib
    import importlib.machinery
    import sys

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name in _KW_FILES or any(other.startswith(name + ".") for other in _KW_FILES):
                package = name not in _KW_FILES
                return importlib.machinery.ModuleSpec(name, Finder, is_package=package)
            return None

        @staticmethod
        def create_module(spec):
            return None

        @staticmethod
        def exec_module(module):
            source = _KW_FILES.get(module.__spec__.name, "")
            exec(compile(source, module.__spec__.name + ".py", "exec"), module.__dict__)

    own = {{name.split(".")[0] for name in _KW_FILES}}
    before = {{name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] in own}}
    sys.meta_path.insert(0, Finder)
    try:
        return importlib.import_module(main)
    finally:
        sys.meta_path.remove(Finder)
        for name in [name for name in sys.modules if name.split(".")[0] in own]:
            del sys.modules[name]
        sys.modules.update(before)


_kw_main = _kw_load({main!r})
"""


def unbundle(source: str) -> tuple[dict[str, str], str]:
    """Return (files by path, what follows) of a source that `bundle` made, exactly; ({}, `source`) of any other."""
    first, _, rest = source.partition("\n")
    entry = re.search(r"^_kw_main = _kw_load\('([\w.]+)'\)$", rest, re.MULTILINE)
    if not first.startswith(FILES) or not entry:
        return {}, source
    try:
        modules = ast.literal_eval(first.removeprefix(FILES))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}, source
    if not isinstance(modules, dict) or not all(isinstance(t, str) for item in modules.items() for t in item):
        return {}, source
    files = {f"{name.replace('.', '/')}.py": text for name, text in modules.items()}
    made = bundle(files, f"{entry.group(1).replace('.', '/')}.py").rstrip()
    return (files, source.removeprefix(made)) if source.startswith(f"{made}\n") else ({}, source)


def on_cpu(source: str) -> str:
    """Return `source` with the device "cuda" written as "cpu"."""
    return _CUDA.sub(lambda m: ".cpu()" if m.group(0).startswith(".") else '"cpu"', source)


def extension_of(source: str) -> str:
    """Return why a source needs a compiler or a GPU of its own: 'cuda', 'triton', 'cpp' (inline C++), or ''."""
    words = {node.id for node in ast.walk(parse_source(source)) if isinstance(node, ast.Name)}
    words |= {node.attr for node in ast.walk(parse_source(source)) if isinstance(node, ast.Attribute)}
    words |= {k.arg for node in ast.walk(parse_source(source)) if isinstance(node, ast.Call) for k in node.keywords
              if k.arg}  # fmt: skip
    imported = names_imported(source)
    if "cuda_sources" in words or imported & {"cupy", "pycuda", "cutlass", "tilelang"}:
        return "cuda"
    if "triton" in imported:
        return "triton"
    return "cpp" if words & {"load_inline", "cpp_sources"} else ""


def names_read_later(source: str) -> set[str]:
    """Return the names that functions of a source read, when they are called and not when it is loaded."""
    inside = [n for n in ast.walk(parse_source(source)) if isinstance(n, ast.FunctionDef | ast.Lambda)]
    return {name.id for f in inside for name in ast.walk(f) if isinstance(name, ast.Name)}


def names_imported(source: str) -> set[str]:
    """Return the top-level packages a source imports anywhere."""
    found: set[str] = set()
    for node in ast.walk(parse_source(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found
