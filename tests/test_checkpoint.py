import errno
import os
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from minerva.checkpoint import Checkpoints, load
from minerva.errors import UserError


class Part:
    """Holds whatever it was given."""

    def __init__(self, state: Any = None) -> None:
        self.state = state

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = state


def test_what_is_saved_is_restored(tmp_path):
    network, part = nn.Linear(3, 2), Part({"count": 3, "mean": 0.5, "list": [(1.5, 2), None], "name": "x"})
    Checkpoints(tmp_path / "new" / "checkpoints").save(facts={"step": 7, "score": 1.5}, network=network, part=part)

    other, empty = nn.Linear(3, 2), Part()
    assert Checkpoints(tmp_path / "new" / "checkpoints").restore({}, network=other, part=empty)
    assert load(tmp_path / "new" / "checkpoints" / "last.pt")["step"] == 7
    assert torch.equal(other.weight, network.weight)
    assert torch.equal(other.bias, network.bias)
    assert empty.state == part.state


def test_an_optimiser_goes_on_with_its_moments(tmp_path):
    def trained() -> tuple[nn.Linear, torch.optim.Optimizer]:
        torch.manual_seed(0)
        network = nn.Linear(3, 2)
        return network, torch.optim.Adam(network.parameters(), lr=0.1)

    def learn(network: nn.Linear, optimizer: torch.optim.Optimizer) -> None:
        network(torch.ones(3)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    network, optimizer = trained()
    learn(network, optimizer)
    Checkpoints(tmp_path).save(facts={"step": 1}, network=network, optimizer=optimizer)
    learn(network, optimizer)
    other, other_optimizer = trained()
    Checkpoints(tmp_path).restore({}, network=other, optimizer=other_optimizer)
    learn(other, other_optimizer)
    assert torch.equal(other.weight, network.weight)


def test_without_a_checkpoint_nothing_is_restored(tmp_path):
    part = Part("untouched")
    assert Checkpoints(tmp_path / "checkpoints").restore({}, part=part) is False
    assert part.state == "untouched"
    assert not (tmp_path / "checkpoints").exists()


def test_best_is_kept_beside_last(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(name="best", facts={"step": 1}, part=Part("good"))
    checkpoints.save(facts={"step": 2}, part=Part("later"))
    assert load(tmp_path / "best.pt") == {"step": 1, "state": {"part": "good"}}
    assert load(tmp_path / "last.pt") == {"step": 2, "state": {"part": "later"}}
    checkpoints.save(facts={"step": 3}, part=Part("latest"))
    assert load(tmp_path / "previous.pt")["step"] == 2
    assert {path.name for path in tmp_path.iterdir()} == {"best.pt", "last.pt", "previous.pt"}


@pytest.mark.parametrize("name", ["last", "best"])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failure_while_writing_leaves_the_old_file(tmp_path, monkeypatch, name, call):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(name=name, facts={"step": 1}, part=Part(torch.arange(1000)))
    before = (tmp_path / f"{name}.pt").read_bytes()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(
        UserError, match=rf"{name}\.pt: cannot be written: No space left on device; the one before is whole"
    ):
        checkpoints.save(name=name, facts={"step": 2}, part=Part(torch.zeros(1000)))
    monkeypatch.undo()
    assert (tmp_path / f"{name}.pt").read_bytes() == before
    assert not list(tmp_path.glob(f"{name}.tmp"))
    checkpoints.save(name=name, facts={"step": 3}, part=Part("again"))
    assert load(tmp_path / f"{name}.pt")["step"] == 3


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 64 KiB; made where the user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_leaves_the_last_one(tiny_disk):
    checkpoints = Checkpoints(tiny_disk / "checkpoints")
    checkpoints.save(facts={"step": 1}, part=Part(torch.arange(1000)))
    with pytest.raises(UserError, match=r"last\.pt: cannot be written: No space left on device"):
        checkpoints.save(facts={"step": 2}, part=Part(torch.arange(20000)))
    assert load(tiny_disk / "checkpoints" / "last.pt")["step"] == 1
    checkpoints.save(facts={"step": 3}, part=Part("there is room for this"))
    assert load(tiny_disk / "checkpoints" / "last.pt")["step"] == 3


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-200]),
    "a flipped bit": lambda path: path.write_bytes(path.read_bytes().replace(b"\x80?", b"\x81?")),
    "empty": lambda path: path.write_bytes(b""),
    "missing": lambda path: path.unlink(),
    "another program's": lambda path: path.write_text("hello"),
}


@pytest.mark.parametrize("damage", list(DAMAGE))
def test_the_one_before_is_used_where_the_last_is_damaged(tmp_path, caplog, damage):
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2, 3):
        checkpoints.save(facts={"step": step, "identity": {}}, part=Part({"step": step, "weight": torch.ones(100)}))
    before = (tmp_path / "last.pt").read_bytes()
    DAMAGE[damage](tmp_path / "last.pt")
    assert not (tmp_path / "last.pt").exists() or (tmp_path / "last.pt").read_bytes() != before
    part = Part()
    assert checkpoints.restore({}, part=part)
    assert part.state["step"] == 2
    assert "last.pt: " in caplog.text
    assert "going on from the one before, previous.pt" in caplog.text
    checkpoints.save(facts={"step": 4, "identity": {}}, part=part)
    assert load(tmp_path / "previous.pt")["step"] == 2, "what was damaged is not kept as the one before"
    DAMAGE[damage](tmp_path / "last.pt")
    (tmp_path / "previous.pt").write_text("hello")
    with pytest.raises(UserError, match=r"previous\.pt: not a checkpoint"):
        checkpoints.restore({}, part=part)


