"""The page behind nginx and Apache, by the files that docs/web.md shows: names and ports are ours.

A recorded day is shown. `daemon` may see all of it, `nobody` none of its jobs.
"""

import http.client
import json
import os
import re
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from browser import opened
from click.testing import CliRunner
from proxies_in_tests import (
    APACHE_MODULES,
    OPERATOR,
    PASSWORDS,
    PATH,
    ROOT,
    SECRET,
    SURELY_S,
    USER,
    Behind,
    apache,
    apache_location,
    basic,
    block,
    connected,
    cutting,
    environment,
    filled,
    group,
    need,
    nginx,
    other_address,
    portal,
    public_folder,
    running,
    section,
    up,
    users_file,
)

from slurm_plugin.cli import cli
from slurm_plugin.tell.web.run import MAX_BYTES
from tests.processes import free_port

UNIT = ROOT / "slurm_plugin" / "serve" / "systemd" / "gputopo-web.service"


@pytest.fixture(scope="module")
def behind_nginx() -> Iterator[Behind]:
    need("nginx", "nginx")
    heading = "Behind nginx"
    with public_folder() as folder:
        port, own = free_port(), str(folder / "web.sock")
        path = {"/run/gputopo-web/web.sock": own}
        names = path | {"www-data": group(), "alice": OPERATOR}
        location = filled(
            block(heading, "nginx"), path | {"/etc/nginx/users": str(users_file(folder))}
        )
        behind = Behind(port, environment(heading, names), own, gone=502)
        with running(*nginx(folder, port, location)):
            yield from up(behind)


@pytest.fixture(scope="module")
def behind_apache() -> Iterator[Behind]:
    need("apache2", "apache2-bin")
    heading, here = "Open OnDemand", other_address()
    with public_folder() as folder:
        port, own = free_port(), free_port()
        included = folder / "gputopo.conf"
        included.write_text(apache_location(folder, {"ctl:8080": f"{here}:{own}"}))
        [entry] = portal()["custom_vhost_directives"]
        conf = folder / "apache.conf"
        conf.write_text(
            apache(folder, port, filled(entry, {"/etc/ood/gputopo.conf": str(included)}))
        )
        names = {"8080": str(own), "10.0.0.5": here, "GPUTOPO_WEB_SECRET=SECRET": ""}
        settings = environment(heading, names) | {"GPUTOPO_WEB_SECRET": SECRET}
        settings["GPUTOPO_WEB_OPTIONS"] += f" --operator {OPERATOR}"
        behind = Behind(port, settings, (here, own), gone=503)
        with running("apache2", "-d", folder, "-f", conf, "-D", "FOREGROUND"):
            yield from up(behind)


@pytest.fixture(params=["nginx", "apache"])
def behind(request) -> Behind:
    found = request.getfixturevalue(f"behind_{request.param}")
    assert isinstance(found, Behind)
    return found


# -- what they do ------------------------------------------------------------


def seen_by(behind: Behind, user: str) -> tuple[bytes, int]:
    """What the page calls a user, and how many jobs it shows."""
    status, page = behind.asked("/gputopo/", user)
    assert status == 200
    [name] = re.findall(rb'<p class="viewer">(.*?)</p>', page)
    return name, len(json.loads(behind.asked("/gputopo/api/state", user)[1])["jobs"])


def test_the_page_and_all_that_it_names_are_below_the_path(behind):
    status, page = behind.asked("/gputopo/", USER)
    assert status == 200
    names = re.findall(rb'(?:href|src)="([^"#][^"]*)"', page)
    assert {b"static/app.js", b"static/page.css", b"static/icon.svg"} <= set(names)
    modules = re.findall(rb'from "\./([^"]*)"', behind.asked("/gputopo/static/app.js", USER)[1])
    for name in [*names, *(b"static/" + one for one in modules)]:
        assert not name.startswith((b"/", b"http"))
        assert behind.asked(f"/gputopo/{name.decode()}", USER)[0] == 200, name


def test_everyone_sees_what_is_theirs(behind):
    name, jobs = seen_by(behind, OPERATOR)
    assert name == f"{OPERATOR} (sees all jobs)".encode()
    assert jobs > 0
    assert seen_by(behind, USER) == (USER.encode(), 0)


