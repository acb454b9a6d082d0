"""Sealed memory holds against whoever else has its descriptor."""

from __future__ import annotations

import mmap
import os

import pytest
import torch

from kernelwright.sandbox.mailbox import Doorbell, Layout, Mailbox, Place


def test_a_tensor_comes_back_as_it_was() -> None:
    box = Mailbox("test", 1 << 16)
    place = Layout().place((3, 5), "float32")
    tensor = torch.randn(3, 5)
    box.write(place, tensor)
    assert torch.equal(box.read(place), tensor)


def test_what_does_not_fit_is_refused() -> None:
    box = Mailbox("test", 1 << 16)
    with pytest.raises(ValueError, match="does not fit"):
        box.write(Place(0, (2,), "float32"), torch.zeros(2, dtype=torch.float64))


def test_sealed_inputs_are_ours_alone_to_write() -> None:
    box = Mailbox("inputs", 4096)
    box.seal_inputs()
    box.memory[0:4] = b"ours"
    with pytest.raises(PermissionError):
        mmap.mmap(box.fd, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    with pytest.raises(PermissionError):
        os.pwrite(box.fd, b"theirs", 0)
    reader = mmap.mmap(box.fd, 4096, mmap.MAP_SHARED, mmap.PROT_READ)
    box.memory[0:4] = b"more"
    assert reader[0:4] == b"more"


def test_without_the_seal_anybody_with_the_descriptor_writes() -> None:
    box = Mailbox("inputs", 4096)
    mmap.mmap(box.fd, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)[0:6] = b"theirs"
    assert box.memory[0:6] == b"theirs"


@pytest.mark.parametrize("seal", ["seal_size", "seal_inputs", "seal_contents"])
def test_no_seal_lets_the_file_shrink(seal: str) -> None:
    box = Mailbox("any", 8192)
    getattr(box, seal)()
    with pytest.raises(PermissionError):
        os.ftruncate(box.fd, 0)


def test_sealed_contents_cannot_change_again() -> None:
    box = Mailbox("code", 1)
    box.fill_and_seal(b"kernel")
    assert os.pread(box.fd, 100, 0) == b"kernel"
    with pytest.raises(PermissionError):
        os.pwrite(box.fd, b"other", 0)


def test_places_are_aligned_and_fenced() -> None:
    layout = Layout(guard=4096)
    first, second = layout.place((7,), "float32"), layout.place((3,), "int8")
    assert first.offset % 64 == second.offset % 64 == 0
    assert first.offset >= 4096
    assert second.offset - (first.offset + first.num_bytes) >= 2 * 4096
    assert layout.end >= second.offset + 3 + 4096


def test_a_doorbell_tells_rung_from_silence() -> None:
    bell = Doorbell()
    ourselves = os.pidfd_open(os.getpid())
    assert bell.wait(0.01, ourselves) == "timeout"
    bell.ring()
    bell.ring()
    assert bell.wait(1, ourselves) == "rung"
    assert bell.drain() == 1
    os.close(ourselves)
    bell.close()
