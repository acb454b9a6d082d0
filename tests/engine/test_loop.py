"""The engine's side of the wire, driven by hand from the front end's side."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from kernelwright.engine import wire
from kernelwright.engine.adapt import in_bursts
from kernelwright.engine.guard import Guard
from kernelwright.engine.loop import EngineLoop
from kernelwright.engine.scripted import END, ScriptedEngine

decoder = msgspec.msgpack.Decoder(wire.ToFrontend)


class Other:
    """The front end's end, blocking."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        connection.settimeout(10)

    def send(self, *messages: wire.ToEngine) -> None:
        self.connection.sendall(b"".join(map(wire.encode, messages)))

    def receive(self) -> wire.ToFrontend:
        size = int.from_bytes(self._read(4), "little")
        return decoder.decode(self._read(size))

    def _read(self, size: int) -> bytes:
        held = b""
        while len(held) < size:
            chunk = self.connection.recv(size - len(held))
            assert chunk, "the engine closed its end"
            held += chunk
        return held

    def tokens(self) -> list[wire.Token]:
        """Return the tokens of one request up to its last."""
        found: list[wire.Token] = []
        while not found or found[-1].finish is None:
            message = self.receive()
            found += message.tokens if isinstance(message, wire.Step) else []
        return found

    def nothing_comes(self) -> bool:
        self.connection.settimeout(0.2)
        try:
            self.connection.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.connection.settimeout(10)
        return False


@contextmanager
def running(engine: ScriptedEngine, guard: Guard | None = None, profile_dir: Path | None = None) -> Iterator[Other]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    loop = EngineLoop(engine, wire.EngineEnd(ours), guard or Guard(), profile_dir)
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        yield Other(theirs)
    finally:
        theirs.close()
        thread.join(timeout=10)
        ours.close()
    assert not thread.is_alive(), "the loop must end when the front end closes"


GREEDY = wire.Sampling(max_tokens=32, temperature=0)


def test_a_request_is_answered_token_by_token() -> None:
    with running(ScriptedEngine()) as other:
        other.send(wire.Submit("a", [1], GREEDY))
        tokens = other.tokens()
    assert [token.token for token in tokens] == [*b"Paris.", END]
    assert [token.finish for token in tokens] == [None] * 6 + ["stop"]


def test_requests_share_steps() -> None:
    engine = ScriptedEngine()
    with running(engine) as other:
        other.send(wire.Submit("a", [1], GREEDY), wire.Submit("b", [2], GREEDY))
        step = other.receive()
    assert isinstance(step, wire.Step)
    assert {token.id for token in step.tokens} == {"a", "b"}


def test_an_idle_loop_sleeps() -> None:
    with running(ScriptedEngine()):
        before = time.process_time()
        time.sleep(0.3)
        assert time.process_time() - before < 0.1


def test_an_abort_reaches_the_engine() -> None:
    engine = ScriptedEngine(says=lambda prompt: [1, 2, 3], step_s=0.01)
    with running(engine) as other:
        other.send(wire.Submit("a", [1], wire.Sampling(max_tokens=10_000)))
        other.receive()
        other.send(wire.Abort("a"))
        deadline = time.monotonic() + 5
        while not engine.aborted and time.monotonic() < deadline:
            time.sleep(0.01)
    assert engine.aborted == ["a"]


def test_what_the_engine_refuses_is_the_clients_to_mend() -> None:
    with running(ScriptedEngine()) as other:
        other.send(wire.Submit("a", list(b"refuse me"), GREEDY))
        assert other.receive() == wire.Ended("a", "the engine has no room for this request", 400)


def test_a_score_stops_when_nobody_reads() -> None:
    engine = ScriptedEngine()
    with running(engine) as other:
        other.send(wire.Score("s", [wire.ForcedSequence(list(range(100)))], "prefill", credit=3))
        rows = [other.receive() for _ in range(3)]
        assert other.nothing_comes() and engine.rows_made == 3
        other.send(wire.Credit("s", 1))
        rows.append(other.receive())
        assert other.nothing_comes() and engine.rows_made == 4
    assert [row.position for row in rows if isinstance(row, wire.Row)] == [0, 1, 2, 3]


def test_a_score_has_the_engine_to_itself() -> None:
    with running(ScriptedEngine(step_s=0.005)) as other:
        score = wire.Score("s", [wire.ForcedSequence([1, 2])], "prefill", credit=10)
        other.send(wire.Submit("a", [1], GREEDY), score, wire.Submit("b", [1], GREEDY))
        kinds = [_kind(other.receive()) for _ in range(7 + 3 + 7)]
    assert kinds == ["a"] * 7 + ["s"] * 3 + ["b"] * 7


