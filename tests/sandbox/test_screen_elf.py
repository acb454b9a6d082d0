"""The screen of built objects fires on code made for it, and stays quiet on ordinary kernels."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kernelwright.kernels.build import build_cached, build_native, run_here
from kernelwright.kernels.families.rendering import LANES
from kernelwright.kernels.families.table import FAMILIES, family_of
from kernelwright.kernels.isa import detect_isa
from kernelwright.kernels.problem import PrecisionPolicy
from kernelwright.kernels.registry import OPS, op_of
from kernelwright.sandbox.findings import Findings
from kernelwright.sandbox.instructions import scan_code
from kernelwright.sandbox.screen_elf import judge_import
from kernelwright.sandbox.screen_source import expand
from kernelwright.sandbox.screens import screen
from tests.kernels.slots import small
from tests.sandbox.posed import EVIL, load_evil, pose
from tests.sandbox.screened import BODY, cpp, linked, needs_compiler, on_x86, screened

# ---- honest code


@needs_compiler
@pytest.mark.skipif(detect_isa() not in LANES, reason="no family is rendered for this processor")
@pytest.mark.parametrize("op_type", FAMILIES)
def test_our_own_families_raise_nothing(op_type: str, tmp_path: Path) -> None:
    definition = small(op_type)
    family = family_of(definition)
    assert family is not None
    candidate = family.render(definition, family.default_point(), detect_isa())
    built = build_cached(candidate, tmp_path)
    assert built.binary is not None
    found = screen(candidate, built.binary.read_bytes(), expanded=expand(candidate, tmp_path / "text", run_here))
    assert (found.refused, found.tripwires, found.labels) == ("", (), ("custom",)), found.facts


@pytest.mark.parametrize("op_type", OPS)
def test_incumbents_raise_nothing_and_are_labelled(op_type: str) -> None:
    definition = small(op_type)
    found = screen(op_of(definition).incumbent(definition), None)
    assert (found.refused, found.tripwires, found.labels) == ("", (), ("framework-wrap",)), found.facts


@needs_compiler
def test_an_ordinary_kernel_with_the_standard_library_is_not_refused(tmp_path: Path) -> None:
    source = (
        """
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>
"""
        + BODY
        % (
            "std::vector<float> s(64); std::unordered_map<int, float> m; m[(int)x[0]] = tanhf(x[1]);"
            " std::sort(s.begin(), s.end());"
            ' if (std::to_string(x[1]).empty()) throw std::runtime_error("no"); y[0] += expf(s[0]) + m[3];'
        )
    )
    found = screened(source, tmp_path)
    assert (found.refused, found.tripwires) == ("", ()), found.facts


# ---- what is refused


THREADS, SIGNALS = "starts threads or processes", "handles signals or sets timers"
AT_LOAD = "when it is loaded"
LOADS, FLOATS = "looks up or loads code of others", "how floating-point operations work"
NATIVE = {
    "fork": ("#include <unistd.h>", "y[1] = fork();", THREADS),
    "std_thread": ("#include <thread>", "std::thread([] {}).detach();", THREADS),
    "pthread": ("#include <pthread.h>", "pthread_t t; pthread_create(&t, 0, [](void* p) { return p; }, 0);", THREADS),
    "posix_spawn": ("#include <spawn.h>", "pid_t p; posix_spawn(&p, \"/x\", 0, 0, 0, 0);", THREADS),
    "system": ("#include <stdlib.h>", "y[1] = system(\"id\");", THREADS),
    "socket": ("#include <sys/socket.h>", "y[1] = socket(1, 1, 0);", "network"),
    "ptrace": ("#include <sys/ptrace.h>", "y[1] = ptrace(PTRACE_TRACEME, 0, 0, 0);", "other processes"),
    "libc_syscall": ("#include <unistd.h>", "y[1] = syscall(39);", "other processes"),
    "dlsym": ("#include <dlfcn.h>", "y[1] = dlsym(RTLD_DEFAULT, \"sgemm_\") != 0;", LOADS),
    "signal": ("#include <signal.h>", "signal(14, SIG_IGN);", SIGNALS),
    "setitimer": ("#include <sys/time.h>", "setitimer(ITIMER_REAL, 0, 0);", SIGNALS),
    "rounding": ("#include <fenv.h>", "fesetround(FE_UPWARD);", FLOATS),
    "mprotect": ("#include <sys/mman.h>", "mprotect(y, 4096, 7);", "protection of memory"),
    "open_file": ("#include <stdio.h>", "y[1] = fopen(\"/proc/self/maps\", \"r\") != 0;", "opens files"),
    "threads_of_all": ("#include <omp.h>", "omp_set_num_threads(1);", "settings of the whole process"),
    "python": ("extern \"C\" int PyRun_SimpleString(const char*);", "PyRun_SimpleString(\"\");", LOADS),
    "constructor": ("static float f; __attribute__((constructor)) void early() { f = 1; }", "y[0] += f;", AT_LOAD),
    "named_frame_dummy": (
        "static float f; __attribute__((constructor)) static void frame_dummy() { f = 1; }",
        "y[0] += f;",
        AT_LOAD,
    ),
    "destructor": ("volatile float f; __attribute__((destructor)) static void late() { f = 1; }", "", AT_LOAD),
    "init_section": ('asm(".section .init\\n.fill 64, 1, 0x90\\n.text");', "", AT_LOAD),
    "executable_stack": ('asm(".section .note.GNU-stack,\\"x\\",@progbits\\n.text");', "", "executable stack"),
    "writable_code": ('asm(".section .wx,\\"awx\\",@progbits\\n.long 0\\n.text");', "", "writable and executable"),
}  # fmt: skip
X86 = {
    "raw_syscall": (
        "",
        'long r; asm volatile("syscall" : "=a"(r) : "a"(39L) : "rcx", "r11"); y[1] = r;',
        "calls the kernel",
    ),
    "int_80": ("", 'asm volatile("int $0x80");', "calls the kernel"),
    "sets_mxcsr": ("#include <xmmintrin.h>", "_mm_setcsr(0x9fc0);", FLOATS),
}


@needs_compiler
@pytest.mark.parametrize("name", NATIVE)
def test_what_a_kernel_never_needs_is_refused(name: str, tmp_path: Path) -> None:
    head, body, word = NATIVE[name]
    found = screened(head + BODY % body, tmp_path)
    assert word in found.refused, found
    assert found.facts["refused"]


@needs_compiler
@on_x86
@pytest.mark.parametrize("name", X86)
def test_raw_instructions_are_refused(name: str, tmp_path: Path) -> None:
    head, body, word = X86[name]
    assert word in screened(head + BODY % body, tmp_path).refused


@needs_compiler
@on_x86
def test_a_policy_that_allows_flushing_lets_the_register_be_set(tmp_path: Path) -> None:
    head, body, _ = X86["sets_mxcsr"]
    assert screened(head + BODY % body, tmp_path, PrecisionPolicy(allow_flush_to_zero=True)).refused == ""


@needs_compiler
@on_x86
def test_the_fast_math_start_file_is_refused_unless_the_policy_allows_it(tmp_path: Path) -> None:
    candidate = cpp(BODY % "")
    try:
        binary = linked(candidate.sources[0].content, tmp_path, "-mdaz-ftz")
    except subprocess.CalledProcessError:
        binary = linked(candidate.sources[0].content, tmp_path, "-ffast-math")
    assert "flushes subnormals" in screen(candidate, binary).refused
    assert screen(candidate, binary, PrecisionPolicy(allow_flush_to_zero=True)).refused == ""


@needs_compiler
@on_x86
def test_code_that_is_changed_at_load_is_refused(tmp_path: Path) -> None:
    source = 'int g; asm(".text\\nmovabs $g, %rax\\n");' + BODY % ""
    binary = linked(source, tmp_path, "-Wl,-z,notext")
    assert "code changed when it is loaded" in screen(cpp(source), binary).facts["refused"]
    plain = linked(BODY % "", tmp_path)
    assert screen(cpp(BODY % ""), plain).refused == ""


NOTICED = {
    "clock": ("#include <time.h>", "timespec t; clock_gettime(CLOCK_MONOTONIC, &t); y[1] = t.tv_sec;", "reads a clock"),
    "chrono": (
        "#include <chrono>",
        "y[1] = std::chrono::steady_clock::now().time_since_epoch().count();",
        "reads a clock",
    ),
    "environment": ("#include <stdlib.h>", "y[1] = getenv(\"HOME\") != 0;", "environment"),
    "static_data": ("static float m[4096];", "m[(int)x[0]] = y[0]; y[1] = m[(int)x[1]];", "writable static data"),
    "static_objects": ("#include <vector>\nstatic std::vector<float> k(9);", "y[1] = k[(int)x[1]];", "static objects"),
    "assembly": ("", 'asm volatile("nop");', "inline assembly"),
    "pasting": ("#define JOIN(a, b) a##b", "float JOIN(va, lue) = 1; y[0] += value;", "pastes tokens"),
    "unlisted": ("#include <wchar.h>", "y[1] = wcslen((wchar_t*)x);", "imports wcslen"),
    "ifunc": (
        'extern "C" float one() { return 1; } extern "C" void* pick() { return (void*)one; } extern "C" float any()'
        ' __attribute__((ifunc("pick")));', "y[0] += any();", "ifunc",
    ),
}  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("name", NOTICED)
def test_what_is_only_suspicious_is_noticed_and_not_refused(name: str, tmp_path: Path) -> None:
    head, body, word = NOTICED[name]
    found = screened(head + BODY % body, tmp_path)
    assert found.refused == "", found.facts
    assert any(word in tripwire for tripwire in found.tripwires), found.tripwires


@needs_compiler
@on_x86
def test_reading_the_time_stamp_counter_is_noticed(tmp_path: Path) -> None:
    found = screened("#include <x86intrin.h>" + BODY % "y[1] = __rdtsc();", tmp_path)
    assert found.refused == "" and any("rdtsc" in t for t in found.tripwires)


@needs_compiler
def test_a_vendor_call_is_labelled(tmp_path: Path) -> None:
    head = 'extern "C" void cblas_sgemm(float*, float*);\n'
    only = head + 'extern "C" void __tvm_ffi_run(float* x, float* y) { cblas_sgemm(x, y); }'
    assert screened(only, tmp_path / "a").labels == ("vendor-wrap",)
    assert set(screened(head + BODY % "cblas_sgemm(x, y);", tmp_path / "b").labels) == {"vendor-wrap", "custom"}


@pytest.mark.parametrize(
    ("code", "word"), [("010000d4", "calls the kernel"), ("00441bd5", "floating-point"), ("40e03bd5", "")]
)
def test_instructions_of_arm_are_known(code: str, word: str) -> None:
    findings = Findings()  # svc #0; msr fpcr, x0; mrs x0, cntvct_el0
    scan_code(bytes.fromhex(code), 0, "AArch64", [], False, findings)
    assert [word in reason for reason, _ in findings.refusals] == ([True] if word else [])
    assert bool(findings.tripwires) == (not word)


def test_a_system_call_after_undecodable_bytes_is_only_noticed() -> None:
    findings = Findings()
    scan_code(bytes.fromhex("06" + "0f05"), 0, "x64", [], False, findings)
    assert not findings.refusals and len(findings.tripwires) == 2
    findings = Findings()  # a function begins behind them: in step again
    scan_code(bytes.fromhex("06" + "0f05"), 0, "x64", [1], False, findings)
    assert [reason for reason, _ in findings.refusals] == ["it calls the kernel by an instruction of its own"]


@pytest.mark.parametrize(
    "name", ["omp_get_max_threads", "GOMP_parallel", "expf", "tanhf", "_ZGVdN8v_expf", "_Znwm", "memcpy"]
)
def test_common_imports_are_quiet(name: str) -> None:
    findings = Findings()
    judge_import(name, PrecisionPolicy(), findings)
    assert findings == Findings()


REFUSED = ("returns_early.cpp", "phones_home.cpp", "works_when_idle.cpp", "starts_early.cpp")
"""The others behave as kernels do, and are stopped by what they do."""


@needs_compiler
def test_native_cheats_of_the_corpus(tmp_path: Path) -> None:
    for path in sorted(EVIL.glob("*.cpp")):
        candidate = load_evil(path.name, pose())
        built = build_native(candidate, tmp_path / path.stem)
        if built.binary is not None:
            found = screen(candidate, built.binary.read_bytes())
            assert bool(found.refused) is (path.name in REFUSED), (path.name, found)
