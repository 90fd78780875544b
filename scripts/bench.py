"""How fast minerva trains, beside Stable-Baselines3 on the same machine in the same minutes.

Each measurement is a process of its own: `train.py` with what a user gets (logging, normalised observations), and SB3's PPO with
VecNormalize on DummyVecEnv. They take turns, and the medians and their ratio are of all turns. Speed is of steady training, of the
rollouts after the first; start-up, compilation and memory are columns of their own. Needs `pip install -e '.[bench]'`.

    python scripts/bench.py                                  # all settings, about 20 minutes
    python scripts/bench.py --settings S1,S3 --repeats 3 --json bench.json --figure bench.png
    python scripts/bench.py --returns                        # seconds from the command to a return, 3 seeds, about 10 minutes
    python scripts/bench.py --sweeps                         # the time of two jobs beside that of one, about 3 minutes
    python scripts/bench.py --thousand                       # what a thousand jobs cost that do nothing, about 15 minutes
    python scripts/bench.py --saving                         # share of the time that saving takes in a default run, about 2 minutes
    python scripts/bench.py --report                         # what the report of a thousand runs costs, about 1 minute
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
ENV = "dm_control/cheetah/run"
SHORT = ("trainer.total_steps=200_000", "threads=1", "compile=false")  # a job of --sweeps
SAVING = (
    "the default run: {save_s:.2f} s of {total_s:.1f} s are spent on checkpoints of {checkpoint_mb:.1f} MB (without the last one): "
    "{share:.2%}"
)
SWEEPS = "two jobs take {ratio:.2f} x the time of one ({two_s:.1f} s, {one_s:.1f} s)"
THOUSAND = (
    "a thousand jobs that do nothing take {launched_s:.0f} s: the first hundred {first_s:.1f} s, the last hundred {last_s:.1f} s; the same command "
    "again is composed, skips them and shows them in {skipped_s:.1f} s, and status.py shows them in {status_s:.1f} s"
)
REPORT = "the report of {runs} runs of {rows} rows takes {report_s:.1f} s"
# CleanRL's means after 1M steps, from its documentation.
RETURNS = {"dm_control/cheetah/run": 433.0, "dm_control/walker/walk": 393.0}


@dataclass(frozen=True)
class Setting:
    """What is trained; minibatches are of equal size."""

    name: str
    num_envs: int
    num_steps: int
    epochs: int
    minibatch: int | None
    layers: tuple[int, ...]
    algo: str = "ppo"

    @property
    def rollout(self) -> int:
        return self.num_envs * self.num_steps

    def overrides(self) -> list[str]:
        passes = "update_epochs" if self.algo == "ppo" else "m_steps"
        layers = list(self.layers)
        return [
            f"algo={self.algo}", f"env={ENV}", f"env.num_envs={self.num_envs}", f"algo.num_steps={self.num_steps}",
            f"algo.{passes}={self.epochs}", f"algo.minibatch_size={'null' if self.minibatch is None else self.minibatch}",
            f"network.policy_layers={layers}", f"network.value_layers={layers}",
        ]  # fmt: skip

    def __str__(self) -> str:
        sizes = "x".join(map(str, self.layers))
        batch = "the rollout" if self.minibatch is None else self.minibatch
        return f"{self.algo}: {self.num_envs} x {self.num_steps}, {self.epochs} passes, minibatches of {batch}, {sizes}"


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("S1", 1, 2048, 10, 64, (64, 64)),
        Setting("S2", 4, 2048, 4, 256, (256, 256, 256)),
        Setting("S3", 64, 64, 4, 512, (256, 256)),
        Setting("V", 1, 4096, 16, None, (512, 256), algo="vmpo"),
    )
}


def run(command: list[str], **environ: str) -> tuple[str, float, float]:
    """Output, seconds until the run had begun, and peak memory in MB."""
    began, ready, lines = time.perf_counter(), float("nan"), []
    process = subprocess.Popen(
        command, cwd=ROOT, env=os.environ | environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout
    for line in process.stdout:
        lines.append(line)
        if line.startswith("in  "):  # the last line of the summary: all is built
            ready = time.perf_counter() - began
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{''.join(lines[-20:])}")
    return "".join(lines), ready, usage.ru_maxrss / 1024


def minerva(setting: Setting, steps: int, device: str, *extra: str, **environ: str) -> dict[str, float]:
    """Steps a second after the first rollout, and where the time of a step went, in microseconds."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "train.py", *setting.overrides(), f"trainer.total_steps={steps}", "trainer.logs=1000000",
            "trainer.evaluations=1", "trainer.eval_episodes=1", "trainer.final_eval_episodes=1", "trainer.checkpoints=1",
            f"device={device}", f"hydra.run.dir={folder}", *extra,
        ]  # fmt: skip
        _, ready, memory = run(command, **environ)
        with open(Path(folder) / "metrics.csv") as file:
            rows = [{key: float(value or "nan") for key, value in row.items()} for row in csv.DictReader(file)]
    first, last = rows[0], rows[-1]
    steps = last["step"] - first["step"]
    env, rollout, update = (last[key] - first[key] for key in ("time/env", "time/rollout", "time/update"))
    return {
        "sps": steps / (rollout + update),
        "env_us": 1e6 * env / steps,
        "policy_us": 1e6 * (rollout - env) / steps,
        "update_us": 1e6 * update / steps,
        "startup_s": ready,
        "memory_mb": memory,
        "first_update_s": first["time/update"],
    }


