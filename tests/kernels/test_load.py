"""Loading: the right arguments in the right order, wrong ones answered and not crashed on, one OpenMP runtime."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from kernelwright.kernels.build import build_native
from kernelwright.kernels.candidate import Candidate, PackedTensor, SourceFile
from kernelwright.kernels.definition import Definition, SlotContract
from kernelwright.kernels.isa import supports
from kernelwright.kernels.load import Implementation, load_implementation
from kernelwright.kernels.ops.writing import axes_of, tensors
from kernelwright.profiles.errors import BrokenInput, EnvironmentLacks

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

DEFINITION = Definition(
    name="scale",
    op_type="scale",
    axes=axes_of({"K": 4}, ("T",)),
    inputs=tensors("x[T,K] weight[K] factor cache[T,K]"),
    outputs=tensors("y[T,K] cache_out[T,K]"),
    reference="",
)
CONTRACT = SlotContract(definition="scale", weights=("weight",), aliases={"cache_out": "cache"}, token_axis="T")
PLAIN = """
#include <kernelwright.h>
KW_RUN(args, 5) {
  auto x = args.tensor<float>(0, 2);
  auto weight = args.tensor<float>(1, 1);
  double factor = args.number(2);
  auto cache = args.tensor<float>(3, 2);
  auto y = args.tensor<float>(4, 2);
  if (!args.require(weight.size[0] == 4 && x.size[1] == 4, "K is 4")) return;
  for (int64_t i = 0; i < x.size[0] * 4; ++i) cache.data[i] = y.data[i] = x.data[i] * weight.data[i % 4] * factor;
}
"""
PACKED = """
#include <kernelwright.h>
KW_PREPARE(args, 2) {
  auto weight = args.tensor<float>(0, 1);
  auto twice = args.tensor<float>(1, 1);
  if (!args.ok()) return;
  for (int k = 0; k < 4; ++k) twice.data[k] = 2 * weight.data[k];
}
KW_RUN(args, 6) {
  auto x = args.tensor<float>(0, 2);
  double factor = args.number(1);
  auto cache = args.tensor<float>(2, 2);
  auto twice = args.tensor<float>(3, 1);
  auto weight = args.tensor<float>(4, 1);
  auto y = args.tensor<float>(5, 2);
  if (!args.ok()) return;
  for (int64_t i = 0; i < x.size[0] * 4; ++i)
    cache.data[i] = y.data[i] = x.data[i] * (twice.data[i % 4] - weight.data[i % 4]) * factor;
}
"""


def cpp(content: str, packed: tuple[PackedTensor, ...] = (), **fields: str) -> Candidate:
    return Candidate(
        definition=fields.pop("definition", "scale"),
        language="cpp",
        sources=(SourceFile(path="kernel.cpp", content=content),),
        packed=packed,
        prepare="prepare" if packed else None,
        proposer="import",
        author="test",
        **fields,  # type: ignore[arg-type]
    )


def build(candidate: Candidate, workdir: Path) -> Implementation:
    built = build_native(candidate, workdir)
    assert built.status == "PASSED", built.log
    return load_implementation(candidate, built.binary, DEFINITION, CONTRACT)


PACKED_TENSORS = (
    PackedTensor(name="twice", shape=(4,), dtype="float32"),
    PackedTensor(name="weight", shape=(), dtype="float32"),
)


@pytest.mark.parametrize(("content", "packed"), [(PLAIN, ()), (PACKED, PACKED_TENSORS)], ids=["plain", "packed"])
def test_arguments_arrive_in_order_and_outputs_follow_the_tokens(
    tmp_path: Path, content: str, packed: tuple[PackedTensor, ...]
) -> None:
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0])
    slot = build(cpp(content, packed), tmp_path).bind({"weight": weight})
    assert slot.names == ("x", "factor", "cache")
    assert slot.packed_bytes == (16 if packed else 0)
    for tokens in (1, 3, 1):
        x, cache = torch.randn(tokens, 4), torch.zeros(tokens, 4)
        (y,) = slot(x=x, factor=0.5, cache=cache)
        assert torch.equal(y, x * weight * 0.5)
        assert torch.equal(cache, y)
        mine = torch.empty(tokens, 4)
        slot.call_into((mine,), x, 0.5, cache)
        assert torch.equal(mine, y)


def test_wrong_arguments_raise_and_do_not_crash(tmp_path: Path) -> None:
    slot = build(cpp(PLAIN), tmp_path).bind({"weight": torch.ones(4)})
    x, cache, out = torch.zeros(2, 4), torch.zeros(2, 4), (torch.empty(2, 4),)
    wrong = {
        "argument 0 has another dtype": (x.double(), 1.0, cache),
        "argument 0 has another rank": (x[0], 1.0, cache),
        "argument 0 is not contiguous": (torch.zeros(2, 8)[:, ::2], 1.0, cache),
        "argument 0 is not a tensor": ("x", 1.0, cache),
        "argument 2 is not a number": (x, x, cache),
        "K is 4": (torch.zeros(2, 5), 1.0, cache),
    }
    for message, inputs in wrong.items():
        with pytest.raises(ValueError, match=message):
            slot.call_into(out, *inputs)
    with pytest.raises(ValueError, match="expected 5 arguments, got 6"):
        slot.call_into((*out, *out), x, 1.0, cache)
    slot.call_into(out, x, 1.0, cache)


def test_a_thrown_cpp_exception_is_an_error_not_an_end(tmp_path: Path) -> None:
    source = "#include <kernelwright.h>\nKW_RUN(args, 5) { args.ok(); throw 1; }\n"
    slot = build(cpp(source), tmp_path).bind({"weight": torch.ones(4)})
    with pytest.raises(ValueError, match="threw a C\\+\\+ exception"):
        slot.call(torch.zeros(1, 4), 1.0, torch.zeros(1, 4))


def test_a_prepare_that_refuses_its_weights_raises_at_bind(tmp_path: Path) -> None:
    implementation = build(cpp(PACKED, PACKED_TENSORS), tmp_path)
    with pytest.raises(ValueError, match="argument 0 has another dtype"):
        implementation.bind({"weight": torch.ones(4, dtype=torch.float64)})


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BrokenInput, match="candidate is for other"):
        load_implementation(cpp(PLAIN, definition="other"), None, DEFINITION, CONTRACT)
    with pytest.raises(BrokenInput, match="needs its binary"):
        load_implementation(cpp(PLAIN), None, DEFINITION, CONTRACT)
    with pytest.raises(BrokenInput, match="does not export __tvm_ffi_prepare"):
        build(cpp(PLAIN, PACKED_TENSORS), tmp_path)


def test_a_level_this_host_lacks_is_refused_before_loading(tmp_path: Path) -> None:
    lacking = next(isa for isa in ("armv8.2", "x86-64-v4", "x86-64-v2") if not supports(isa))
    with pytest.raises(EnvironmentLacks, match=f"needs {lacking}"):
        load_implementation(cpp(PLAIN, isa=lacking), tmp_path / "does-not-exist.so", DEFINITION, CONTRACT)


def test_a_python_candidate_runs_in_a_module_of_its_own() -> None:
    content = "def run(x, weight, factor, cache):\n    cache.copy_(x * weight * factor)\n    return (cache.clone(),)\n"
    candidate = Candidate(
        definition="scale",
        language="python",
        sources=(SourceFile(path="incumbent.py", content=content),),
        proposer="incumbent",
        author="test",
    )
    slot = load_implementation(candidate, None, DEFINITION, CONTRACT).bind({"weight": torch.full((4,), 3.0)})
    cache, out = torch.zeros(2, 4), torch.empty(2, 4)
    slot.call_into((out,), torch.ones(2, 4), 2.0, cache)
    assert torch.equal(out, torch.full((2, 4), 6.0))
    assert torch.equal(cache, out)
    broken = candidate.model_validate(candidate.model_dump() | {"entry_point": "walk"})
    with pytest.raises(BrokenInput, match="does not define walk"):
        load_implementation(broken, None, DEFINITION, CONTRACT)


def test_one_openmp_runtime_serves_torch_and_the_kernel(tmp_path: Path) -> None:
    source = PLAIN.replace("#include <kernelwright.h>", "#include <kernelwright.h>\n#include <omp.h>").replace(
        "double factor = args.number(2);", "double factor = args.number(2) * omp_get_max_threads();"
    )
    built = build_native(cpp(source), tmp_path)
    code = f"""
        import torch, tvm_ffi
        torch.set_num_threads(3)
        run = tvm_ffi.load_module({str(built.binary)!r}).get_function("run")
        y = torch.empty(1, 4)
        run(torch.ones(1, 4), torch.ones(4), 1.0, torch.ones(1, 4), y)
        maps = open("/proc/self/maps").read().split()
        print(sorted({{word for word in maps if "libgomp" in word}}), float(y[0, 0]))
    """
    done = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    runtimes, _, threads = done.stdout.strip().rpartition(" ")
    assert len(runtimes.split(",")) == 1, runtimes
    assert float(threads) == 3, "the kernel reads another runtime's thread count than torch sets"