def test_no_flipped_bit_goes_unnoticed(tmp_path):
    """Every byte of a file: it is refused, or what is read is what was written."""
    state = {"weight": torch.arange(20.0), "list": [(1.5, 2), None], "name": "x"}
    Checkpoints(tmp_path).save(facts={"step": 7}, part=Part(state))
    path, refused = tmp_path / "last.pt", 0
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << place % 8)]) + whole[place + 1 :])
        try:
            read = load(path)
        except UserError:
            refused += 1
            continue
        weight = read["state"]["part"].pop("weight")
        assert torch.equal(weight, state["weight"]), place
        assert read == {"step": 7, "state": {"part": {"list": [(1.5, 2), None], "name": "x"}}}, place
    assert refused > len(whole) // 4


def test_a_failure_before_writing_leaves_the_old_file(tmp_path):
    class Broken(Part):
        def state_dict(self) -> Any:
            raise RuntimeError("CUDA error")

    Checkpoints(tmp_path).save(facts={"step": 1}, part=Part("good"))
    with pytest.raises(RuntimeError):
        Checkpoints(tmp_path).save(facts={"step": 2}, part=Broken())
    assert load(tmp_path / "last.pt")["step"] == 1


def saved(tmp_path: Path) -> Path:
    Checkpoints(tmp_path).save(facts={"step": 1}, part=Part({"weight": torch.arange(100.0)}))
    return tmp_path / "last.pt"


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.5, 0.9, 0.99])
def test_a_truncated_file_is_named(tmp_path, share):
    path = saved(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    for read in (lambda: load(path), lambda: Checkpoints(tmp_path).restore({}, part=Part())):
        with pytest.raises(UserError, match=r"last\.pt: not a checkpoint, or a damaged one") as error:
            read()
        assert "\n" not in str(error.value)


GARBAGE = {
    "text": b"hello, this is no checkpoint\n",
    "zeros": bytes(1000),
    "JSON": b'{"step": 1}',
    "pops an empty stack": b"\x80\x02.",
    "ends in an opcode": b"\x80\x02X",
    "ends in a number": b"\x80\x02J\x01",
    "marks nothing": b"\x80\x02t.",
    "PNG": b"\x89PNG\r\n\x1a\n" + bytes(100),
    "empty archive": b"PK\x05\x06" + bytes(18),
}


@pytest.mark.parametrize("content", [pytest.param(c, id=name) for name, c in GARBAGE.items()])
def test_garbage_is_named(tmp_path, content):
    path = tmp_path / "last.pt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"last\.pt: not a checkpoint"):
        load(path)


@pytest.mark.parametrize(
    "content", [{"weights": torch.zeros(3)}, torch.zeros(3), [1, 2]], ids=["dict", "tensor", "list"]
)
def test_another_programs_file_is_named(tmp_path, content):
    path = tmp_path / "last.pt"
    torch.save(content, path)
    with pytest.raises(UserError, match=r"last\.pt: not a checkpoint"):
        load(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"best\.pt: there is no such checkpoint"):
        load(tmp_path / "best.pt")


class Malicious:
    """Runs a command when it is unpickled."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self):
        return os.system, (f"touch '{self.proof}'",)


@pytest.mark.parametrize("zipped", [True, False], ids=["archive", "plain"])
def test_a_malicious_file_executes_nothing(tmp_path, zipped):
    proof, path = tmp_path / "executed", tmp_path / "last.pt"
    pickle.loads(pickle.dumps(Malicious(proof)))
    assert proof.exists(), "the attack itself does not work"
    proof.unlink()

    torch.save({"step": 1, "state": {"part": Malicious(proof)}}, path, _use_new_zipfile_serialization=zipped)
    for read in (lambda: load(path), lambda: Checkpoints(tmp_path).restore({}, part=Part())):
        with pytest.raises(UserError, match=r"last\.pt: not a checkpoint, or a damaged one"):
            read()
    assert not proof.exists()


@pytest.mark.parametrize(
    "other",
    [nn.Linear(4, 2), nn.Linear(3, 2, bias=False), nn.Sequential(nn.Linear(3, 2))],
    ids=["shape", "missing parameter", "names"],
)
def test_a_checkpoint_of_another_network_does_not_fit(tmp_path, other):
    Checkpoints(tmp_path).save(facts={"step": 1}, network=nn.Linear(3, 2))
    with pytest.raises(UserError, match=r"last\.pt: does not fit this configuration: ") as error:
        Checkpoints(tmp_path).restore({}, network=other)
    assert "\n" not in str(error.value)


def test_a_checkpoint_without_one_of_the_parts_does_not_fit(tmp_path):
    Checkpoints(tmp_path).save(facts={"step": 1}, network=nn.Linear(3, 2))
    with pytest.raises(UserError, match="does not fit this configuration"):
        Checkpoints(tmp_path).restore({}, network=nn.Linear(3, 2), collector=Part())


def test_a_checkpoint_of_another_optimiser_does_not_fit(tmp_path):
    one, two = nn.Linear(3, 2), nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    Checkpoints(tmp_path).save(facts={"step": 1}, optimizer=torch.optim.Adam(one.parameters()))
    with pytest.raises(UserError, match="does not fit this configuration"):
        Checkpoints(tmp_path).restore({}, optimizer=torch.optim.Adam(two.parameters()))


def test_a_run_of_another_identity_is_not_gone_on_with(tmp_path):
    Checkpoints(tmp_path / "checkpoints").save(facts={"step": 1, "identity": {"seed": 0, "algo.gamma": 0.9}})
    Checkpoints(tmp_path / "checkpoints").restore({"seed": 0, "algo.gamma": 0.9})
    with pytest.raises(UserError, match=r"^seed=1: .* was begun with seed=0"):
        Checkpoints(tmp_path / "checkpoints").restore({"seed": 1, "algo.gamma": 0.9})
