"""Dispatch: which implementation runs in each slot of each layer, decided once per step bucket.

A plan holds, for one (phase, tokens) bucket, the bound slots of all layers. Pack kernels are bound when the engine
loads; incumbents are bound on first use, so that dequantised weights exist only where a fallback needs them.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel

from kernelwright.engine.decoder import ATTENTION_OPS, HEAD_OPS, MLP_OPS, Call, DecoderWeights, LayerCalls
from kernelwright.engine.kernel import Kernel
from kernelwright.kernels.candidate import AxisRange, Candidate
from kernelwright.kernels.definition import DTYPES, Definition, SlotContract
from kernelwright.kernels.load import BoundSlot, Implementation, load_implementation
from kernelwright.kernels.registry import op_of
from kernelwright.profiles.digest import digest_bytes, digest_of
from kernelwright.profiles.errors import KernelwrightError
from kernelwright.profiles.profile import Phase

if TYPE_CHECKING:
    from torch import Tensor

REGIONS = {"attention_block": ATTENTION_OPS, "mlp_block": MLP_OPS}


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """A pack's kernel as the engine takes it: the candidate and, for native ones, its built shared object."""

    candidate: Candidate
    binary: Path | None = None
    ranges: dict[str, AxisRange] | None = None
    """Ranges proven by the judge, by axis; None = those the candidate claims."""


