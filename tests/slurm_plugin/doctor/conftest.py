from pathlib import Path

import pytest
from played_site import PlayedSite


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlayedSite:
    return PlayedSite(tmp_path, monkeypatch)
