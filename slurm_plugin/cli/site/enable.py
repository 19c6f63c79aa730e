"""`gputopo enable` and `gputopo disable`: what slurmctld needs to know of us."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurm_plugin.cli.options import IN_FILE, config_option

if TYPE_CHECKING:
    from slurm_plugin.config.settings import Config
    from slurm_plugin.doctor.finding import Finding
    from slurm_plugin.enabling.apply import Change
    from slurm_plugin.enabling.checks import EnablingPlan

apply_option = click.option("--apply", "is_applied", is_flag=True, help="Do it, too.")
_RESTART = "next: systemctl restart slurmctld"


@click.command()
@config_option
@click.option(
    "--plugin-dir",
    type=IN_FILE,
    help="Directory of our select_cons_tres.so.  [default: the first of"
    " /usr/lib/slurm-gputopo/slurm, /usr/local/lib that has it]",
)
@apply_option
def enable(config_path: Path, plugin_dir: Path | None, is_applied: bool) -> None:
    """Show what slurm.conf needs so that slurmctld asks the engine; with --apply, write it.

    Puts the directory of the select plugin first in PluginDir and lua into JobSubmitPlugins, and
    links job_submit.lua beside slurm.conf. With `enforcement: slots` PluginDir stays as it is.
    Nothing is changed unless all would work with it. The old slurm.conf is kept beside the new one
    as slurm.conf.gputopo-DATE-TIME. No daemon is restarted.
    """
    import os
    from datetime import datetime

    from slurm_plugin.doctor.installation import Installation
    from slurm_plugin.enabling import apply, checks, edits
    from slurm_plugin.slurm import choose
    from slurm_plugin.slurm.slurm_conf import PLUGIN_DIR, parse

    _require_config(config_path)
    here = Installation(config_path, choose.client)
    setup = checks.setup(here, plugin_dir)
    conf = parse(setup.slurm_conf)
    folder = str(setup.plugin_dir) if setup.plugin_dir else None
    texts = edits.enabled(conf, edits.Wanted(folder, setup.slurms_own))
    then = parse(setup.slurm_conf, texts.__getitem__).last(PLUGIN_DIR)
    _refuse_unless_good(checks.findings(here, setup, then.value if then else setup.slurms_own))
    changed = apply.changes(conf.texts, texts)
    links = {} if os.path.lexists(setup.link) else {setup.link: setup.script}
    if not changed and not links:
        click.echo(f"nothing to do: {setup.slurm_conf} and {setup.link} are as they should be")
        return
    _show(changed)
    for link, target in links.items():
        click.echo(f"link {link} -> {target}")
    if not is_applied:
        click.echo("nothing was changed: gputopo enable --apply does it")
        return
    backups = apply.write(changed, datetime.now(), links)
    for change, backup in zip(changed, backups, strict=True):
        click.echo(f"done: {change.path}: the old one is {backup}")
    _say_what_is_next(setup, here.config)


@click.command()
@click.option(
    "--slurm-conf",
    type=IN_FILE,
    envvar="SLURM_CONF",
    help="The file to read if slurmctld does not answer.  [default: /etc/slurm/slurm.conf]",
)
@apply_option
def disable(slurm_conf: Path | None, is_applied: bool) -> None:
    """Show what gputopo enable put into slurm.conf; with --apply, take exactly that out.

    The link to job_submit.lua goes, too, if it is ours. Exit status 1 when something of ours stays
    that this command did not put there, with the line or file to look at. No daemon is restarted.
    """
    from datetime import datetime

    from slurm_plugin.enabling import apply, checks, edits
    from slurm_plugin.slurm.slurm_conf import parse

    conf = parse(_slurm_conf(slurm_conf))
    texts = edits.disabled(conf)
    left = parse(conf.path, texts.__getitem__)
    link = conf.path.with_name(checks.SCRIPT)
    has_link = checks.is_our_link(link, checks.own_script())
    stays = list(checks.left_behind(left, has_link))
    is_unlinked = has_link and not edits.names_lua(left)
    changed = apply.changes(conf.texts, texts)
    _show(changed)
    if is_unlinked:
        click.echo(f"unlink {link}")
    if not (changed or is_unlinked):
        click.echo(f"nothing to do: gputopo enable has put nothing into {conf.path}")
    elif not is_applied:
        click.echo("nothing was changed: gputopo disable --apply does it")
    else:
        backups = apply.write(changed, datetime.now())
        if is_unlinked:
            apply.remove([link])
        needless = apply.drop_needless_backups(changed)
        for change, backup in zip(changed, backups, strict=True):
            is_as_before = backup in needless
            kept = "as before enable, byte for byte" if is_as_before else f"the old one is {backup}"
            click.echo(f"done: {change.path}: {kept}")
        click.echo(_RESTART)
    for finding in stays:
        _say(finding)
    raise SystemExit(1 if stays else 0)


def _require_config(path: Path) -> None:
    import os

    from slurm_plugin.cli import Fault

    if not os.path.lexists(path):
        raise Fault(f"{path} is not there: gputopo init shows one for this site")


def _slurm_conf(given: Path | None) -> Path:
    from slurm_plugin.config.sections import SlurmConfig
    from slurm_plugin.doctor.installation import SLURM_CONF
    from slurm_plugin.errors import PluginError
    from slurm_plugin.slurm import choose

    if given is not None:
        return given.absolute()
    try:
        return Path(choose.client(SlurmConfig()).config()["SLURM_CONF"])
    except (PluginError, KeyError):
        told = f"slurmctld does not say which slurm.conf it reads: {SLURM_CONF} is looked at"
        click.echo(f"note: {told}; --slurm-conf FILE for another", err=True)
        return Path(SLURM_CONF)


def _refuse_unless_good(findings: Iterable[Finding]) -> None:
    from slurm_plugin.cli import Fault

    wrong = 0
    for finding in findings:
        wrong += finding.level == "fail"
        if finding.level != "ok":
            _say(finding)
    if wrong:
        raise Fault(f"{wrong} to fix first; nothing was changed")


def _say(finding: Finding) -> None:
    from slurm_plugin.cli import printable

    click.echo(printable(f"{finding.level:4}  {finding.check}: {finding.text}"))
    click.echo(printable(f"      -> {finding.fix}"))


def _show(changed: list[Change]) -> None:
    """The lines that differ, as `diff -U0` shows them."""
    from difflib import unified_diff

    from slurm_plugin.cli import printable

    for change in changed:
        old, new = (text.split("\n") for text in (change.before, change.after))
        name = str(change.path)
        for line in unified_diff(old, new, name, name, n=0, lineterm=""):
            click.echo(printable(line.rstrip("\r")))


def _say_what_is_next(setup: EnablingPlan, config: Config) -> None:
    local = Path("/usr/local/lib")
    if setup.plugin_dir not in (None, local):
        click.echo(
            f"every host that reads this slurm.conf needs the directory {setup.plugin_dir}, empty"
            " but here (package slurm-gputopo-node has it), or its daemons do not start; where"
            f" that cannot be, link our select_cons_tres.so into {local} here and give"
            f" --plugin-dir {local}"
        )
    if not config.socket.exists():
        click.echo("next: systemctl enable --now gputopo")
    click.echo(f"{_RESTART}; gputopo doctor")
