"""The code that docs/testing-with-slurm.md shows is what the tests run."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "testing-with-slurm.md"
PROJECT = ROOT / "tests" / "cluster" / "assets" / "foreign_project"


def test_every_block_is_in_the_project_that_is_tested():
    blocks = re.findall(r"^```python\n(?:# \w+\.py\n)?(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert len(blocks) == 4
    run = "\n".join(path.read_text() for path in sorted(PROJECT.glob("*.py")))
    for block in blocks:
        # The page says more in comments.
        assert re.sub(r"  # .*", "", block).strip() in run
