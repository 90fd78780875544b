"""Hydra looks for launchers and sweepers in this namespace alone; what they do is in minerva/sweeps/."""

from minerva.sweeps import optuna, plugin


class LocalLauncher(plugin.LocalLauncher):
    """hydra/launcher=local"""


class SlurmLauncher(plugin.SlurmLauncher):
    """hydra/launcher=slurm"""


class GridSweeper(plugin.GridSweeper):
    """hydra/sweeper=grid"""


class OptunaSweeper(optuna.OptunaSweeper):
    """hydra/sweeper=optuna"""


plugin.register()
