"""The folder's helpers lie beside its tests; importlib mode adds no path of its own."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
