"""The dashboard: a live page over runs, with a browser of their samples."""

from zerowait.observe.dashboard.access import DashboardSettings
from zerowait.observe.dashboard.server import serving_dashboard, show_until_stopped

__all__ = ["DashboardSettings", "serving_dashboard", "show_until_stopped"]
