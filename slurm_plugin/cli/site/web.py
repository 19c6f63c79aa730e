"""`gputopo web`: the site as a page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurm_plugin.cli.options import config_option
from slurm_plugin.cli.site.serve import LOG_FORMAT

if TYPE_CHECKING:
    from slurm_plugin.tell.web.sources import Sources


def _text(name: str, metavar: str, about: str, **more: Any) -> Callable[..., Any]:
    """An option that takes a text."""
    return click.option(name, metavar=metavar, help=about, **more)


@click.command()
@config_option
@_text(
    "--listen",
    "ADDRESS",
    "ADDRESS:PORT, or unix:/PATH for a reverse proxy.",
    multiple=True,
    default=("127.0.0.1:8080",),
    show_default=True,
)
@_text("--user-header", "NAME", "The header in which a reverse proxy names the user.", default="")
@_text(
    "--proxy",
    "IP",
    "An address from which that header is believed, besides Unix sockets.",
    multiple=True,
)
@_text("--operator", "USER", "Sees all jobs, as root and SlurmUser do.", multiple=True)
@_text(
    "--socket-group", "GROUP", "Who may connect to the Unix socket: the proxy's group.", default=""
)
@_text(
    "--prometheus",
    "URL",
    "The site's Prometheus, asked for utilisation and memory of GPUs; nobody where unset.",
    default="",
)
@click.option("--demo", is_flag=True, help="Show a recorded day; no Slurm is needed.")
def web(
    config_path: Path,
    listen: tuple[str, ...],
    user_header: str,
    proxy: tuple[str, ...],
    operator: tuple[str, ...],
    socket_group: str,
    prometheus: str,
    demo: bool,
) -> None:
    """Show nodes, waiting jobs and decisions as a web page that looks and never acts.

    Without a proxy the page is for users of this host, each of whom sees their own jobs.
    """
    import asyncio
    import logging
    import os
    from contextlib import suppress
    from dataclasses import replace

    from slurm_plugin.cli import Fault

    try:
        from slurm_plugin.tell.web.run import address_in, serve
    except ImportError as error:
        name = str(error.name)
        raise Fault(
            f"gputopo web needs {name}: apt-get install python3-aiohttp python3-jinja2, or, where"
            " pip installed gputopo, pip install 'slurm-gputopo[web]'"
        ) from error
    from slurm_plugin.tell.web import identity
    from slurm_plugin.tell.web.utilisation.prometheus import checked_url

    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    addresses = [address_in(text) for text in listen]
    asked = checked_url(prometheus) if prometheus else ""
    operators = identity.uids_of(operator)
    shown = sources_of(config_path, operators, demo)
    # No option: every user of the host sees those of others' processes.
    secret = identity.checked_secret(os.environ.get("GPUTOPO_WEB_SECRET", ""))
    proxies = identity.checked_proxies(proxy)
    who = identity.Identities(shown.operators, user_header, proxies, secret=secret)
    if proxies and not secret:
        logging.getLogger(__name__).warning(
            "whatever runs on a host of --proxy can name any user: set GPUTOPO_WEB_SECRET"
        )
    if demo:
        # The day is nobody's: every user of this host sees it as whoever shows it.
        uid = os.getuid()
        who = replace(who, owner=lambda peer, own: uid)
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(shown, who, addresses, socket_group, asked))


def sources_of(config_path: Path, operators: frozenset[int], demo: bool) -> Sources:
    """What a page shows: the site, as these users see it, or with `demo` a made-up one."""
    import os
    from dataclasses import replace

    from slurm_plugin.config import settings
    from slurm_plugin.errors import SlurmError
    from slurm_plugin.tell.web import sources

    if demo:
        from slurm_plugin.tell.web import demo as recorded

        # A made-up site's jobs: whoever calls this may see them.
        return replace(recorded.sources(), operators=operators | {os.getuid()})
    config = settings.in_force_if_any(config_path)
    try:
        return sources.of_site(config, operators)
    except SlurmError as error:
        raise SlurmError(f"{error}; --demo shows a recorded day without any Slurm") from error