def test_without_a_password_nothing_is_told(behind):
    assert behind.asked("/gputopo/", "")[0] == 401
    forged = behind.raw("/gputopo/", f"X-Remote-User: {OPERATOR}", user="")
    assert forged.split()[1] == b"401"


def test_events_come_as_they_happen(behind):
    client = http.client.HTTPConnection("127.0.0.1", behind.port, timeout=SURELY_S)
    client.request("GET", "/gputopo/api/events", headers={"Authorization": basic(OPERATOR)})
    reply = client.getresponse()
    said = []
    # A minute of the day takes a second: something changes, and the connection does not end.
    while said[-1:] != [b"event: changes\n"]:
        said.append(reply.readline())
        assert said[-1]
        assert not reply.isclosed()
    client.close()
    assert said[0] == b"event: whole\n"


FORGED = f"X-Remote-User: {OPERATOR}"
GET = f"GET /gputopo/ HTTP/1.1\r\nHost: x\r\n{FORGED}\r\nX-Gputopo-Secret: {SECRET}\r\n\r\n"
SECOND = GET.encode()
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(SECOND), SECOND)
LENGTH = f"Content-Length: {len(SECOND)}"


@pytest.mark.parametrize(
    ("lines", "body"),
    [
        ([FORGED], b""),
        ([FORGED, FORGED], b""),
        ([FORGED.lower()], b""),
        ([FORGED.upper()], b""),
        ([FORGED.replace("-", "_")], b""),
        ([FORGED.replace(":", " :")], b""),
        ([FORGED.replace(": ", ":\t")], b""),
        (["X-Remote-User: x", f" {OPERATOR}"], b""),
        (["X-Nothing: x", f" \t{FORGED}"], b""),
        ([f"X-Nothing: x\n{FORGED}"], b""),
        ([f"X-Nothing: x\r{FORGED}"], b""),
        ([f"{FORGED}\x00"], b""),
        ([f"X-Remote-User: \x01{OPERATOR}"], b""),
        ([f"\xa0{FORGED}"], b""),
        ([FORGED, "Connection: X-Remote-User"], b""),
        ([FORGED, "Connection: close, X-Gputopo-Secret, Authorization"], b""),
        ([FORGED, "X-Gputopo-Secret: guessed"], b""),
        ([FORGED, "X-Forwarded-For: 127.0.0.1", "Forwarded: for=127.0.0.1"], b""),
        ([f"Authorization: {basic(OPERATOR, 'guessed')}", FORGED], b""),
        ([LENGTH], SECOND),
        ([LENGTH, LENGTH.replace(": ", ": 0")], SECOND),
        (["Transfer-Encoding: chunked"], CHUNKED),
        (["Content-Length: 5", "Transfer-Encoding: chunked"], CHUNKED),
        (["Content-Length: 4", "Transfer-Encoding:\x0bchunked"], CHUNKED),
        ([], SECOND),
    ],
    ids=["one", "two", "lower case", "upper case", "underscores", "blank before the colon", "tab",
         "folded", "folded into", "line feed", "carriage return", "NUL", "control byte",
         "blank of no ASCII", "hop by hop", "secret hop by hop", "secret", "forwarded",
         "two logins", "in a body", "two lengths", "in chunks", "length and chunks",
         "chunks in disguise", "pipelined"],
)  # fmt: skip
def test_what_a_client_says_of_itself_makes_it_nobody_else(behind, lines, body):
    said = behind.raw("/gputopo/", *lines, body=body)
    assert said.startswith(b"HTTP/1.1 ")
    # What is no request of theirs, like the second one without a password, is refused.
    status = re.findall(rb"^HTTP/1\.1 (\d+)", said, re.M)
    assert set(status) <= {b"200", b"400", b"401", b"403", b"501"}
    assert set(re.findall(rb'class="viewer">([^<]*)<', said)) <= {USER.encode()}


@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("", ""),
        ("", PASSWORDS[USER]),
        (OPERATOR, PASSWORDS[USER]),
        (f"{USER}\r\n{FORGED}\r\nX-Nothing: ", PASSWORDS[USER]),
        (f"{USER}\x00{OPERATOR}", PASSWORDS[USER]),
        (f"{OPERATOR}\n{USER}", PASSWORDS[USER]),
        (f" {OPERATOR}", ""),
    ],
)
def test_a_name_without_its_password_is_refused(behind, user, password):
    said = behind.raw("/gputopo/", f"Authorization: {basic(user, password)}", user="")
    assert said.split()[1] in (b"400", b"401")


