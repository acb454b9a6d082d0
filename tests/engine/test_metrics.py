from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from kernelwright.engine import wire
from kernelwright.engine.metrics import Metrics

KERNELS = {
    "resident_bytes": 4096,
    "kernels": [
        {"definition": "rope", "candidate": "a" * 64, "hits": 5, "fallbacks": {"out of range": 2}},
        {"definition": "rope", "candidate": "b" * 64, "hits": 1, "fallbacks": {"out of range": 2}},
        {"definition": "head", "candidate": None, "hits": 0, "fallbacks": {}},
    ],
}


def samples(text: bytes) -> dict[tuple[str, tuple[str, ...]], float]:
    families = text_string_to_metric_families(text.decode())
    return {
        (s.name, tuple(s.labels[name] for name in sorted(s.labels))): s.value
        for family in families
        for s in family.samples
    }


def test_kernel_counts_carry_definition_candidate_and_reason() -> None:
    found = samples(Metrics().render(KERNELS))
    assert found["kernelwright:kernel_hits_total", ("a" * 12, "rope")] == 5
    assert found["kernelwright:kernel_hits_total", ("b" * 12, "rope")] == 1
    assert found["kernelwright:kernel_fallbacks_total", ("rope", "out of range")] == 2
    assert found["kernelwright:engine_resident_memory_bytes", ()] == 4096
    assert not any("head" in labels for _, labels in found)


def test_without_the_engines_answer_the_front_ends_numbers_remain() -> None:
    found = samples(Metrics().render(None))
    assert found["kernelwright:num_requests_running", ()] == 0
    assert not any("kernel_hits" in name for name, _ in found)


def test_steps_and_requests_are_counted() -> None:
    metrics = Metrics()
    tokens = [wire.Token("a", 1), wire.Token("b", None, "error")]
    metrics.note_step(wire.Step(tokens, running=1, waiting=2, collapses={"not_finite": 1}))
    with metrics.request(prompt_tokens=11) as timer:
        timer.note_token(None)
        timer.note_token("stop")
    with metrics.request(prompt_tokens=2):
        pass  # the client left
    found = samples(metrics.render(None))
    assert found["kernelwright:prompt_tokens_total", ()] == 13
    assert found["kernelwright:generation_tokens_total", ()] == 1
    assert found["kernelwright:num_requests_waiting", ()] == 2
    assert found["kernelwright:guard_trips_total", ("not_finite",)] == 1
    assert found["kernelwright:request_success_total", ("stop",)] == 1
    assert found["kernelwright:request_aborted_total", ()] == 1
    assert found["kernelwright:time_to_first_token_seconds_count", ()] == 1
    assert found["kernelwright:inter_token_latency_seconds_count", ()] == 1


def test_a_whole_request_is_measured_and_one_that_is_left_is_not() -> None:
    metrics = Metrics()
    with metrics.request(7) as timer:
        timer.note_token(None)
        timer.note_token("stop")
    with metrics.request(9) as left:
        left.note_token(None)
    found = samples(metrics.render(None))
    assert found["kernelwright:request_prompt_tokens_sum", ()] == 16
    assert found["kernelwright:request_generation_tokens_sum", ()] == 2
    assert found["kernelwright:e2e_request_latency_seconds_count", ()] == 1
    assert found["kernelwright:request_aborted_total", ()] == 1


def test_live_checks_retries_pages_and_memory_are_told() -> None:
    metrics = Metrics()
    metrics.note_step(wire.Step([], 0, 0, retries={"mended": 2}))
    kernel = {"definition": "rope", "candidate": "a" * 64, "state": "tripped", "hits": 5, "fallbacks": {"tripped": 2}}
    kernel |= {"trips": {"shadow": 1}, "checks": {"decode": 7}}
    answer = {
        "kernels": [kernel], "resident_bytes": 4096, "memory": {"packed_bytes": 12}, "step_seconds": 3.0,
        "pages": {"free": 1, "cached": 2, "owned": 3, "references": 4, "held": 4}, "shadow": {"seconds": 0.5},
    }  # fmt: skip
    found = samples(metrics.render(answer))
    assert found["kernelwright:guard_retries_total", ("mended",)] == 2
    assert found["kernelwright:kernel_trips_total", ("a" * 12, "rope", "shadow")] == 1
    assert found["kernelwright:kernel_shadow_checks_total", ("a" * 12, "rope", "decode")] == 7
    assert found["kernelwright:kernel_live", ("a" * 12, "rope")] == 0
    assert found["kernelwright:engine_memory_bytes", ("packed",)] == 12
    assert [found["kernelwright:kv_pages", (state,)] for state in ("free", "cached", "owned")] == [1, 2, 3]
    assert found["kernelwright:shadow_check_seconds_total", ()] == 0.5
