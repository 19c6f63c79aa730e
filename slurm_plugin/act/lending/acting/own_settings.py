"""What the process that acts for users reads of gputopo.yaml, and who may own that file."""

from __future__ import annotations

from pathlib import Path

import yaml

from slurm_plugin.base.preset import Preset
from slurm_plugin.config import presets
from slurm_plugin.config.key import Key
from slurm_plugin.config.owner import check_owner
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.config.sections import SlurmConfig
from slurm_plugin.config.yaml_reader import YamlReader
from slurm_plugin.errors import ConfigError

_DANGER = "what stands in it runs as users"


def load(path: Path) -> tuple[RemoteConfig, SlurmConfig]:
    """The sections `remote` and `slurm` of gputopo.yaml.

    ConfigError where they are wrong, or where others than root could have written them.
    """
    path = path.absolute()
    check_owner(path, _DANGER)
    reader = OwnReader(path)
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    sections = {name: value for name, (_, value) in reader.mapping(root, "").items()}
    slurm = reader.settings(SlurmConfig, sections.get("slurm"), "slurm")
    remote = reader.settings(RemoteConfig, sections.get("remote"), "remote")
    return remote, slurm


class OwnReader(YamlReader):
    """A Reader that looks at who may write a preset's file before it reads the file."""

    def preset(self, node: yaml.Node, name: str, key: Key) -> Preset:
        """The preset; ConfigError where others than root could have written its file."""
        stated = self.text(node, name, key)
        if presets.is_file(stated):
            check_owner(self.path.parent / stated, _DANGER)
        return super().preset(node, name, key)
