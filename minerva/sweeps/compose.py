"""The configurations of many jobs, in milliseconds each: files are read once for each choice of groups."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cache
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf, flag_override


class Composer:
    """What Hydra composes for each job of a sweep.

    Args:
        loader: Hydra's.
        master: the configuration of the sweep.
    """

    def __init__(self, loader: Any, master: DictConfig) -> None:
        self.loader, self.master = loader, master
        self._parser = OverridesParser.create(config_loader=loader)
        self._parse = cache(self._parse_one)
        self._base = cache(self._compose)

    def __call__(self, overrides: Sequence[str]) -> DictConfig:
        """The job's configuration, without Hydra's own.

        Raises:
            HydraException, OmegaConfBaseException: as Hydra does.
        """
        parsed = [self._parse(text) for text in overrides]
        groups = tuple(text for text, (_, group) in zip(overrides, parsed, strict=True) if group)
        config = copy.deepcopy(self._base(groups))
        ConfigLoaderImpl._apply_overrides_to_config([override for override, group in parsed if not group], config)
        return config

    def _parse_one(self, text: str) -> tuple[Override, bool]:
        override = self._parser.parse_overrides([text])[0]
        return override, bool(self.loader.repository.group_exists(override.key_or_group))

    def _compose(self, groups: tuple[str, ...]) -> DictConfig:
        config = self.loader.load_sweep_config(self.master, list(groups))
        with flag_override(config, ["struct", "readonly"], [False, False]):
            del config["hydra"]
        OmegaConf.set_struct(config, True)
        return config
