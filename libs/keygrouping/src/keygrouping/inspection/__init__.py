"""What the keys of a stream are like, and which grouping suits them: a report out of one reading, in bounded memory."""

from keygrouping.inspection.advice import Advice, advise
from keygrouping.inspection.batch import Batch, InspectionError, Reading, Sample, Silence
from keygrouping.inspection.ceiling import Ceiling, Split, Tried
from keygrouping.inspection.extraction import Extraction
from keygrouping.inspection.files import open_file
from keygrouping.inspection.inspection import INTERVAL, Inspection
from keygrouping.inspection.names import KeyNaming
from keygrouping.inspection.ranges import Range, divided, spread
from keygrouping.inspection.report import Report
from keygrouping.inspection.stages import Stages, advise_stages
from keygrouping.inspection.trial import ALL, USUAL, groupings
from keygrouping.inspection.wanted import Wanted
from keygrouping.inspection.watch import Watch

__all__ = [
    "ALL",
    "INTERVAL",
    "USUAL",
    "Advice",
    "Batch",
    "Ceiling",
    "Extraction",
    "Inspection",
    "InspectionError",
    "KeyNaming",
    "Range",
    "Reading",
    "Report",
    "Sample",
    "Silence",
    "Split",
    "Stages",
    "Tried",
    "Wanted",
    "Watch",
    "advise",
    "advise_stages",
    "divided",
    "groupings",
    "open_file",
    "spread",
]
