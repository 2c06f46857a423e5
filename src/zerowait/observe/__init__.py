"""What was judged, summed up for people."""

from zerowait.observe.report import Report, by_step, comparison, read_report, traffic, write_page
from zerowait.observe.steps import StepSummary, summarise

__all__ = [
    "Report",
    "StepSummary",
    "by_step",
    "comparison",
    "read_report",
    "summarise",
    "traffic",
    "write_page",
]
