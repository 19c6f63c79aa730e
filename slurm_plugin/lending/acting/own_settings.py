"""What the process that acts for users reads of gputopo.yaml, and who may own that file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import yaml

from slurm_plugin.config.key import Key
from slurm_plugin.config.remote import RemoteConfig
from slurm_plugin.config.sections import SlurmConfig
from slurm_plugin.config.yaml_reader import Reader
from slurm_plugin.errors import ConfigError
from slurm_plugin.remote import presets
from slurm_plugin.remote.node.preset import Preset


def load(path: Path) -> tuple[RemoteConfig, SlurmConfig]:
    """The sections `remote` and `slurm` of gputopo.yaml.

    ConfigError where they are wrong, or where others than root could have written them.
    """
    path = path.absolute()
    check_owner(path)
    reader = OwnReader(path)
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    sections = {name: value for name, (_, value) in reader.mapping(root, "").items()}
    slurm = reader.settings(SlurmConfig, sections.get("slurm"), "slurm")
    remote = reader.settings(RemoteConfig, sections.get("remote"), "remote")
    return remote, slurm


class OwnReader(Reader):
    """A Reader that looks at who may write a preset's file before it reads the file."""

    def preset(self, node: yaml.Node, name: str, key: Key) -> Preset:
        """The preset; ConfigError where others than root could have written its file."""
        stated = self.text(node, name, key)
        if presets.is_file(stated):
            check_owner(self.path.parent / stated)
        return super().preset(node, name, key)


def check_owner(path: Path) -> None:
    """Raise ConfigError where others than root may write a file, or a folder on the way to it.

    What it says is run as users. A process that is not root trusts its own files, too.
    """
    real = path.resolve()
    for one in {path, *path.parents, real, *real.parents}:
        try:
            status = one.stat()
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
        is_shared = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if status.st_uid not in (0, os.geteuid()) or (status.st_mode & 0o022 and not is_shared):
            raise ConfigError(
                f"{path}: others than root may write {one}, and what stands in it runs as users;"
                f" chown root {one}; chmod go-w {one}"
            )