def sb3(setting: Setting, rollouts: int, threads: int, device: str) -> float:
    """Steps a second after the first rollout."""
    command = [
        sys.executable,
        __file__,
        "--sb3",
        json.dumps(asdict(setting)),
        "--rollouts",
        str(rollouts),
        "--threads",
        str(threads),
    ]
    return float(run([*command, "--device", device])[0].split()[-1])


def train_sb3(setting: Setting, rollouts: int, threads: int, device: str) -> None:
    """In a process of its own: prints the steps a second."""
    import gymnasium
    import shimmy  # noqa: F401  # registers dm_control's ids
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    torch.set_num_threads(threads)

    def make() -> gymnasium.Env:
        return gymnasium.wrappers.FlattenObservation(gymnasium.make("dm_control/cheetah-run-v0"))

    model = PPO(
        "MlpPolicy",
        VecNormalize(DummyVecEnv([make] * setting.num_envs)),
        n_steps=setting.num_steps,
        batch_size=setting.minibatch,
        n_epochs=setting.epochs,
        policy_kwargs={"net_arch": list(setting.layers)},
        device=device,
    )
    model.learn(setting.rollout)
    began = time.perf_counter()
    model.learn(rollouts * setting.rollout)
    print(rollouts * setting.rollout / (time.perf_counter() - began))


