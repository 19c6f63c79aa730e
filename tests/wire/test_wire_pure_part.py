"""What gputopo-carry and gputopo-wire.so are made of, under sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest
from c_program import built, claims_in, run

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = claims_in(Path(__file__).parent)


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once."""
    return built(ROOT / "slurm_plugin" / "node" / "carry", tmp_path_factory.mktemp("wire"))


@pytest.mark.parametrize("claim", CLAIMS)
def test_claim(program: Path, claim: str) -> None:
    """Each holds under the sanitizers."""
    assert run(program, "run", claim) == f"ok {claim}\n"
