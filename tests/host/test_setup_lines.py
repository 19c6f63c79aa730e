"""What set-up says on machines that are not as it likes them: one true line each, and no more."""

import pytest

DENIED = "permission denied while trying to connect to the docker API at unix:///run/docker.sock"
ALICE = 'case "$1" in -un) echo alice ;; *) echo 1000 ;; esac'
ENGINE = "slurm_cluster/docker/ensure-engine.sh"


def test_a_user_outside_the_group_docker_is_told_so(run):
    done = run(ENGINE, id=ALICE, docker=f"echo '{DENIED}' >&2; exit 1", docker_compose=":")
    assert done.returncode == 3
    assert done.stderr == (
        "no container engine: one runs, but user alice may not use it:"
        " sudo usermod -aG docker alice and log in anew, or run this as root\n"
    )


def test_without_apt_get_an_engine_is_asked_for(run):
    done = run(ENGINE, id="echo 0")
    assert done.returncode == 3
    assert done.stderr == (
        "no container engine: there is no apt-get here: install and start Docker with compose"
        " (Debian calls them docker.io iptables docker-compose debootstrap curl)\n"
    )


def test_a_user_with_apt_get_is_told_which_packages_are_missing(run):
    done = run(ENGINE, id=ALICE, apt_get="exit 9")
    assert done.returncode == 3
    assert "only root can install them: docker.io" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_user_is_not_told_that_packages_are_missing_that_are_there(run):
    """Neither dockerd nor debootstrap need be on a user's PATH."""
    done = run(ENGINE, id=ALICE, docker="exit 1", docker_compose=":", apt_get="exit 9")
    assert done.returncode == 3
    assert done.stderr == (
        "no container engine: no daemon answers and only root can start one"
        " (sudo slurm_cluster/docker/ensure-engine.sh)\n"
    )


def test_an_engine_that_answers_needs_neither_root_nor_apt_get(run):
    done = run(ENGINE, id=ALICE, docker=":", docker_compose=":")
    assert (done.returncode, done.stderr) == (0, "")


def test_on_another_system_than_linux_there_is_no_cluster(run):
    done = run("slurm_cluster/cluster.sh images", uname="echo Darwin")
    assert done.returncode == 3
    assert done.stderr == (
        "no container engine: the cluster in containers needs Linux, this is Darwin\n"
    )


OLD = """case "$1" in -V) echo Python 3.10.12 ;; *) exit 1 ;; esac"""


#: A folder with an installed Slurm 24.05.8, as far as the script looks.
INSTALLED = (
    "mkdir -p $OUT/own/include/slurm;"
    " echo '#define SLURM_VERSION_NUMBER 0x180508' >$OUT/own/include/slurm/slurm_version.h;"
)


@pytest.mark.parametrize("environ", [
    "SLURM_PREFIX=$OUT/none", "SLURM_PREFIX=own", "SLURM_PREFIX=$OUT/own SLURM_SRC=source",
], ids=["nothing installed there", "no full path", "no full path of the source"])  # fmt: skip
def test_a_folder_without_an_installed_slurm_is_refused(run, environ):
    done = run(f"{INSTALLED} cd $OUT; {environ} checkout/slurm_cluster/cluster.sh image node")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("SLURM_PREFIX=")
    assert "expected the full path of a folder with an installed Slurm" in done.stderr


def test_images_with_a_slurm_of_ones_own_are_named_after_its_version(run):
    environ = "SUITE=bookworm SLURM_PREFIX=$OUT/own"
    done = run(f"{INSTALLED} {environ} slurm_cluster/cluster.sh image node")
    assert done.stdout.strip().endswith("-node:bookworm-slurm-24.05.8")


def test_an_old_python_is_named_with_what_is_needed(run):
    done = run("make -s test", python3=OLD)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == (
        "Python 3.10.12 found (python3), 3.11 or newer needed:"
        " make test PYTHON3=/path/to/python3.11"
    )
    assert "pip" not in done.stdout + done.stderr


def test_a_python_without_venv_names_its_package(run):
    done = run(
        "make -s setup PYTHON3=python3.12", **{"python3.12": 'case "$2" in *venv*) exit 1 ;; esac'}
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == (
        "missing: python3.12-venv ca-certificates (Debian's names);"
        " there is no apt-get here, install them by hand"
    )


def test_tools_for_some_tests_are_asked_for_and_the_others_run(run):
    done = run("make -s test-tools")
    assert done.returncode == 0
    assert done.stderr == (
        "missing: lua5.1 lua-socket gcc libc6-dev nginx apache2-bin (Debian's names);"
        " there is no apt-get here, install them by hand\n"
    )


def test_without_sudo_a_user_is_told_what_root_can_install(run):
    done = run("make -s test-tools", id=ALICE, apt_get="exit 9")
    assert done.returncode == 0
    assert "only root can install them, and there is no sudo here" in done.stderr


WHEELS = "GPUTOPO_CHECKOUT=$OUT GPUTOPO_PYTHON=python slurm_cluster/docker/wheels.sh trixie"


@pytest.mark.parametrize(
    ("kernel", "wheels"), [("arm64", "aarch64"), ("aarch64", "aarch64"), ("x86_64", "x86_64")]
)
def test_wheels_are_of_the_machine_as_pip_calls_it(run, kernel, wheels):
    pip = 'echo "$@"'
    done = run(
        WHEELS,
        uname=f"echo {kernel}",
        python=pip,
    )
    assert done.returncode == 0, done.stderr
    assert f"--platform manylinux2014_{wheels} " in done.stdout


def test_a_wheel_that_does_not_exist_is_one_line(run):
    said = "WARNING: x\nERROR: No matching distribution found for numpy\n"
    pip = f"[ $1 = -c ] || {{ printf '{said}' >&2; exit 1; }}"
    done = run(
        WHEELS,
        uname="echo riscv64",
        python=pip,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "no wheels for Python 3.13 on riscv64: No matching distribution found for numpy\n"
    )
