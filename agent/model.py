"""The model proposer: asks an OpenAI-compatible endpoint, by default the served model itself.

Whatever comes back becomes a candidate and is judged like any other; a wrong answer costs an attempt, never the run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelwright.agent.budget import Budget
from kernelwright.agent.parse import extract_source, plan_line
from kernelwright.agent.prompt import render_prompt
from kernelwright.agent.propose import History
from kernelwright.kernels.candidate import AxisRange, Candidate, Isa, SourceFile
from kernelwright.kernels.problem import Problem
from kernelwright.profiles.target import Target

ANSWER_TOKENS = 224


class Model:
    """One endpoint as a proposer. `attempts` is how often it is asked per problem."""

    name = "model"

    def __init__(
        self,
        client: Any,
        model: str,
        budget: Budget,
        isa: Isa,
        facts: dict[str, object],
        attempts: int = 1,
        on_trouble: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`client` is an `openai.OpenAI`; `facts` holds `cpu` and `threads` for the prompt."""
        self._client, self._model, self._budget, self._isa = client, model, budget, isa
        self._facts, self._attempts, self._on_trouble = facts, attempts, on_trouble
        self._set_aside = False

    def propose(self, problem: Problem, target: Target, history: History) -> Candidate | None:
        asked = sum(entry.candidate.proposer == "model" for entry in history.tried)
        if self._set_aside or asked >= self._attempts or self._budget.tokens_left() < 64:
            return None
        answer = self._ask(build_prompt(problem, target, history, self._isa, self._facts), seed=asked)
        if answer is None:
            return None
        return Candidate(
            definition=problem.definition.name,
            language="cpp",
            sources=(SourceFile(path="kernel.cpp", content=extract_source(answer)),),
            ranges={axis: AxisRange(low=1, high=1) for axis in [problem.contract.token_axis]},
            isa=self._isa,
            proposer="model",
            author=self._model,
            notes=plan_line(answer),
        )

    def _ask(self, prompt: str, seed: int) -> str | None:
        """Return the answer, or None when the endpoint fails; it is then set aside and the loop goes on without it."""
        import openai

        limit = min(ANSWER_TOKENS, self._budget.tokens_left())
        try:
            response = self._client.chat.completions.create(
                model=self._model,
                messages=[
                    {"role": "system", "content": render_prompt("system")},
                    {"role": "user", "content": prompt},
                ],
                max_tokens=limit,
                temperature=0.0 if seed == 0 else 0.7,
                seed=seed,
                timeout=120,
            )
        except openai.OpenAIError as error:
            self._set_aside = True
            self._on_trouble(f"the model endpoint failed ({type(error).__name__}); going on without it")
            return None
        if response.usage is not None:
            self._budget.tokens += response.usage.completion_tokens
        return response.choices[0].message.content or ""


def build_prompt(problem: Problem, target: Target, history: History, isa: Isa, facts: dict[str, object]) -> str:
    """Return the prompt of one problem: definition, reference, roofline position, what was tried, a skeleton."""
    definition = problem.definition
    arguments, bindings = _arguments(problem)
    failures = [
        f"{entry.candidate.notes or entry.candidate.author}: {entry.verdict.reason}"
        for entry in history.tried
        if entry.candidate.proposer == "model"
    ]
    ranked = history.ranked()
    return render_prompt(
        "propose",
        definition=definition,
        target=target,
        reference=definition.reference.strip(),
        arguments=arguments,
        bindings=bindings,
        num_arguments=len(bindings),
        best=ranked[0] if ranked else None,
        failures=failures[-3:],
        isa=isa,
        **facts,
    )


def _arguments(problem: Problem) -> tuple[list[str], list[str]]:
    definition = problem.definition
    tensors = {
        **definition.inputs,
        **{k: v for k, v in definition.outputs.items() if k not in problem.contract.aliases},
    }
    lines, bindings = [], []
    for position, (name, spec) in enumerate(tensors.items()):
        if spec.shape is None:
            lines.append(f"{name}: scalar")
            bindings.append(f"double {name} = args.number({position});")
            continue
        shape = ", ".join(_axis_text(definition, axis) for axis in spec.shape)
        role = "output " if name in definition.outputs else ""
        lines.append(f"{name}: {role}{spec.dtype}[{shape}]")
        bindings.append(
            f"auto {name} = args.tensor<{_ctype(spec.dtype)}>({position}, {len(spec.shape)});  // {name}.data[i]"
        )
    return lines, bindings


def _axis_text(definition: Any, axis: str) -> str:
    value = definition.axes[axis].value
    return f"{axis}={value}" if value is not None else axis


def _ctype(dtype: str) -> str:
    return {"float32": "float", "float64": "double", "int8": "int8_t", "int32": "int32_t", "int64": "int64_t"}[dtype]
