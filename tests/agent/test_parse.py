from hypothesis import given
from hypothesis import strategies as st

from kernelwright.agent.parse import extract_source, plan_line, strip_reasoning


def test_the_cpp_fence_wins_over_a_longer_other_fence() -> None:
    answer = "Plan\n```python\n" + "x = 1\n" * 50 + "```\n```cpp\nint a;\n```\n"
    assert extract_source(answer) == "int a;\n"


def test_an_unclosed_fence_is_taken_to_the_end() -> None:
    assert extract_source("```cpp\nint a;\nint b;") == "int a;\nint b;\n"


def test_no_fence_gives_the_text_itself_so_that_it_is_judged_and_counted() -> None:
    assert extract_source("  I cannot do that. ") == "I cannot do that.\n"


def test_reasoning_is_not_code_even_when_cut_off() -> None:
    assert strip_reasoning("<think>```cpp\nwrong\n```</think>right") == "right"
    assert strip_reasoning("right<think>never closed ```cpp wrong") == "right"


def test_plan_line_is_the_first_prose() -> None:
    assert plan_line("\n## **Plan: unroll by 4**\n```cpp\n```") == "Plan: unroll by 4"


@given(st.text())
def test_any_answer_gives_some_source(answer: str) -> None:
    assert extract_source(answer).endswith("\n")


@given(st.text(alphabet=st.characters(exclude_characters="`", exclude_categories=["Cs", "Cc"]), min_size=1))
def test_a_fenced_body_comes_back_whole(body: str) -> None:
    assert extract_source(f"Plan.\n```cpp\n{body}\n```\nDone.").strip("\n") == body.strip("\n")
