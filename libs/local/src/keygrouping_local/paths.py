"""Where things lie on this machine: the tools (jars) and the data that survives a restart."""

import os
import sys
from pathlib import Path


def project_dir() -> Path:
    """Folder of the project: the one that holds the virtual environment in use."""
    return Path(sys.prefix).parent


def tools_dir() -> Path:
    """Folder of downloaded tools: `KEYGROUPING_LOCAL_TOOLS_DIR`, else `.tools` of the project."""
    return Path(os.environ.get("KEYGROUPING_LOCAL_TOOLS_DIR") or project_dir() / ".tools")


def data_dir() -> Path:
    """Folder of data that survives: `KEYGROUPING_LOCAL_DATA_DIR`, else `.data` of the project."""
    return Path(os.environ.get("KEYGROUPING_LOCAL_DATA_DIR") or project_dir() / ".data")
