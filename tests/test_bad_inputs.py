"""Every bad input of ``tests/bad_inputs.py`` ends in one line that names it and in a non-zero exit, and leaves everything as it was."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import hydra
import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from minerva import config
from minerva.errors import UserError
from tests.bad_inputs import CASES, ENTRIES, GOOD, TINY, Bad, keys
from tests.conftest import ROOT

pytestmark = pytest.mark.timeout(900)  # the first waits for all
LIGHT = ("hydra", "minerva.config")
HEAVY = (
    *LIGHT,
    "torch",
    "minerva.trainer",
    "minerva.policy",
    "minerva.envs.make",
    "minerva.envs.gymnasium",
    "minerva.algos.ppo",
    "minerva.algos.vmpo",
)
# What a run that was gone on with, and refused, may have written to.
KEPT = {
    "run/run.json",
    "run/train.log",
    "run/.lock",
    "run/.hydra/config.yaml",
    "run/.hydra/hydra.yaml",
    "run/.hydra/overrides.yaml",
}


class Outcome(NamedTuple):
    code: int | None
    output: str
    before: dict[str, str]
    after: dict[str, str]


def tree(folder: Path) -> dict[str, str]:
    """What is in ``folder``: each file with the digest of its content, each directory and link."""
    return {
        str(path.relative_to(folder)): hashlib.sha1(path.read_bytes()).hexdigest()
        if path.is_file()
        else os.path.realpath(path)
        for path in sorted(folder.rglob("*"))
    }


def arguments(command: str, folder: Path) -> list[str]:
    words = [word.replace("@", str(folder)) for word in shlex.split(command)]
    script = words.pop(0) if words and words[0].endswith(".py") else "train.py"
    return [str(ROOT / script), *words]


def place(folder: Path, run: Path | None, case: Bad) -> Path:
    """A directory for ``case``, with what it needs."""
    (folder / "outputs").mkdir(parents=True)
    (folder / "outputs" / ".gitkeep").touch()  # as in the repository
    if run is not None and (case.change or "@/run" in case.command):
        shutil.copytree(run, folder / "run")
        if case.change:
            case.change(folder / "run")
    return folder


def environment(case: Bad) -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT), **case.env}


def forked(cases: list[tuple[Bad, Path]], modules: tuple[str, ...], seconds: float = 60) -> list[Outcome]:
    """Run them one after the other in forks of a process that has imported ``modules``."""
    before = [tree(folder) for _, folder in cases]
    wanted = [
        {
            "argv": arguments(case.command, folder),
            "cwd": str(folder),
            "env": environment(case),
            "without": [] if case.torch else ["torch"],
            "seconds": seconds,
        }
        for case, folder in cases
    ]
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "forks.py"), *modules],
        input=json.dumps(wanted),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    return [
        Outcome(result["code"], result["output"].replace(str(folder), "@"), was, tree(folder))
        for result, was, (_, folder) in zip(results, before, cases, strict=True)
    ]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run, to be spoilt in copies."""
    folder = place(tmp_path_factory.mktemp("base"), None, Bad("", ""))
    case = Bad(f"{TINY} hydra.run.dir=run", "", torch=True)
    assert forked([(case, folder)], HEAVY)[0].code == 0
    return folder / "run"


@pytest.fixture(scope="module")
def composed() -> dict[tuple[str, ...], DictConfig]:
    """What a run saves, with each of the choices that it takes to have all keys."""
    config.register()
    with hydra.initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        found = {some: hydra.compose("train", [*some]) for some in {choices for choices, *_ in keys()}}
    GlobalHydra.instance().clear()
    return {some: OmegaConf.create(OmegaConf.to_container(cfg)) for some, cfg in found.items()}


