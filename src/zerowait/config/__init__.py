"""The reward configuration: its schema (`schema`) and how it is read (`load`)."""

from zerowait.config.build import build
from zerowait.config.endpoint import Endpoint
from zerowait.config.group_verdict import By, Comparison
from zerowait.config.judgement import Monitor, Panel, Pooling, Rebalance, Votes
from zerowait.config.load import load_config, read_config
from zerowait.config.log_to import (
    LOGGER_SETTINGS,
    LoggerSettings,
    LogTo,
    MlflowLog,
    OtelLog,
    PrometheusLog,
    TensorboardLog,
    TrackioLog,
    WandbLog,
)
from zerowait.config.schema import (
    Aggregate,
    Cache,
    Component,
    EverySteps,
    FailurePolicy,
    Judge,
    JudgeComponent,
    Policy,
    Recording,
    RewardConfig,
    ScorerComponent,
    ShapeComponent,
    Value,
    VerdictRule,
)
from zerowait.config.source import Source, parse_yaml, read_yaml
from zerowait.config.traffic import Hedge, Price, Sharding, Traffic

__all__ = [
    "LOGGER_SETTINGS",
    "Aggregate",
    "By",
    "Cache",
    "Comparison",
    "Component",
    "Endpoint",
    "EverySteps",
    "FailurePolicy",
    "Hedge",
    "Judge",
    "JudgeComponent",
    "LogTo",
    "LoggerSettings",
    "MlflowLog",
    "Monitor",
    "OtelLog",
    "Panel",
    "Policy",
    "Pooling",
    "Price",
    "PrometheusLog",
    "Rebalance",
    "Recording",
    "RewardConfig",
    "ScorerComponent",
    "ShapeComponent",
    "Sharding",
    "Source",
    "TensorboardLog",
    "TrackioLog",
    "Traffic",
    "Value",
    "VerdictRule",
    "Votes",
    "WandbLog",
    "build",
    "load_config",
    "parse_yaml",
    "read_config",
    "read_yaml",
]
