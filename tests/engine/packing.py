"""A small real kernel with a problem and a verdict, for the tests of packs, patches and images."""

from __future__ import annotations

from pathlib import Path

from kernelwright.engine.pack import write_kernel
from kernelwright.kernels.build import build_native
from kernelwright.kernels.candidate import AxisRange, Candidate, SourceFile
from kernelwright.kernels.definition import RandomInput, ScalarInput, Workload
from kernelwright.kernels.problem import Problem
from kernelwright.kernels.registry import define, op_of
from kernelwright.profiles.digest import digest_of
from kernelwright.sandbox.verdict import Comparison, Verdict

SOURCE = """\
#include <kernelwright.h>
#include <math.h>

KW_RUN(args, 6) {
  auto x = args.tensor<float>(0, 2);
  auto r = args.tensor<float>(1, 2);
  auto w = args.tensor<float>(2, 1);
  double eps = args.number(3);
  auto y = args.tensor<float>(4, 2);
  auto out = args.tensor<float>(5, 2);
  if (!args.ok()) return;
  int64_t h = x.size[1];
  for (int64_t t = 0; t < x.size[0]; ++t) {
    const float *a = x.data + t * h, *b = r.data + t * h;
    double sum = 0;
    for (int64_t i = 0; i < h; ++i) {
      float s = a[i] + b[i];
      out.data[t * h + i] = s;
      sum += (double)s * s;
    }
    double scale = 1.0 / sqrt(sum / (double)h + eps);
    for (int64_t i = 0; i < h; ++i) y.data[t * h + i] = (float)(out.data[t * h + i] * scale) * w.data[i];
  }
}
"""


def make_problem(hidden: int = 576) -> Problem:
    """Return a problem for add_rmsnorm at 1..8 tokens."""
    definition = define("add_rmsnorm", h=hidden)
    workloads = [
        Workload(
            uuid=f"w{tokens}",
            axes={"T": tokens},
            inputs={name: ScalarInput(value=1e-5) if name == "eps" else RandomInput() for name in definition.inputs},
        )
        for tokens in (1, 3, 8)
    ]
    return Problem(
        target=None,
        definition=definition,
        contract=op_of(definition).contract(definition),
        incumbent=op_of(definition).incumbent(definition),
        workloads=tuple(workloads),
        ranges={"T": AxisRange(low=1, high=8)},
        timed_axes={"T": 1},
        num_weight_sets=60,
    )


def make_candidate(
    problem: Problem, source: str = SOURCE, path: str = "kernel.cpp", isa: str = "x86-64-v2"
) -> Candidate:
    """Return a plain C++ candidate for `problem`."""
    return Candidate(
        definition=problem.definition.name,
        language="cpp",
        sources=(SourceFile(path=path, content=source),),
        ranges={"T": AxisRange(low=1, high=8)},
        isa=isa,  # type: ignore[arg-type]
        proposer="templates",
        author="plain_loop",
    )


def make_verdict(problem: Problem, candidate: Candidate, binary: str | None, outcome: str = "faster") -> Verdict:
    """Return a verdict as the judge would write it; its numbers stand for no measurement."""
    return Verdict(
        problem=digest_of(problem),
        candidate=digest_of(candidate),
        phase="confirm",
        outcome=outcome,  # type: ignore[arg-type]
        reason="for a test",
        isolation="L3",
        binary=binary,
        comparison=Comparison(
            ratio=2.5,
            low=2.25,
            high=2.75,
            n=60,
            launches=3,
            floor=0.02,
            incumbent_us=25.0,
            candidate_us=10.0,
            level="kernel",
        ),
    )


def make_pack(folder: Path, *hiddens: int, source: str = SOURCE) -> Path:
    """Write a pack with one kernel of add_rmsnorm per hidden size, really built, and return its folder."""
    for hidden in hiddens or (576,):
        problem = make_problem(hidden)
        candidate = make_candidate(problem, source)
        built = build_native(candidate, folder.parent / f"build-{hidden}")
        assert built.status == "PASSED", built.log
        verdict = make_verdict(problem, candidate, built.digest)
        write_kernel(folder, candidate, verdict, problem, model_digest="0" * 64, hardware="a test machine")
    return folder