@pytest.mark.parametrize(
    "target",
    ["/gputopo/../api/state", "/gputopo/%2e%2e/api/state", "/gputopo/..%2fapi%2fstate",
     "/gputopo/../../etc/passwd", "/gputopo/static/../../etc/passwd",
     "/gputopo/static/%2e%2e%2fserver.py", "/gputopo/static/..%5cserver.py",
     "/gputopo/static/%252e%252e%252fserver.py", "/gputopo/static/%00app.js",
     "/gputopo/api/node/x%20HTTP/1.1%0d%0aX-Remote-User:%20daemon%0d%0a%0d%0a",
     "/gputopo/api/job/..%2f..%2f..%2f", "/gputopo/http://127.0.0.1/", "/gputopo.git/",
     "/gputopo;/api", "/gputopo/;/../static/x", "http://127.0.0.1:1/gputopo/../"],
)  # fmt: skip
def test_paths_lead_nowhere(behind, target):
    said = behind.raw(target)
    assert said.split()[1] in (b"400", b"403", b"404")
    assert b"root:" not in said


@pytest.mark.parametrize(
    "target",
    ["//gputopo/", "/./gputopo/", "/x/../gputopo/", "/%67putopo/", "/gputopo/.", "/gputopo//",
     "/gputopo%2f", "/gputopo/%2e/", "/GPUTOPO/", "/gputopo/static/app.js", "/gputopo/api/events"],
)  # fmt: skip
def test_no_way_of_writing_a_path_leads_past_the_password(behind, target):
    assert behind.raw(target, FORGED, user="").split()[1] in (b"400", b"401", b"404")


def test_large_and_slow_clients_harm_nobody_else(behind):
    """One who sends too much, or nothing more, is cut off or kept waiting alone."""
    slow = [socket.create_connection(("127.0.0.1", behind.port)) for _ in range(40)]
    for one in slow[:20]:
        one.sendall(b"GET /gputopo/ HTTP/1.1\r\nHost: ")
    for one in slow[20:]:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        head = f"Host: x\r\nAuthorization: {basic(USER)}\r\n\r\n"
        one.sendall(f"GET /gputopo/api/events HTTP/1.1\r\n{head}".encode())
    size = MAX_BYTES // 2
    for lines in (
        [f"X-Large: {'a' * 4 * MAX_BYTES}"],
        [f"X-Large-{number}: {'a' * size}" for number in range(3)],
    ):
        assert behind.raw("/gputopo/", *lines).split()[1] in (b"400", b"431", b"502")
        assert behind.asked("/gputopo/", USER)[0] == 200
    # A site's cookies may be large, and do not come to the page.
    lines = [f"X-Large: {'a' * size}", f"Cookie: large={'a' * (size + 1000)}"]
    assert behind.raw("/gputopo/", *lines).split()[1] == b"200"
    for one in slow:
        one.close()


def test_a_client_keeps_its_connection(behind):
    client = http.client.HTTPConnection("127.0.0.1", behind.port, timeout=SURELY_S)
    ends = set()
    for path in ("", "static/app.js", "api/state", "static/none.js", ""):
        client.request("GET", f"/gputopo/{path}", headers={"Authorization": basic(USER)})
        reply = client.getresponse()
        assert (reply.read() != b"", reply.status) == (True, 404 if "none" in path else 200)
        assert client.sock is not None
        ends.add(client.sock.getsockname())
    client.close()
    assert len(ends) == 1


def test_a_page_that_is_started_again_needs_nothing_of_its_proxy(behind):
    """Killed it leaves its socket behind."""
    behind.stop(signal.SIGKILL)
    try:
        assert behind.asked("/gputopo/")[0] == behind.gone
    finally:
        behind.start()
    assert seen_by(behind, USER) == (USER.encode(), 0)


