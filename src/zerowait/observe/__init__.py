"""Reports on a run: its record summed up in tables and a page."""

from zerowait.observe.page.page import write_page
from zerowait.observe.report import (
    Report,
    alarms,
    by_step,
    comparison,
    read_report,
    traffic,
)
from zerowait.observe.steps import StepSummary, summarise

__all__ = [
    "Report",
    "StepSummary",
    "alarms",
    "by_step",
    "comparison",
    "read_report",
    "summarise",
    "traffic",
    "write_page",
]
