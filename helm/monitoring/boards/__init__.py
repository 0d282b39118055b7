"""All dashboards."""

from monitoring.boards.apps import APPS
from monitoring.boards.dependencies import DEPENDENCIES
from monitoring.boards.keyspace import KEYSPACE
from monitoring.boards.kit import Board
from monitoring.boards.overview import OVERVIEW
from monitoring.boards.router import ROUTER
from monitoring.boards.slo import SLO
from monitoring.boards.stages import STAGES
from monitoring.boards.topics import TOPICS

BOARDS: tuple[Board, ...] = (OVERVIEW, ROUTER, STAGES, KEYSPACE, DEPENDENCIES, SLO, TOPICS, APPS)
