"""Writes the chart's rules, alerts and dashboards from their source: `python helm/monitoring_files.py`."""

from __future__ import annotations

from pathlib import Path

from monitoring.boards import BOARDS
from monitoring.boards.kit import as_json
from monitoring.writing import grafana_alerts, prometheus_rules

FILES = Path(__file__).parent / "keygrouping" / "files"


def documents() -> dict[Path, str]:
    """All files, by their path."""
    return {
        FILES / "rules" / "keygrouping.yaml": prometheus_rules(),
        FILES / "grafana-alerts" / "keygrouping.yaml": grafana_alerts(),
        **{FILES / "dashboards" / f"{board.uid}.json": as_json(board) for board in BOARDS},
    }


def main() -> None:
    """Writes all files."""
    for path, text in documents().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