def _kind(message: wire.ToFrontend) -> str:
    return message.tokens[0].id if isinstance(message, wire.Step) else getattr(message, "id", "")


def test_an_aborted_score_makes_way() -> None:
    with running(ScriptedEngine()) as other:
        other.send(wire.Score("s", [wire.ForcedSequence([1] * 50)], "prefill", credit=1))
        other.receive()
        other.send(wire.Abort("s"), wire.Submit("a", [1], GREEDY))
        assert len(other.tokens()) == 7


def test_the_guard_may_stop_a_collapsed_generation() -> None:
    engine = ScriptedEngine(says=lambda prompt: [5])
    with running(engine, Guard(max_repeats=4, action="stop")) as other:
        other.send(wire.Submit("a", [1], GREEDY))
        tokens = other.tokens()
    assert [token.finish for token in tokens] == [None] * 4 + ["collapse"]
    assert engine.aborted == ["a"]


def test_the_guard_switched_off_lets_the_collapse_through() -> None:
    with running(ScriptedEngine(says=lambda prompt: [5]), Guard(max_repeats=4, action="observe")) as other:
        other.send(wire.Submit("a", [1], GREEDY))
        assert [token.finish for token in other.tokens()] == [None] * 31 + ["length"]


def test_profiles_are_started_and_stopped_in_order(tmp_path: Path) -> None:
    with running(ScriptedEngine(), profile_dir=tmp_path) as other:
        answers = []
        for what in ("stop_profile", "start_profile", "start_profile", "stop_profile"):
            other.send(wire.Ask("q", what))  # type: ignore[arg-type]
            answers.append(other.receive())
    statuses = [answer.status if answer.error else 200 for answer in answers if isinstance(answer, wire.Answer)]
    assert statuses == [409, 200, 409, 200]
    assert answers[-1].value == {"trace": str(tmp_path / "trace-1.json")}  # type: ignore[union-attr]


def test_without_a_folder_profiling_is_refused_with_the_remedy() -> None:
    with running(ScriptedEngine()) as other:
        other.send(wire.Ask("q", "start_profile"))
        answer = other.receive()
    assert isinstance(answer, wire.Answer) and "--profile-dir" in (answer.error or "")


def test_rows_come_in_bursts_so_that_work_and_sending_take_turns() -> None:
    made: list[int] = []

    def rows() -> Iterator[tuple[int, int, int]]:
        for position in range(7):
            made.append(position)
            yield 0, position, position

    seen = [(position, len(made)) for _, position, _ in in_bursts(rows(), most=3)]
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 6), (4, 6), (5, 6), (6, 7)]
    made.clear()
    assert [(position, len(made)) for _, position, _ in in_bursts(rows(), seconds=0)] == [(i, i + 1) for i in range(7)]


def test_a_kernel_is_switched_between_steps_and_never_in_the_middle_of_a_score() -> None:
    engine = ScriptedEngine()
    on = {"definition": "add_rmsnorm_h8", "enabled": True}
    with running(engine) as other:
        other.send(wire.Ask("q", "switch_kernel", on))
        told, answer = other.receive(), other.receive()
        assert isinstance(told, wire.Step) and isinstance(answer, wire.Answer)
        assert answer.value["recomputed_requests"] == 0 and answer.value["kernels"][0]["state"] == "live"
        other.send(wire.Score("s", [wire.ForcedSequence([1] * 50)], "prefill", credit=1))
        assert isinstance(other.receive(), wire.Row)
        other.send(wire.Ask("q", "switch_kernel", on), wire.Ask("q", "switch_kernel", on | {"definition": "rope"}))
        statuses = [answer.status for answer in (other.receive(), other.receive()) if isinstance(answer, wire.Answer)]
    assert statuses == [409, 404] and engine.switched == [("add_rmsnorm_h8", True)]


def test_a_retried_answer_is_one_text() -> None:
    engine = ScriptedEngine(says=lambda prompt: [1, 2, *[5] * 20], says_again=lambda prompt: [1, 2, 3, 4, END])
    heard: list[str] = []
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    loop = EngineLoop(engine, wire.EngineEnd(ours), Guard(max_repeats=4, action="retry"), say=heard.append)
    thread = threading.Thread(target=loop.run)
    thread.start()
    other = Other(theirs)
    other.send(wire.Submit("a", [1], GREEDY))
    tokens = other.tokens()
    theirs.close()
    thread.join(timeout=10)
    ours.close()
    assert [token.token for token in tokens] == [1, 2, 3, 4, END] and tokens[-1].finish == "stop"
    assert engine.retried == [("a", 2)] and loop.guard.retries == {"mended": 1} and len(heard) == 2
    assert loop.guard.num_watched == 0