@pytest.mark.long("a real browser")
def test_an_open_page_goes_on_when_the_page_is_back(behind, chromium):
    login = {"username": OPERATOR, "password": PASSWORDS[OPERATOR]}
    url = f"http://127.0.0.1:{behind.port}/gputopo/"
    with opened(chromium, url, http_credentials=login) as page:
        page.wait_for_selector("main h1")
        behind.stop()
        page.wait_for_selector("text=No connection to the page's server")
        # Long enough for the browser to have had the proxy's own answer.
        page.wait_for_selector("#problems p >> nth=1")
        behind.start()
        page.wait_for_selector("text=No connection to the page's server", state="detached")
        page.wait_for_function("() => document.querySelectorAll('#problems p').length === 0")


# -- past the proxy ------------------------------------------------------------


def test_the_sockets_group_alone_gets_to_the_page(behind_nginx):
    """And is nobody there without a name."""
    path = Path(str(behind_nginx.own))
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert path.group() == group()
    for lines in ([], [FORGED, FORGED], ["X-Remote-User:"], ["X_Remote_User: daemon"]):
        assert behind_nginx.direct(*lines).split()[1] == b"403"
    assert behind_nginx.direct("X-Remote-User: nosuchuser").split()[1] == b"403"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user for once")
def test_other_users_of_the_host_cannot_connect_to_the_socket(behind_nginx):
    line = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    words = ["/usr/bin/env", "python3", "-c", line, str(behind_nginx.own)]
    for group_of, says in ((65534, "PermissionError"), (Path(behind_nginx.own).stat().st_gid, "")):
        done = subprocess.run(
            words, user=65534, group=group_of, extra_groups=[], capture_output=True, text=True
        )
        assert says in done.stderr
        assert (done.returncode == 0) == (not says)


def test_the_pages_own_check_works(behind_nginx):
    need("curl", "curl")
    line = next(one for one in section("Behind nginx").splitlines() if one.startswith("curl"))
    names = {"/run/gputopo-web/web.sock": str(behind_nginx.own), "alice": OPERATOR}
    done = subprocess.run(["sh", "-c", filled(line, names)], capture_output=True, text=True)
    assert done.stdout.startswith("{")
    assert len(done.stdout) == 200


def test_without_auth_basic_nginx_takes_the_name_from_the_client():
    """Which is why the page warns of it."""
    need("nginx", "nginx")
    with public_folder() as folder, socket.create_server(("127.0.0.1", 0)) as page:
        own, port = page.getsockname()[1], free_port()
        text = block("Behind nginx", "nginx")
        text = re.sub(r"(?m)^ *auth_basic.*\n", "", text)
        text = filled(text, {"http://unix:/run/gputopo-web/web.sock:/": f"http://127.0.0.1:{own}/"})
        with running(*nginx(folder, port, text)):
            client = connected(port)
            lines = ["GET /gputopo/ HTTP/1.1", "Host: x", f"Authorization: {basic(USER, 'wrong')}"]
            client.sendall("\r\n".join([*lines, "", ""]).encode())
            page.settimeout(SURELY_S)
            with client, page.accept()[0] as asked:
                assert f"X-Remote-User: {USER}\r\n".encode() in asked.recv(9999)
    assert "without `auth_basic` nginx takes" in section("Behind nginx")


@pytest.mark.parametrize(
    "lines",
    [[], [FORGED], [FORGED, "X-Gputopo-Secret: "], [FORGED, f"X-Gputopo-Secret: {SECRET[:-1]}"],
     [FORGED, f"X-Gputopo-Secret: {SECRET}x"], [FORGED, f"X_Gputopo_Secret: {SECRET}"],
     [FORGED, *(f"X-Gputopo-Secret: {SECRET}",) * 2],
     [FORGED, "X-Gputopo-Secret: \xff"]],
)  # fmt: skip
def test_who_comes_from_the_proxys_address_without_the_secret_is_nobody(behind_apache, lines):
    """Users' programs on Open OnDemand's host, and browsers by its /rnode/."""
    said = behind_apache.direct(*lines)
    assert said.split()[1] == b"403"
    assert SECRET.encode() not in said


def test_who_has_the_secret_is_the_proxy(behind_apache):
    said = behind_apache.direct(FORGED, f"X-Gputopo-Secret: {SECRET}")
    assert b"daemon (sees all jobs)" in said


