"""Import torch in less than two thirds of the time: without the registrations that only compilers and meta tensors use.

A cage imports torch once for every candidate, so this is most of what a verdict waits for. What is left out is loaded
after all for sources that seem to need it (`complete`); kernels that torch runs eagerly are the same either way.
"""

from __future__ import annotations

import importlib
import re
import sys
import types

LATER = "torch._meta_registrations"
NEEDED_BY = re.compile(r"compile|meta|export|fake|\bfx\b|vmap|dynamo|decomp|Generator")


def load_torch() -> None:
    """Import torch without `LATER`; the plain way where that fails."""
    if "torch" in sys.modules:
        return
    sys.modules[LATER] = types.ModuleType(LATER)
    try:
        importlib.import_module("torch")
    except Exception:  # another torch may fail in any way where its registrations are missing: then the plain way
        for name in [n for n in sys.modules if n == "torch" or n.startswith("torch.")]:
            del sys.modules[name]
        importlib.import_module("torch")


def complete(source: str) -> None:
    """Import what was left out if `source` mentions anything that may need it."""
    left_out = sys.modules.get(LATER)
    if left_out is not None and getattr(left_out, "__file__", None) is None and NEEDED_BY.search(source):
        del sys.modules[LATER]
        importlib.import_module(LATER)
