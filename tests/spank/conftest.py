"""The folder's helper lies beside its tests; importlib mode adds no path of its own."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
