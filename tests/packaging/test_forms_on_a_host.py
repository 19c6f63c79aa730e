"""slurm.conf as sites write it: Slurm starts with it enabled, and disabled again.

Each form on a host with the distribution's Slurm and the packages; then all is as before, byte by
byte.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePath

import pytest
from site_host import EDIT, INSTALL, ROOT, Host, gpus_of_a_job, is_advised

PLUGINS = "/usr/lib/slurm-gputopo/slurm"
#: An own script that calls the bridge, as the page has it.
OWN_SCRIPT = re.search(
    r"```lua\n(package\.path.*?)```", (ROOT / "docs" / "lua-bridge.md").read_text(), re.S
).group(1)

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long("builds the packages, and installs them in a container"),
    pytest.mark.timeout(900),
]

#: What is in /etc/slurm, by name: texts, and links where it is a path. BASE is a plain slurm.conf
#: without both keys, STOCK Slurm's own PluginDir.
BASE, STOCK = "<base>", "<stock>"
DIR = f"PluginDir={STOCK}\n"
LUA = "JobSubmitPlugins=logging\n"
FORMS: dict[str, dict[str, str | PurePath]] = {
    "neither key": {"slurm.conf": BASE},
    "no line break at the end": {"slurm.conf": f"{BASE}{DIR}".rstrip()},
    "a comment without a line break at the end": {"slurm.conf": f"{BASE}# end"},
    "both keys": {"slurm.conf": BASE + DIR + LUA},
    "both keys, first in the file": {"slurm.conf": LUA + DIR + BASE},
    "lua already there": {
        "slurm.conf": f"{BASE}JobSubmitPlugins=lua,logging\n",
        "job_submit.lua": OWN_SCRIPT,
    },
    "lua by its long name": {
        "slurm.conf": f"{BASE}JobSubmitPlugins=job_submit/lua\n",
        "job_submit.lua": OWN_SCRIPT,
    },
    "keys in any case": {"slurm.conf": f"{BASE}PLUGINDIR={STOCK}\n{LUA.lower()}"},
    "blanks, tabs, comments": {"slurm.conf": f"{BASE} PluginDir \t= {STOCK}\t# ours: later\n"},
    "a comment without a blank": {"slurm.conf": f"{BASE}PluginDir={STOCK}#:/old\n"},
    "quotes": {"slurm.conf": f'{BASE}PluginDir="{STOCK}"\n'},
    "keys in comments": {"slurm.conf": f"#PluginDir=/x\n # JobSubmitPlugins=lua\n{BASE}"},
    "lines that are continued": {"slurm.conf": f"{BASE}{DIR}MailDomain=\\\nexample.org\n{LUA}"},
    "given twice": {"slurm.conf": f"{BASE}PluginDir=/old\n{DIR}"},
    "bytes that are no text": {"slurm.conf": f"# \udcff\n{BASE}"},
    "lines as Windows ends them": {"slurm.conf": f"{BASE}{DIR}".replace("\n", "\r\n")},
    "an included file": {"slurm.conf": f"{BASE}include   parts.inc\n", "parts.inc": DIR},
    "files of the cluster's name": {
        "slurm.conf": f"{BASE}Include %c.dirs\nInclude /etc/slurm/%c.lua\n",
        "gputopo.dirs": DIR,
        "gputopo.lua": LUA,
    },
    "a link": {"slurm.conf": PurePath("/etc/real.conf"), "../real.conf": BASE},
}


@pytest.fixture(scope="module")
def site(image, debs) -> Iterator[Host]:
    """The packages are there, and an engine that enforces."""
    with Host(image, debs) as host:
        host.run(f"{INSTALL} && {EDIT}")
        host.start_engine()
        yield host


def in_force(site: Host, key: str) -> str:
    return site.run(f"scontrol show config | sed -n 's/^{key} *= *//p'").strip()


def files(site: Host) -> str:
    """Names, owners, modes and bytes of what enabling may touch."""
    return site.run(
        "cd /etc; { stat -c '%N %U %a' real.conf slurm/*; md5sum real.conf slurm/*; } 2>&- || true"
    )


@contextmanager
def written(
    site: Host, form: Mapping[str, str | PurePath], base: str, stock: str
) -> Iterator[None]:
    """These files, and Slurm started on them; the plain ones again behind the block."""
    try:
        for name, text in form.items():
            path = f"/etc/slurm/{name}"
            site.run(f"rm -f {path}")
            if isinstance(text, PurePath):
                site.run(f"ln -s {text} {path}")
            else:
                end = "\r\n" if "\r" in text else "\n"
                site.write(path, text.replace(BASE, base.replace("\n", end)).replace(STOCK, stock))
        site.reboot_slurm()
        yield
    finally:
        site.run("cd /etc/slurm; gputopo disable --apply; rm -f slurm.conf job_submit.lua; true")
        site.write("/etc/slurm/slurm.conf", base)
        site.reboot_slurm()
        site.run("cd /etc/slurm; rm -f ../real.conf parts.inc gputopo.dirs gputopo.lua")


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_enabled_and_disabled(site, form):
    base, stock = site.run("cat /etc/slurm/slurm.conf"), in_force(site, "PluginDir")
    assert PLUGINS not in stock
    with written(site, form, base, stock):
        before, scripts = files(site), in_force(site, "JobSubmitPlugins")
        assert gpus_of_a_job(site) == "0,1"
        site.run("gputopo enable --apply")
        site.reboot_slurm()
        assert in_force(site, "PluginDir") == f"{PLUGINS}:{stock}"
        others = {*scripts.split(",")} - {"(null)"}
        assert {*in_force(site, "JobSubmitPlugins").split(",")} >= others
        assert "lua" in in_force(site, "JobSubmitPlugins")
        assert is_advised(site)
        assert " -> " not in site.run("gputopo doctor")
        said = site.try_run("gputopo disable --apply")
        # A script of the site's own stays, and is named.
        names_script = "job_submit.lua loads ours" in said.stdout
        assert (said.returncode, names_script) == (
            (1, True) if "job_submit.lua" in form else (0, False)
        )
        site.reboot_slurm()
        assert files(site) == before
        assert in_force(site, "PluginDir") == stock
        assert in_force(site, "JobSubmitPlugins") == scripts
