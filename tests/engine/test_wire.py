from __future__ import annotations

import asyncio
import socket
import struct
import threading

import pytest

from kernelwright.engine import wire


def pair() -> tuple[wire.EngineEnd, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return wire.EngineEnd(ours), theirs


MESSAGES: list[wire.ToEngine] = [
    wire.Submit("a", [1, 2], wire.Sampling(4, stop_token_ids=(3,))),
    wire.Abort("a"),
    wire.Score("b", [wire.ForcedSequence([1], [2])], "decode", 4),
    wire.Credit("b", 1),
    wire.Ask("c", "kernels"),
]


def test_messages_arrive_as_sent_however_they_are_cut() -> None:
    end, other = pair()
    stream = b"".join(wire.encode(message) for message in MESSAGES)
    received: list[wire.ToEngine] = []
    for start in range(0, len(stream), 7):
        other.sendall(stream[start : start + 7])
        received += end.receive()
    assert received == MESSAGES
    assert end.is_open
    other.close()
    assert end.receive() == [] and not end.is_open


async def test_the_front_end_reads_rows_larger_than_any_buffer() -> None:
    end, other = pair()
    row = wire.Row("a", 0, 1, b"\x01" * 5_000_000)
    sender = threading.Thread(target=lambda: (end.send(row), end.connection.close()))
    sender.start()
    reader, writer = await asyncio.open_unix_connection(sock=other)
    assert await wire.receive_from_engine(reader) == row
    assert await wire.receive_from_engine(reader) is None
    sender.join()
    writer.close()


def test_sending_to_nobody_closes_the_end() -> None:
    end, other = pair()
    other.close()
    end.send(wire.Drain())
    assert not end.is_open


def test_nonsense_is_a_broken_tool() -> None:
    end, other = pair()
    other.sendall(struct.pack("<I", 3) + b"abc")
    with pytest.raises(wire.WireError, match="does not decode"):
        end.receive()


def test_an_impossible_length_is_a_broken_tool() -> None:
    end, other = pair()
    other.sendall(struct.pack("<I", wire.MAX_FRAME + 1))
    with pytest.raises(wire.WireError, match="out of step"):
        end.receive()