def measure(setting: Setting, repeats: int, seconds: float, device: str) -> dict[str, Any]:
    """All turns of one setting."""
    with tempfile.TemporaryDirectory() as cache:
        cold = minerva(setting, 3 * setting.rollout, device, "compile=true", XDG_CACHE_HOME=cache)
        warm = minerva(setting, 3 * setting.rollout, device, "compile=true", XDG_CACHE_HOME=cache)
        compile_s = cold["first_update_s"] + cold["startup_s"] - warm["first_update_s"] - warm["startup_s"]
        rollouts = max(3, int(seconds * warm["sps"] / setting.rollout))
        ours, theirs, plain = [], [], []
        options = range(1, min(2, os.cpu_count() or 1) + 1)
        for turn in range(repeats):
            ours.append(
                minerva(setting, (rollouts + 1) * setting.rollout, device, "compile=true", XDG_CACHE_HOME=cache)
            )
            if setting.algo == "ppo":
                few = max(1, rollouts // 6)
                theirs.append(max(sb3(setting, few, threads, device) for threads in options))
            else:
                few = max(2, rollouts // 4)
                plain.append(minerva(setting, (few + 1) * setting.rollout, device, "compile=false")["sps"])
            said = f"minerva {ours[-1]['sps']:,.0f}, the other {(theirs or plain)[-1]:,.0f} steps/s"
            print(f"{setting.name} turn {turn + 1}/{repeats}: {said}", file=sys.stderr)
    keys = ("env_us", "policy_us", "update_us", "startup_s", "memory_mb")
    other = theirs or plain
    return {
        "setting": str(setting),
        "minerva_sps": statistics.median(turn["sps"] for turn in ours),
        ("sb3_sps" if theirs else "plain_sps"): statistics.median(other),
        "ratio": statistics.median(turn["sps"] / peer for turn, peer in zip(ours, other, strict=True)),
        "ratios": [turn["sps"] / peer for turn, peer in zip(ours, other, strict=True)],
        **{key: statistics.median(turn[key] for turn in ours) for key in keys},
        "compile_s": compile_s,
    }


def side_by_side(setting: Setting, repeats: int) -> dict[str, float]:
    """Two jobs of one thread at once, beside one alone."""
    values = [sys.executable, __file__, "--one", json.dumps(asdict(setting))]
    alone, together = [], []
    for _ in range(repeats):
        alone.append(float(subprocess.check_output(values, text=True)))
        pair = [subprocess.Popen(values, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        together.append(sum(float(process.communicate()[0]) for process in pair))
    pairs = zip(together, alone, strict=True)
    return {
        "one_sps": statistics.median(alone),
        "two_sps": statistics.median(together),
        "ratio": statistics.median(t / a for t, a in pairs),
    }


def seconds_to(env: str, target: float, seed: int, cache: str) -> float | None:
    """From the command, as a user types it, to the first evaluation that is as good; None if none is."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "train.py", f"env={env}", f"seed={seed}", f"hydra.run.dir={folder}/run"]
        environ, log = os.environ | {"XDG_CACHE_HOME": cache}, Path(folder) / "log"
        began = time.perf_counter()
        with open(log, "w") as file:
            process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=file, stderr=file)
        best = float("-inf")
        while best < target and process.poll() is None:
            time.sleep(0.05)
            with suppress(FileNotFoundError), open(Path(folder) / "run" / "metrics.csv") as file:
                best = max([best, *(float(row.get("eval/return_mean") or "-inf") for row in csv.DictReader(file))])
        taken = time.perf_counter() - began
        if process.poll() not in (None, 0):
            sys.exit(f"{' '.join(command)} failed:\n{log.read_text()[-2000:]}")
        process.kill()
        process.wait()
        return taken if best >= target else None


def shown(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.0f} s"


def returns(seeds: int) -> dict[str, Any]:
    """:func:`seconds_to` of each task, of runs that compile and of those that find it compiled."""
    results: dict[str, Any] = {}
    for env, target in RETURNS.items():
        taken: dict[str, list[float | None]] = {"compiling": [], "compiled": []}
        for seed in range(seeds):
            with tempfile.TemporaryDirectory() as cache:
                for name, times in taken.items():
                    times.append(seconds_to(env, target, seed, cache))
                    print(f"{env} seed {seed}, {name}: {target} after {shown(times[-1])}", file=sys.stderr)
        middle = sorted(taken["compiling"], key=lambda s: float("inf") if s is None else s)[seeds // 2]
        results[env] = {"target": target, **taken, "median": middle}
    return results


def saving(*extra: str) -> dict[str, float]:
    """Seconds of the checkpoints of a default run, with fsync, and their share in those of training, evaluation and saving."""
    with tempfile.TemporaryDirectory() as folder:
        run([sys.executable, "train.py", f"env={ENV}", f"hydra.run.dir={folder}", *extra])
        with open(Path(folder) / "metrics.csv") as file:
            last = {key: float(value or "nan") for key, value in [*csv.DictReader(file)][-1].items()}
        size = (Path(folder) / "checkpoints" / "last.pt").stat().st_size / 2**20
    total = sum(last[f"time/{part}"] for part in ("rollout", "update", "eval", "save"))
    return {"save_s": last["time/save"], "total_s": total, "share": last["time/save"] / total, "checkpoint_mb": size}


def sweeps(repeats: int) -> dict[str, float]:
    """Seconds of a sweep of one job and of two, in turns."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(repeats):
        for jobs in seconds:
            with tempfile.TemporaryDirectory() as folder:
                began = time.perf_counter()
                seeds = ",".join(map(str, range(jobs)))
                where = (f"seed={seeds}", f"hydra.sweep.dir={folder}")
                run([sys.executable, "train.py", "-m", f"env={ENV}", *SHORT, *where])
                seconds[jobs].append(time.perf_counter() - began)
    one, two = (statistics.median(seconds[jobs]) for jobs in (1, 2))
    return {"one_s": one, "two_s": two, "ratio": two / one}


def thousand() -> dict[str, float]:
    """What a sweep of a thousand jobs costs that do nothing; and what it costs to see that all are finished."""
    with tempfile.TemporaryDirectory() as folder:
        seconds = []
        sweep = [sys.executable, "tests/stub.py", "-m", "seed=range(1000)", f"hydra.sweep.dir={folder}"]
        for command in (sweep, sweep, [sys.executable, "scripts/status.py", folder]):
            began = time.perf_counter()
            run(command)
            seconds.append(time.perf_counter() - began)
        ended = sorted(path.stat().st_mtime for path in Path(folder).glob("logs/*.json"))
    first, last = ended[100] - ended[0], ended[-1] - ended[-101]
    return dict(zip(("launched_s", "skipped_s", "status_s"), seconds, strict=True)) | {"first_s": first, "last_s": last}


def report() -> dict[str, float]:
    """What it costs to read a thousand runs of 500 rows, which nobody trained, and to write their report."""
    with tempfile.TemporaryDirectory() as folder:
        run([sys.executable, "-m", "tests.report.runs", folder])
        began = time.perf_counter()
        run([sys.executable, "scripts/report.py", folder, "--out", f"{folder}/report"])
        return {"runs": 1000, "rows": 500, "report_s": time.perf_counter() - began}


def table(results: dict[str, Any]) -> str:
    lines = [
        "| setting | minerva, steps/s | peer, steps/s | ratio | env / policy / update, µs a step | start-up, s | compiling, s | memory, MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, r in results.items():
        if name == "side_by_side":
            lines.append(
                f"| two jobs of one thread | {r['two_sps']:,.0f} | {r['one_sps']:,.0f} (one job) | **{r['ratio']:.2f}** | | | | |"
            )
            continue
        peer = f"{r['sb3_sps']:,.0f} (SB3)" if "sb3_sps" in r else f"{r['plain_sps']:,.0f} (not compiled)"
        split = " / ".join(f"{r[key]:.0f}" for key in ("env_us", "policy_us", "update_us"))
        lines.append(
            f"| {name}: {r['setting']} | {r['minerva_sps']:,.0f} | {peer} | **{r['ratio']:.1f}** | {split} | "
            f"{r['startup_s']:.1f} | {r['compile_s']:.0f} | {r['memory_mb']:,.0f} |"
        )
    return "\n".join(lines)


def draw(results: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = {name: r for name, r in results.items() if "minerva_sps" in r}
    figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
    places = range(len(shown))
    axes.bar([p - 0.2 for p in places], [r["minerva_sps"] for r in shown.values()], 0.4, label="minerva")
    peers = [r.get("sb3_sps", r.get("plain_sps")) for r in shown.values()]
    axes.bar([p + 0.2 for p in places], peers, 0.4, label="Stable-Baselines3 (V: minerva, not compiled)")
    for p, r in zip(places, shown.values(), strict=True):
        axes.annotate(f"{r['ratio']:.1f}x", (p - 0.2, r["minerva_sps"]), ha="center", va="bottom")
    axes.set_xticks(list(places), list(shown))
    axes.set_ylabel("training steps a second")
    axes.margins(y=0.1)
    figure.legend(loc="outside upper center", ncols=2)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", default=",".join(SETTINGS), help=f"some of {', '.join(SETTINGS)}")
    parser.add_argument("--repeats", type=int, default=3, help="turns of each (default 3)")
    parser.add_argument("--seconds", type=float, default=20, help="of each of minerva's turns, about (default 20)")
    parser.add_argument("--json", type=Path, help="write the numbers there")
    parser.add_argument("--figure", type=Path, help="and a picture there")
    parser.add_argument("--returns", action="store_true", help="measure the time to a return instead, of 3 seeds")
    parser.add_argument("--sweeps", action="store_true", help="measure two jobs beside one instead")
    parser.add_argument("--thousand", action="store_true", help="measure what a thousand jobs cost instead")
    parser.add_argument(
        "--saving", action="store_true", help="measure what the checkpoints of a default run cost instead"
    )
    parser.add_argument("--report", action="store_true", help="measure the report of a thousand runs instead")
    parser.add_argument("--gpu", action="store_true", help="on CUDA")
    parser.add_argument("--sb3", help=argparse.SUPPRESS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--rollouts", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--device", default="cpu", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.sb3:
        return train_sb3(Setting(**json.loads(args.sb3)), args.rollouts, args.threads, args.device)
    if args.one:
        setting = Setting(**json.loads(args.one))
        one = minerva(setting, 40 * setting.rollout, "cpu", "compile=true", "threads=1", "env.threads=1")
        return print(one["sps"])
    if args.returns:
        found = returns(seeds=3)
        for env, r in found.items():
            times = "; ".join(f"{kind} {', '.join(map(shown, r[kind]))}" for kind in ("compiling", "compiled"))
            print(f"{env}: {r['target']} after {shown(r['median'])}, the median of 3 seeds ({times})")
        if args.json:
            args.json.write_text(json.dumps(found, indent=1) + "\n")
        return None
    for asked, measure_cost, sentence in (
        (args.sweeps, lambda: sweeps(args.repeats), SWEEPS),
        (args.saving, saving, SAVING),
        (args.thousand, thousand, THOUSAND),
        (args.report, report, REPORT),
    ):
        if asked:
            cost = measure_cost()
            print(sentence.format(**cost))
            if args.json:
                args.json.write_text(json.dumps(cost, indent=1) + "\n")
            return None
    names = args.settings.split(",")
    if unknown := set(names) - set(SETTINGS):
        parser.error(f"--settings {','.join(sorted(unknown))}: allowed are {', '.join(SETTINGS)}")
    results: dict[str, Any] = {}
    for name in names:
        results[name] = measure(SETTINGS[name], args.repeats, args.seconds, "cuda" if args.gpu else "cpu")
    if "S3" in names and not args.gpu:
        results["side_by_side"] = side_by_side(SETTINGS["S3"], args.repeats)
    print(table(results))
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    if args.figure:
        draw(results, args.figure)


if __name__ == "__main__":
    main()
