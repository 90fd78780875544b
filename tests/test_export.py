"""A policy that goes out without minerva."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

from minerva import load_policy

USE = """
import numpy, sys
obs = numpy.load(sys.argv[1])
if sys.argv[2].endswith("onnx"):
    import onnxruntime
    action = onnxruntime.InferenceSession(sys.argv[2]).run(None, {"obs": obs})[0]
else:
    import torch
    action = torch.export.load(sys.argv[2]).module()(torch.from_numpy(obs)).numpy()
assert "minerva" not in sys.modules
numpy.save(sys.argv[3], action)
"""


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param(("env=gymnasium/Pendulum-v1",), marks=pytest.mark.slow),
        ("env=probe/memory", "network=transformer", "algo=vmpo"),
        (
            "env=dm_control/cartpole/balance",
            "env.pixels=true",
            "env.max_episode_steps=20",
            "network=cnn",
            "network.head=beta",
            "network.initial_std=0.3",
        ),
    ],
    ids=["vector", "sequence", "image"],
)
def test_its_actions_are_the_same_elsewhere(python, tmp_path, overrides):
    run = tmp_path / "run"
    small = ("env.num_envs=2", "algo.num_steps=16", "algo.minibatch_size=32", "trainer.total_steps=64", "trainer.evaluations=1",
             "trainer.eval_episodes=1", "trainer.final_eval_episodes=1", "compile=false", "logger=[]")  # fmt: skip
    done = python("train.py", *overrides, *small, f"hydra.run.dir={run}")
    assert done.returncode == 0, done.stderr
    done = python("scripts/export.py", run)
    assert done.returncode == 0, done.stderr
    distances = [float(text) for text in re.findall(r"at most (\S+) from", done.stdout)]
    assert len(distances) == 2
    assert max(distances) <= 1e-6
    policy = load_policy(run)
    rng = np.random.default_rng(1)
    shape, dtype = policy.spec.obs_shape, policy.spec.obs_dtype
    for count in (1, 5):  # any batch will do
        obs = (rng.normal(size=(count, *shape)) * (1 if dtype == "float32" else 100)).astype(dtype)
        np.save(tmp_path / "obs.npy", obs)
        for name in ("policy.pt2", "policy.onnx"):
            command = [sys.executable, "-I", "-c", USE, tmp_path / "obs.npy", run / name, tmp_path / "action.npy"]
            subprocess.run(command, check=True, cwd=tmp_path)
            np.testing.assert_allclose(np.load(tmp_path / "action.npy"), policy.predict(obs), rtol=0, atol=1e-6)


def test_mistakes(python, tmp_path):
    done = python("scripts/export.py", tmp_path / "nothing")
    assert done.returncode == 1
    assert done.stderr == f"error: --out={tmp_path / 'nothing'}: allowed is a directory that is there\n"
    done = python("scripts/export.py", tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
