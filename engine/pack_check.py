"""Check one kernel of a pack against its reference: what the test beside every kernel calls.

The kernel is loaded into this process. That is for sources a person has read or is about to; the judge's cage is for
the others. Inputs are fresh and random; outputs are poisoned before the call; errors are held to what the judge allows.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

from kernelwright.engine.pack import PackedKernel, kernel_folder_entry, read_kernel
from kernelwright.engine.pack_load import build_kernel, kernel_cache

if TYPE_CHECKING:
    from kernelwright.kernels.load import BoundSlot

DISTRIBUTIONS = ("normal", "uniform", "outliers")


class KernelCheck(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    kernel: str
    state: Literal["right", "wrong", "skipped"]
    binary: Literal["as_judged", "rebuilt", "skipped"]
    cases: int = 0
    findings: tuple[str, ...] = ()
    """One sentence for each output that is wrong, or why it was skipped."""

    def describe(self) -> str:
        """Return the check in words."""
        return f"{self.kernel}: {self.state} in {self.cases} cases, binary {self.binary}. " + " ".join(self.findings)


def check_kernel(folder: Path, cache_dir: Path | None = None, seed: int | None = None) -> KernelCheck:
    """Rebuild the kernel in `folder` (of a pack) and compare it with its reference at the ends of its ranges.

    Raises BrokenInput when the folder is not as the manifest says, EnvironmentLacks without a compiler.
    """
    import torch

    pack_dir, entry = kernel_folder_entry(folder)
    kernel = read_kernel(pack_dir, entry)
    built = build_kernel(kernel, cache_dir or kernel_cache())
    if built.state == "skipped":
        return KernelCheck(kernel=entry.folder, state="skipped", binary="skipped", findings=(built.reason,))
    generator = torch.Generator()
    generator.manual_seed(seed) if seed is not None else generator.seed()
    cases = [(axes, distribution) for axes in kernel.cases for distribution in DISTRIBUTIONS]
    findings = [
        f"{axes} {distribution}: {said}."
        for axes, distribution in cases
        for said in check_case(kernel, built.binary, axes, distribution, generator)
    ]
    state: Literal["right", "wrong"] = "wrong" if findings else "right"
    return KernelCheck(
        kernel=entry.folder, state=state, binary=built.state, cases=len(cases), findings=tuple(findings)
    )  # fmt: skip


def check_case(
    kernel: PackedKernel, binary: Path | None, axes: dict[str, int], distribution: str, generator: Any
) -> list[str]:
    """Run one case and return what is wrong with each output; empty when nothing is."""
    import torch

    from kernelwright.kernels.load import load_implementation
    from kernelwright.kernels.registry import op_of
    from kernelwright.sandbox.fidelity import judge_output

    definition, contract = kernel.definition, kernel.contract
    inputs: dict[str, Any] = dict(op_of(definition).generate(definition, axes, generator, distribution))
    incumbent = op_of(definition).incumbent(definition)
    with torch.inference_mode():
        exact = run_reference(definition.reference, inputs)
        results = []
        for candidate, library in ((kernel.candidate, binary), (incumbent, None)):
            bound = load_implementation(candidate, library, definition, contract).bind(inputs)
            results.append(_outputs(kernel, bound, inputs, axes))
    names = list(definition.outputs)
    found = [judge_output(mine, theirs, right) for mine, theirs, right in zip(*results, exact, strict=True)]
    return [
        f"{name}: {finding.failed} ({finding.errors.max_abs:.2e})"
        for name, finding in zip(names, found, strict=True)
        if finding.failed
    ]


def run_reference(source: str, inputs: dict[str, Any]) -> tuple[Any, ...]:
    """Return the reference's outputs in float64, from inputs whose float32 tensors are widened."""
    import torch

    scope: dict[str, Any] = {}
    exec(compile(source, "reference", "exec"), scope)  # our own definition, or one the reader of the test has accepted
    wide = {
        name: value.double() if isinstance(value, torch.Tensor) and value.dtype == torch.float32 else value
        for name, value in inputs.items()
    }
    return tuple(scope["run"](**wide))


def _outputs(kernel: PackedKernel, bound: BoundSlot, inputs: dict[str, Any], axes: dict[str, int]) -> list[Any]:
    """Call `bound` with poisoned outputs and copies of what it writes in place; return outputs in order."""
    import torch

    definition, aliases = kernel.definition, kernel.contract.aliases
    own = {name: inputs[name].clone() for name in aliases.values()}
    fresh = {
        name: torch.full(definition.shape_of(name, axes), torch.nan, dtype=getattr(torch, spec.dtype))
        for name, spec in definition.outputs.items()
        if name not in aliases
    }
    bound.call_into(tuple(fresh.values()), *[own.get(name, inputs[name]) for name in bound.names])
    return [own[aliases[name]] if name in aliases else fresh[name] for name in definition.outputs]
