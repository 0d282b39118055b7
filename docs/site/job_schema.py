"""Writes docs/reference/job.schema.json, by which editors know jobs: `python docs/site/job_schema.py`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from keygrouping.job import schema

PAGE = Path(__file__).parents[1] / "reference" / "job.schema.json"


def render() -> str:
    """The schema's text."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render())
    sys.stdout.write(f"{PAGE}\n")
