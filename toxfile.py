"""A plugin that tox loads: it reads the releases of PyTorch for ``tox.ini``."""

import json
import os
from pathlib import Path

RELEASES = json.loads(Path(__file__).with_name(".ci").joinpath("releases.json").read_text())
os.environ["DEFAULT_TORCH_VERSION"] = RELEASES["torch"]["gate"][0]
os.environ["NEWEST_TORCH_VERSION"] = RELEASES["torch"]["gate"][-1]