@pytest.fixture(scope="module")
def readonly(tmp_path_factory) -> Iterator[Path | None]:
    """A file system that cannot be written to; None where the user may not mount one."""
    folder = tmp_path_factory.mktemp("readonly")
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(folder)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        yield None
        return
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture(scope="module")
def outcomes(run, readonly, tmp_path_factory) -> dict[str, Outcome | None]:
    """Of every case, by its name; two at a time."""
    folder, cases = tmp_path_factory.mktemp("cases"), {}
    for number, (name, case) in enumerate(NAMED.items()):
        if "@/readonly" in case.command:
            case = case._replace(command=case.command.replace("@/readonly", str(readonly)))
        cases[name] = (case, place(folder / str(number), run, case))
    early, late = ([name for name, (case, _) in cases.items() if case.torch is late] for late in (False, True))
    some = max(0, (len(early) - 2 * len(late)) // 2)  # what takes torch takes twice as long
    halves = [early[some:], late + early[:some]]
    with ThreadPoolExecutor(2) as pool:
        results = [
            *pool.map(lambda half, modules: forked([cases[name] for name in half], modules), halves, (LIGHT, HEAVY))
        ]
    found: dict[str, Any] = {
        name: outcome
        for half, result in zip(halves, results, strict=True)
        for name, outcome in zip(half, result, strict=True)
    }
    return {name: None if readonly is None and "readonly" in name else outcome for name, outcome in found.items()}


NAMED = {case.name or case.command: case for case in CASES}
GOOD_CASES = {f"good: {command.replace(TINY, '...')}": Bad(command, "", torch=True) for command in GOOD}
NAMED |= GOOD_CASES


def test_there_are_enough_and_each_has_a_name() -> None:
    assert len(CASES) + len(GOOD_CASES) == len(NAMED)
    assert len(CASES) >= 200
    assert all(case.says for case in CASES)


@pytest.mark.parametrize("name", [name for name in NAMED if name not in GOOD_CASES])
def test_a_bad_input_is_one_line_and_leaves_nothing(outcomes, name: str) -> None:
    case, outcome = NAMED[name], outcomes[name]
    if outcome is None:
        pytest.skip("a file system cannot be mounted here")
    shown = f"{case.command}\nexit code {outcome.code}\n{outcome.output}"
    assert outcome.code is not None, f"it hangs: {shown}"
    assert outcome.code == case.code, shown
    lines = outcome.output.splitlines()
    assert "Traceback" not in outcome.output, shown
    if case.code == 2:
        assert lines[0].startswith("usage: "), shown
        errors = [line.partition(".py: ")[2] for line in lines if ".py: error: " in line]
        assert errors == [lines[-1].partition(".py: ")[2]], shown
    else:
        errors = [line for line in lines if line.startswith("error: ")]
        assert len(errors) == 1, shown
        begun = "in       run" in lines  # then it has said what it is, and what to do
        assert begun or lines == errors, shown
    assert case.says in errors[0], shown
    changed = {
        path for path in {*outcome.before, *outcome.after} if outcome.before.get(path) != outcome.after.get(path)
    }
    assert changed <= (KEPT if "hydra.run.dir=run" in case.command else set()), f"{shown}\nchanged: {sorted(changed)}"


@pytest.mark.parametrize("name", GOOD_CASES)
def test_a_good_input_is_not_refused(outcomes, name: str) -> None:
    outcome = outcomes[name]
    assert outcome.code == 0, outcome.output
    assert "error: " not in outcome.output
    assert ("--" in name and "evaluate" not in name) or outcome.output


def test_a_fork_that_hangs_or_fails_is_told_apart(tmp_path) -> None:
    scripts = {
        "hangs": "import time; print('so far', flush=True); time.sleep(100)",
        "fails": "1 / 0",
        "exits": "import sys; sys.exit('why')",
        "imports": "import torch",
    }
    for name, text in scripts.items():
        (tmp_path / f"{name}.py").write_text(text)
    hangs, fails, exits, imports = forked([(Bad(f"{tmp_path}/{name}.py", ""), tmp_path) for name in scripts], (), 2)
    assert (hangs.code, hangs.output) == (None, "so far\n")
    assert fails.code == 1
    assert fails.output.endswith("ZeroDivisionError: division by zero\n")
    assert (exits.code, exits.output) == (1, "why\n")
    assert imports.code == 1
    assert "ModuleNotFoundError" in imports.output


ALIKE = (
    "misspelt: algo.gama=0.9",
    "grammar: algo.gamma=[",
    "--nope",
    "resume: seed=1",
    "checkpoint: empty, evaluate",
    "good: --help",
)


@pytest.mark.parametrize("name", ALIKE)
def test_a_fork_does_what_a_process_of_its_own_does(outcomes, run, tmp_path, name: str) -> None:
    case, outcome = NAMED[name], outcomes[name]
    folder = place(tmp_path / "case", run, case)
    done = subprocess.run(
        [sys.executable, *arguments(case.command, folder)],
        cwd=folder,
        env=os.environ | environment(case),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.replace(str(folder), "@")) == (outcome.code, outcome.output)


@pytest.mark.parametrize(
    ("choices", "key", "wrong"), [pytest.param(*found, id=" ".join([*found[0], found[1]])) for found in keys()]
)
def test_a_saved_configuration_with_a_wrong_value_names_its_key(composed, choices, key: str, wrong: list[str]) -> None:
    """All wrong values, and without a command line, which has types of its own."""
    broken = composed[choices]
    config.check(broken)
    before = OmegaConf.select(broken, key)
    for value in wrong:
        OmegaConf.update(broken, key, OmegaConf.from_dotlist([f"value={value}"]).value, merge=False)
        with pytest.raises(UserError) as error:
            config.check(broken)
        line = str(error.value)
        assert line.startswith(key), value
        assert "\n" not in line, value
    OmegaConf.update(broken, key, before, merge=False)


def test_the_entries_are_those_of_a_checkpoint(run) -> None:
    def entries(state: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        for name, value in state.items():
            yield (*names, name)
            if isinstance(value, dict):
                yield from entries(value, (*names, name))

    state = torch.load(run / "checkpoints" / "last.pt", weights_only=True)["state"]
    assert {*entries(state)} == {*ENTRIES, ("random", "cuda")}
