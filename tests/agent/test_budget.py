from kernelwright.agent.budget import Budget


def test_what_an_interrupted_run_spent_counts() -> None:
    budget = Budget(total_s=100, max_attempts=5, max_tokens=10, spent_before_s=60)
    assert 39 < budget.left_s <= 40


def test_each_budget_ends_the_search_and_says_which() -> None:
    assert Budget(total_s=100, max_attempts=5, max_tokens=10).exhausted() is None
    assert Budget(total_s=100, max_attempts=5, max_tokens=10, spent_before_s=96).exhausted() == "wall time"
    assert Budget(total_s=100, max_attempts=5, max_tokens=10, attempts=5).exhausted() == "attempts"


def test_the_gates_time_is_kept_back_from_solving() -> None:
    budget = Budget(total_s=1000, max_attempts=5, max_tokens=10)
    assert budget.gate_s > 0 and budget.solve_left_s <= 1000 - budget.gate_s
    assert Budget(total_s=1000, max_attempts=5, max_tokens=10, spent_before_s=800).solve_left_s == 0
    assert Budget(total_s=100, max_attempts=5, max_tokens=10).gate_s == 0, "a smoke run has no time for one"


def test_a_gate_that_does_not_fit_is_not_begun_and_the_reason_is_told() -> None:
    assert Budget(total_s=900, max_attempts=5, max_tokens=10, spent_before_s=500).lacks_for_gate(10.0) is None
    reason = Budget(total_s=120, max_attempts=5, max_tokens=10, spent_before_s=70).lacks_for_gate(10.0)
    assert reason is not None and "410 s" in reason


def test_tokens_never_go_below_zero() -> None:
    assert Budget(total_s=1, max_attempts=1, max_tokens=10, tokens=15).tokens_left() == 0
