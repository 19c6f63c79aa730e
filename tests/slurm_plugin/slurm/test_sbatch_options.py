"""sbatch's options as sbatch reads them, of a command line and of a script."""

import pytest

from slurm_plugin.errors import PluginError
from slurm_plugin.slurm.sbatch_options import OPTIONS, WITH_OR_WITHOUT, read_options, script_words


@pytest.mark.parametrize(
    ("words", "given", "at"),
    [
        ("-N2 -p gpu job.sh -N9", {"nodes": "2", "partition": "gpu"}, 3),
        ("--nodes=2 --partition gpu", {"nodes": "2", "partition": "gpu"}, 3),
        ("-HN 2 x", {"hold": None, "nodes": "2"}, 2),
        ("-J=x", {"job-name": "=x"}, 1),
        ("--spread-segments job.sh", {"spread-segments": None}, 1),
        ("--exclusive job.sh", {"exclusive": None}, 1),
        ("--exclusive=user job.sh", {"exclusive": "user"}, 1),
        ("--nice -- -N2", {"nice": None}, 2),
        ("-V -h -u job.sh", {"version": None, "help": None, "usage": None}, 3),
        ("--arr=1-9 --part gpu x", {"array": "1-9", "partition": "gpu"}, 3),
        ("--gpus-per 2", {"gpus-per": "2"}, 2),
        ("--container-image a+b:1 --no-container-entrypoint=x x",
         {"container-image": "a+b:1", "no-container-entrypoint": "x"}, 3),
        ("-z 3 -y4 x", {"z": "3", "y": "4"}, 3),
        ("-p", {"partition": None}, 1),
        ("--partition= x", {"partition": ""}, 1),
        ("- -p gpu", {}, 0),
        ("", {}, 0),
    ],
)  # fmt: skip
def test_options_and_where_the_script_stands(words, given, at):
    found, place = read_options(words.split())
    assert (found, place) == (given, at)


def test_a_letter_stands_for_one_option():
    letters = [letter for letter in OPTIONS.values() if letter]
    assert len(letters) == len(set(letters))
    assert OPTIONS.keys() >= WITH_OR_WITHOUT


def test_a_scripts_lines_count_up_to_its_first_command():
    script = (
        "#!/bin/sh\n#SBATCH --gpus=4 # four\n\n  # a word\n#SLURM -t\n#SBATCH '1:00:00'\n"
        " #SBATCH -N8\nsrun x\n#SBATCH -N9\n#SBATCH hetjob\n"
    )
    assert script_words(script, "job.sh") == (["--gpus=4", "-t", "1:00:00"], "")
    with pytest.raises(PluginError, match=r"job\.sh:2: No closing quotation"):
        script_words("#!/bin/sh\n#SBATCH --comment='open", "job.sh")


@pytest.mark.parametrize("line", ["#SBATCH hetjob", "#SLURM\tPackjob -N1", "#SBATCH hetjob\r"])
def test_of_a_heterogeneous_jobs_script_the_first_components_lines_are_read(line):
    words, begins = script_words(f"#SBATCH -N2\n{line}\n#SBATCH -N9\n", "job.sh")
    assert words == ["-N2"]
    assert line.startswith(begins)
    assert begins
    assert script_words("#SBATCH --comment hetjob\n", "") == (["--comment", "hetjob"], "")
