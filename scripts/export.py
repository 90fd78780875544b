"""Write a run's policy for use without minerva: as a program of torch.export (policy.pt2), and as ONNX (policy.onnx).

Both take raw observations [N, ...] and give actions [N, ...] in the environment's units, deterministic; the normaliser is inside.

    python scripts/export.py outputs/ppo/...
    torch.export.load("policy.pt2").module()(obs)                                # needs torch alone
    onnxruntime.InferenceSession("policy.onnx").run(None, {"obs": obs})          # needs onnxruntime alone
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import warnings
from pathlib import Path

import numpy as np

from minerva.cli import entry
from minerva.errors import UserError


@entry
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run directory")
    parser.add_argument("--checkpoint", choices=["last", "best"], default="last")
    parser.add_argument("--out", type=Path, help="where to; the run directory, if not given")
    parser.add_argument("--no-onnx", action="store_true", help="torch.export alone")
    args = parser.parse_args()

    import torch
    from torch.export import Dim, export, save

    from minerva.policy import load_policy

    out: Path = args.out or args.run
    if not out.is_dir():
        raise UserError(f"--out={out}: allowed is a directory that is there")
    if not args.no_onnx:
        try:
            import onnxruntime
            import onnxscript  # noqa: F401
        except ImportError as error:
            raise UserError(f"{error}; pip install 'minerva[export]', or give --no-onnx") from error

    policy = load_policy(args.run, args.checkpoint)
    obs = torch.from_numpy(sample(policy.spec.obs_shape, policy.spec.obs_dtype, 64))
    expected = policy.predict(obs.numpy())
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):  # remarks on how it is done
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        program = export(policy.module(), (obs,), dynamic_shapes=({0: Dim("batch")},))
        save(program, out / "policy.pt2")
        found = {"policy.pt2": torch.export.load(out / "policy.pt2").module()(obs).numpy()}
        if not args.no_onnx:
            torch.onnx.export(
                program, (obs,), str(out / "policy.onnx"), dynamo=True, input_names=["obs"], output_names=["action"],
                external_data=False, verbose=False,
            )  # fmt: skip
            session = onnxruntime.InferenceSession(str(out / "policy.onnx"), providers=["CPUExecutionProvider"])
            found["policy.onnx"] = session.run(None, {"obs": obs.numpy()})[0]
    for name, actions in found.items():
        print(f"{out / name}: its actions are at most {np.abs(actions - expected).max():.1e} from this policy's")


def sample(shape: tuple[int, ...], dtype: str, count: int) -> np.ndarray:
    """Observations as they might be."""
    rng = np.random.default_rng(0)
    if dtype == "uint8":
        return rng.integers(256, size=(count, *shape), dtype=np.uint8)
    return rng.normal(size=(count, *shape)).astype(np.float32)


if __name__ == "__main__":
    main()