class KernelState(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """What became of one definition (once per pack kernel, or once where there is none)."""

    definition: str
    state: Literal["live", "disabled", "failed", "tripped", "incumbent-only"]
    candidate: str | None = None
    """Digest of the pack's candidate."""
    binary: str | None = None
    """SHA-256 of the shared object loaded."""
    author: str | None = None
    hits: int = 0
    """Slot calls this kernel served, layers counted one by one."""
    fallbacks: dict[str, int] = {}
    """Reason → slot calls of this definition that the incumbent served although a pack has a kernel for it."""
    incumbent_calls: int = 0
    """Slot calls of this definition that the incumbent served, whatever the reason."""
    reason: str = ""
    """Why it failed or was switched off by a live check; empty otherwise."""
    tripped_at: float | None = None
    """When it was switched off by a live check, seconds since 1970; None while it has not been."""
    trips: dict[str, int] = {}
    """Kind → how often a live check switched it off since the start, those since lifted by an operator included."""
    checks: dict[str, int] = {}
    """Phase → live calls that were computed a second time and compared; see shadow.py."""
    checked_layers: int = 0
    """Layers that those calls were in."""


@dataclass(frozen=True, slots=True)
class CallSite:
    """Where a bound slot is called from; what profiling and capture need to know."""

    definition: Definition
    contract: SlotContract
    phase: Phase
    tokens: int
    layer: int


Wrap = Callable[[CallSite, BoundSlot], Call]


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One call of a pack's kernel in a plan: where it is, and by what name `LayerCalls` knows it."""

    site: CallSite
    kernel: Kernel
    slot: str
    key: str
    """The slot's name in the weights' table; `attention` has two there."""
    bound: BoundSlot


@dataclass(slots=True)
class Plan:
    """Bound slots of one bucket. `tally`: what one run counts as, (definition, kernel or None, reason) → calls."""

    layers: list[LayerCalls]
    head: list[Call]
    tally: Counter[tuple[str, Kernel | None, str]]
    kernel_calls: list[KernelCall] = field(default_factory=list)
    """In the order of their calls."""
    runs: int = 0


@dataclass(frozen=True, slots=True)
class _Bucket:
    phase: Phase
    tokens: int
    axes: dict[str, int]
    plain: bool
    """Whether no kernel of a pack may be chosen."""

    def of(self, tokens: int) -> _Bucket:
        return _Bucket(self.phase, tokens, {**self.axes, "T": tokens}, self.plain)


@dataclass(slots=True)
class _Choice:
    kernel: Kernel | None
    reason: str = ""


@dataclass(slots=True)
class Dispatch:
    """The slot table. `caches[layer]` is the (k, v) pair of page caches."""

    weights: DecoderWeights
    caches: Sequence[tuple[Tensor, Tensor]]
    disabled: set[str] = field(default_factory=set)
    compile_incumbents: bool = False
    """Run the regions of decode steps as the incumbent's code through torch.compile: what a flag alone would give."""
    kernels: dict[str, list[Kernel]] = field(default_factory=dict)
    _definitions: list[dict[str, Definition]] = field(default_factory=list)
    _by_name: dict[str, Definition] = field(default_factory=dict)
    _contracts: dict[str, SlotContract] = field(default_factory=dict)
    _incumbents: dict[str, Implementation] = field(default_factory=dict)
    _bound: dict[tuple[int, str, str], BoundSlot] = field(default_factory=dict)
    _held: dict[tuple[int, str, str], int] = field(default_factory=dict)
    _plans: dict[tuple[object, ...], Plan] = field(default_factory=dict)
    _past: Counter[tuple[str, Kernel | None, str]] = field(default_factory=Counter)
    _wrap: Wrap | None = None

    def __post_init__(self) -> None:
        self._definitions = [self.weights.definitions(layer) for layer in range(self.weights.config.num_layers + 1)]
        self._by_name = {d.name: d for table in self._definitions for d in table.values()}
        self._contracts = {name: op_of(d).contract(d) for name, d in self._by_name.items()}

    def contract(self, name: str) -> SlotContract:
        """Return the contract of a definition of this model. Raises KeyError when it has none of that name."""
        return self._contracts[name]

    def definition(self, name: str) -> Definition:
        """Return a definition of this model by name. Raises KeyError when it has none of that name."""
        return self._by_name[name]

    def add(self, loaded: LoadedKernel) -> None:
        """Load a pack kernel and bind it in every layer that has its slot; one that does not load is kept as failed."""
        kernel = Kernel(loaded.candidate, None, digest_of(loaded.candidate), None)
        kernel.ranges = loaded.candidate.ranges if loaded.ranges is None else loaded.ranges
        self.kernels.setdefault(loaded.candidate.definition, []).append(kernel)
        definition = self._by_name.get(loaded.candidate.definition)
        if definition is None:
            kernel.failure = "this model has no such slot"
            return
        try:
            if loaded.binary is not None:
                kernel.binary = digest_bytes(loaded.binary.read_bytes())
            contract = self._contracts[definition.name]
            kernel.implementation = load_implementation(loaded.candidate, loaded.binary, definition, contract)
            for layer, slot in self._places(definition.name):
                self._bind(layer, slot, kernel)
        except (KernelwrightError, OSError, RuntimeError, ValueError) as error:
            # a pack made elsewhere may not load here (another CPU, another libc): the engine serves without it
            kernel.failure = f"does not load: {error}"

    def plan(self, phase: Phase, tokens: int, rows: int, num_seqs: int, blocks: int, plain: bool = False) -> Plan:
        """Return the plan of a step of `tokens` tokens of `num_seqs` sequences, with logits wanted in `rows` rows.

        `blocks` is the width of its block table; `plain` leaves every slot to the incumbent.
        """
        key = (phase, tokens, rows, plain, *self._extra_key(num_seqs, blocks))
        plan = self._plans.get(key)
        if plan is None:
            axes = {"B": num_seqs, "B1": num_seqs + 1, "MB": blocks, "P": self.weights.max_positions}
            plan = self._plans[key] = self._build(_Bucket(phase, tokens, axes, plain), rows)
        return plan

    @property
    def is_watched(self) -> bool:
        """Whether slot calls are wrapped, for a profile or a capture."""
        return self._wrap is not None

    def live_kernels(self) -> list[Kernel]:
        """Return the pack kernels that may be chosen."""
        return [
            kernel
            for name, kernels in self.kernels.items()
            if name not in self.disabled
            for kernel in kernels
            if kernel.is_sound
        ]

    def set_wrap(self, wrap: Wrap | None) -> None:
        """Wrap every slot call from now on (profiling, capture), or with None no longer."""
        self._wrap = wrap
        self.forget_plans()

    def forget_plans(self) -> None:
        """Decide anew from the next step on; what was counted stays counted."""
        for plan in self._plans.values():
            for key, calls in plan.tally.items():
                self._past[key] += calls * plan.runs
        self._plans.clear()

    def held_bytes(self) -> dict[tuple[int, str, str], int]:
        """Return (layer, slot, digest of the kernel or "") → bytes that its implementation made or keeps of weights.

        What is mapped from the file, and tables that all layers share, are not in it.
        """
        return dict(self._held)

    def incumbent_bytes(self) -> int:
        """Return what the incumbents of all slots would hold; a fused region's would come on top."""
        sizes = {name: _packed_bytes(op_of(d).incumbent(d)) for name, d in self._by_name.items()}
        slots = [(slot, d) for table in self._definitions for slot, d in table.items() if slot not in REGIONS]
        return sum(sizes[definition.name] for _, definition in slots)

    def states(self) -> list[KernelState]:
        """Return the state of every definition of the model and of every pack kernel, with counts so far."""
        counts = Counter(self._past)
        for plan in self._plans.values():
            for key, calls in plan.tally.items():
                counts[key] += calls * plan.runs
        names = list(dict.fromkeys([*self._contracts, *self.kernels]))
        return [state for name in names for state in self._states_of(name, counts)]

    def _states_of(self, name: str, counts: Counter[tuple[str, Kernel | None, str]]) -> Iterable[KernelState]:
        mine = {key: calls for key, calls in counts.items() if key[0] == name and calls}
        by_incumbent = {reason: calls for (_, kernel, reason), calls in mine.items() if kernel is None}
        fallbacks = {reason: calls for reason, calls in by_incumbent.items() if reason}
        total = sum(by_incumbent.values())
        if name not in self.kernels:
            yield KernelState(definition=name, state="incumbent-only", incumbent_calls=total)
        for kernel in self.kernels.get(name, ()):
            yield KernelState(
                definition=name,
                state=self._state_of(name, kernel),
                candidate=kernel.digest,
                binary=kernel.binary,
                author=kernel.candidate.author,
                hits=mine.get((name, kernel, ""), 0),
                fallbacks=fallbacks,
                incumbent_calls=total,
                reason=kernel.failure or (kernel.trip.reason if kernel.trip else ""),
                tripped_at=kernel.trip.at if kernel.trip else None,
                trips=dict(kernel.trips),
                checks=dict(kernel.checks),
                checked_layers=len(kernel.checked_layers),
            )

    def _state_of(self, name: str, kernel: Kernel) -> Literal["live", "disabled", "failed", "tripped"]:
        if kernel.failure:
            return "failed"
        if kernel.trip is not None:
            return "tripped"
        return "disabled" if name in self.disabled else "live"

    def _extra_key(self, num_seqs: int, blocks: int) -> tuple[int, ...]:
        # beyond (phase, tokens) a plan depends on these only where a kernel's proven range names them
        named = {axis for kernels in self.kernels.values() for kernel in kernels for axis in kernel.ranges}
        return tuple(v for names, v in (({"B", "B1"}, num_seqs), ({"MB"}, blocks)) if names & named)

    def _build(self, bucket: _Bucket, rows: int) -> Plan:
        if self.caches:
            bucket.axes["PAGES"] = self.caches[0][0].shape[0]
        plan = Plan(layers=[], head=[], tally=Counter())
        last, step = self.weights.config.num_layers, bucket.of(bucket.tokens)
        for layer in range(last):
            k, v = self.caches[layer]
            calls = LayerCalls(k_cache=k, v_cache=v)
            for region, ops in REGIONS.items():
                for slot in self._slots(layer, region, ops, step, plan):
                    setattr(calls, slot, self._call(layer, slot, step, plan))
            plan.layers.append(calls)
        if rows:
            plan.head = [self._call(last, slot, bucket.of(rows), plan) for slot in HEAD_OPS]
        return plan

    def _slots(self, layer: int, region: str, ops: tuple[str, ...], bucket: _Bucket, plan: Plan) -> tuple[str, ...]:
        """Return what to call for a region: itself when a kernel of it is live in this bucket, else its ops."""
        table = self._definitions[layer]
        ops = tuple(op for op in ops if op in table or op == "attention")
        definition = table.get(region)
        if definition is None:
            return ops
        choice = self._choose(definition.name, bucket)
        if region == "attention_block" and bucket.phase == "prefill" and definition.name in self.kernels:
            choice = _Choice(None, "decode only")
        compiled = self.compile_incumbents and bucket.phase == "decode" and definition.name not in self.kernels
        if choice.kernel is not None or compiled:
            return (region,)
        if choice.reason:
            plan.tally[(definition.name, None, choice.reason)] += 1
        return ops

    def _call(self, layer: int, slot: str, bucket: _Bucket, plan: Plan) -> Call:
        key = f"{bucket.phase}_attention" if slot == "attention" else slot
        definition = self._definitions[layer][key]
        choice = self._choose(definition.name, bucket)
        plan.tally[(definition.name, choice.kernel, choice.reason)] += 1
        site = CallSite(definition, self._contracts[definition.name], bucket.phase, bucket.tokens, layer)
        bound = self._bind(layer, key, choice.kernel)
        if choice.kernel is not None:
            plan.kernel_calls.append(KernelCall(site, choice.kernel, slot, key, bound))
        return bound.call if self._wrap is None else self._wrap(site, bound)

    def _choose(self, name: str, bucket: _Bucket) -> _Choice:
        kernels = self.kernels.get(name)
        if not kernels:
            return _Choice(None)
        if name in self.disabled:
            return _Choice(None, "disabled")
        if bucket.plain:
            return _Choice(None, "retry")
        sound = [kernel for kernel in kernels if kernel.is_sound]
        covering = next((kernel for kernel in sound if kernel.covers(bucket.axes)), None)
        if covering is not None or sound:
            return _Choice(covering, "" if covering else "out of range")
        return _Choice(None, "tripped" if any(kernel.trip for kernel in kernels) else "failed")

    def _bind(self, layer: int, slot: str, kernel: Kernel | None) -> BoundSlot:
        key = (layer, slot, kernel.digest if kernel else "")
        if key not in self._bound:
            implementation = kernel.implementation if kernel else self._incumbent(self._definitions[layer][slot])
            assert implementation is not None  # a failed kernel is never chosen
            weights = self.weights.slot(layer, slot)
            kept = {name: (weakref.ref(tensor), tensor.nbytes) for name, tensor in weights.items()}
            kept = {name: known for name, known in kept.items() if not self.weights.is_own(weights[name])}
            bound = self._bound[key] = implementation.bind(weights)
            del weights  # now only what the implementation keeps of them is left
            self._held[key] = bound.packed_bytes + sum(size for ref, size in kept.values() if ref() is not None)
        return self._bound[key]

    def _incumbent(self, definition: Definition) -> Implementation:
        if definition.name not in self._incumbents:
            candidate = op_of(definition).incumbent(definition)
            contract = self._contracts[definition.name]
            compiled = self.compile_incumbents and bool(contract.regions)
            self._incumbents[definition.name] = load_implementation(candidate, None, definition, contract, compiled)
        return self._incumbents[definition.name]

    def _places(self, name: str) -> Iterable[tuple[int, str]]:
        for layer, table in enumerate(self._definitions):
            for slot, definition in table.items():
                if definition.name == name:
                    yield layer, slot


def _packed_bytes(candidate: Candidate) -> int:
    return sum(math.prod(packed.shape) * DTYPES[packed.dtype] for packed in candidate.packed if packed.shape)
