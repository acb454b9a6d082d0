"""kernelwright_simd.h at every level this host runs: exp to 2 ulp, halves as IEEE says."""

from __future__ import annotations

import shutil

import pytest
import torch

from kernelwright.kernels.build import build_native
from kernelwright.kernels.candidate import Candidate, SourceFile
from kernelwright.kernels.isa import levels_of, read_flags

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
SOURCE = """
#include <kernelwright.h>
#include <kernelwright_simd.h>
KW_PREPARE(args, 2) {
  auto h = args.tensor<uint8_t>(0, 1);
  auto y = args.tensor<float>(1, 1);
  if (!args.ok()) return;
  for (int64_t i = 0; i < y.size[0]; i += kw::W) {
    kw::store(y.data + i, kw::halves(h.data + 2 * i));
    if (kw::half(h.data + 2 * i) != y.data[i] && y.data[i] == y.data[i]) y.data[i] = 12345.0f;
  }
}
KW_RUN(args, 2) {
  auto x = args.tensor<float>(0, 1);
  auto y = args.tensor<float>(1, 1);
  if (!args.ok()) return;
  for (int64_t i = 0; i < x.size[0]; i += kw::W) kw::store(y.data + i, kw::exp(kw::load(x.data + i)));
}
"""


@pytest.fixture(scope="module", params=levels_of(read_flags()))
def module(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> object:
    import tvm_ffi

    candidate = Candidate(
        definition="d",
        language="cpp",
        sources=(SourceFile(path="kernel.cpp", content=SOURCE),),
        proposer="import",
        author="test",
    )
    built = build_native(candidate, tmp_path_factory.mktemp("simd"), isa=request.param)
    assert built.status == "PASSED", built.log
    return tvm_ffi.load_module(str(built.binary))


def test_exp_is_within_2_ulp_and_ends_as_it_should(module: object) -> None:
    x = torch.cat((torch.linspace(-87.3, 88.7, 1 << 20), torch.randn(1 << 16)))
    y = torch.empty_like(x)
    module.get_function("run")(x, y)  # type: ignore[attr-defined]
    want = x.double().exp()
    ulp = (torch.nextafter(want.float(), torch.tensor(torch.inf)) - want.float()).double()
    assert float(((y - want).abs() / ulp).max()) <= 2.0
    ends = torch.tensor([100.0, torch.inf, -200.0, -torch.inf, torch.nan, 0.0, -0.0, -100.0] * 2)
    got = torch.empty_like(ends)
    module.get_function("run")(ends, got)  # type: ignore[attr-defined]
    assert torch.allclose(got, ends.exp(), atol=0, rtol=1e-3, equal_nan=True)


def test_every_half_is_converted_exactly(module: object) -> None:
    bits = torch.arange(-32768, 32768).to(torch.int16)
    y = torch.empty(65536)
    module.get_function("prepare")(bits.view(torch.int8), y)  # type: ignore[attr-defined]
    want = bits.view(torch.float16).float()
    assert torch.equal(y[~want.isnan()], want[~want.isnan()])
    assert y[want.isnan()].isnan().all()