def test_a_user_of_the_pages_host_is_who_the_kernel_says(behind_apache):
    _, port = behind_apache.own
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=SURELY_S)
    headers = {"X-Remote-User": USER, "X-Gputopo-Secret": SECRET}
    client.request("GET", "/", headers=headers)
    # A recorded day is everybody's on that host, and nobody's by that name.
    assert f'class="viewer">{USER}<'.encode() not in client.getresponse().read()
    client.close()


# -- the files ---------------------------------------------------------------


def test_the_units_bounds_let_the_socket_be_given_to_a_group():
    """`--socket-group` is a chown(2), which systemd counts among what needs privileges."""
    need("systemd-analyze", "systemd")
    allowed: set[str] = set()
    for line in re.findall(r"^SystemCallFilter=(\S+)", UNIT.read_text(), re.M):
        calls = system_calls(line.removeprefix("~"))
        allowed = allowed - calls if line.startswith("~") else allowed | calls
    assert {"chown", "fchownat", "chmod", "umask", "sendmsg"} <= allowed
    assert not {"setuid", "setgroups", "mount", "ptrace"} & allowed


def system_calls(name: str) -> set[str]:
    """The calls of one of systemd's sets, those in sets of its own included."""
    if not name.startswith("@"):
        return {name}
    words = ["systemd-analyze", "--no-pager", "syscall-filter", name]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    lines = [one.strip() for one in done.stdout.splitlines()[1:]]
    parts = [one for one in lines if one and not one.startswith("#")]
    return {call for part in parts for call in system_calls(part)}


#: The keys that Open OnDemand's dashboard reads in a manifest; it passes over all others.
MANIFEST = {"name", "description", "category", "subcategory", "icon", "role", "url", "metadata"}
MANIFEST |= {"new_window", "caption", "tile"}


def test_open_ondemands_files_fit_each_other():
    """The menu leads to where Apache has the page, in a category that the menu shows by itself."""
    text = section("Open OnDemand")
    manifest = yaml.safe_load(block("Open OnDemand", "yaml", "url:"))
    assert manifest.keys() <= MANIFEST
    assert all(isinstance(value, str) for value in manifest.values())
    assert manifest["category"] in ("Apps", "Files", "Jobs", "Clusters", "Interactive Apps")
    assert re.match(r"fa[bsrl]?://[a-z-]+\Z", manifest["icon"])
    [path] = re.findall(r'<Location "(.*)">', block("Open OnDemand", "apache"))
    assert manifest["url"] == path
    assert "`/var/www/ood/apps/sys/gputopo/manifest.yml`" in text
    assert portal().keys() == {"custom_vhost_directives"}
    [entry] = portal()["custom_vhost_directives"]
    assert f"`{entry.removeprefix('Include ')}` on 10.0.0.5" in text


def test_apache_takes_the_file_as_it_is_written(tmp_path):
    """mod_auth_openidc's lines included."""
    need("apache2", "apache2-bin")
    if not (APACHE_MODULES / "mod_auth_openidc.so").exists():
        pytest.skip("mod_auth_openidc is not installed (Debian: libapache2-mod-auth-openidc)")
    conf = tmp_path / "apache.conf"
    written = filled(block("Open OnDemand", "apache"), {"ctl:8080": "127.0.0.1:8080"})
    conf.write_text(apache(tmp_path, free_port(), f"{written}\n{cutting()}", "auth_openidc"))
    words = ["apache2", "-t", "-d", str(tmp_path), "-f", str(conf)]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "PATH": PATH})
    assert done.returncode == 0, done.stderr


def test_users_with_a_longer_name_at_the_login_are_who_they_are(behind_apache):
    assert seen_by(behind_apache, f"{USER}@example.edu") == (USER.encode(), 0)


def test_the_secret_of_the_page_is_refused_as_it_is_printed():
    """Who forgets to replace it is told so."""
    settings = environment("Open OnDemand", {})
    assert settings["GPUTOPO_WEB_SECRET"] == "SECRET"
    done = CliRunner().invoke(cli, ["web", "--demo"], env=settings)
    assert done.exit_code == 2
    [line] = done.output.splitlines()
    assert "GPUTOPO_WEB_SECRET: expected 16 to 128" in line
