"""`log_to`, by the real packages in their offline modes: what they wrote is read back."""

import asyncio
import json
import logging
import socket
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import aiohttp
import pytest

for package in ("wandb", "tensorboard", "mlflow", "trackio", "opentelemetry.exporter"):
    pytest.importorskip(package)

import zerowait  # noqa: E402 - the packages are optional
from zerowait.hub.http.service import serving  # noqa: E402 - likewise
from zerowait.hub.http.settings import ServiceSettings  # noqa: E402 - likewise
from zerowait.testing import FakeJudge, Script, Status  # noqa: E402 - likewise

pytestmark = [
    pytest.mark.wire,
    pytest.mark.timeout(900),
    # of the packages' own; as errors they would end a logger's thread
    pytest.mark.filterwarnings("default"),
]
KEY = "sk-planted-key-1234567890"
MEANS = [(0, 0.25), (1, 0.5), (2, 0.75)]


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A busy machine may take minutes to import all packages and to make MLflow's database."""
    monkeypatch.setattr("zerowait.engine.monitor.metrics_log._END_S", 600.0)
    monkeypatch.setattr("zerowait.loggers.otel._CLOSE_S", 600.0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the packages write; none of them finds an account or a run of another test."""
    monkeypatch.chdir(tmp_path)
    for name in ("WANDB_API_KEY", "WANDB_MODE", "MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("trackio.sqlite_storage.TRACKIO_DIR", tmp_path / "trackio")
    monkeypatch.setattr("trackio.utils.TRACKIO_DIR", tmp_path / "trackio")
    return tmp_path


def settings(judge, *log_to):
    return {
        "components": {
            "answer": {"scorer": "qa_em"},
            "quality": {"judge": "quality", "weight": 0},
        },
        "judges": {
            "quality": {
                "endpoints": [{"base_url": judge.url, "model": "judge-1", "api_key": KEY}],
                "verdict": {"integer": [1, 10]},
            }
        },
        "cache": "off",
        "traffic": {"hedge": "off"},
        "log_to": list(log_to),
    }


def train(config, *, steps=MEANS):
    """Score four responses a step, of which so many are right."""
    with zerowait.open(config) as rewards:
        for step, mean in steps:
            answers = ["yes" if n < 4 * mean else "no" for n in range(4)]
            rewards.score(
                [
                    zerowait.Sample(f"{step}.{n}?", f"<answer>{answer}</answer>", "yes", step=step)
                    for n, answer in enumerate(answers)
                ]
            )


def wandb_records(path):
    """The records of an offline run's file: LevelDB's log format, after a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    raw, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(raw):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", raw[at : at + 7])
        whole += raw[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield Record.FromString(whole)
            whole = b""


def wandb_rows(folder):
    """Each history row of the only run, and its configuration."""
    (path,) = folder.rglob("run-*.wandb")
    rows, config = [], {}
    for record in wandb_records(path):
        items = record.history.item
        if items:
            rows.append(
                {
                    item.key or "/".join(item.nested_key): json.loads(item.value_json)
                    for item in items
                }
            )
        for update in (*record.run.config.update, *record.config.update):
            config[update.key or ".".join(update.nested_key)] = json.loads(update.value_json)
    return rows, config


def points(rows, name="reward/mean"):
    return [(row["zerowait/step"], row[name]) for row in rows if name in row]


def test_runs_of_their_own_hold_every_step_and_no_key(folder, caplog):
    with FakeJudge() as judge:
        train(
            settings(
                judge,
                {"wandb": {"mode": "offline", "dir": str(folder)}},
                {"tensorboard": {"dir": "events"}},
                {"mlflow": {"tracking_uri": f"sqlite:///{folder}/mlflow.db", "name": "mine"}},
                {"trackio": {"name": "mine"}},
            )
        )
    assert [r.getMessage() for r in caplog.records if r.name.startswith("zerowait")] == []

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "events"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("reward/mean")] == MEANS
    assert [(e.step, e.value) for e in events.Scalars("judge/asked")] == [(0, 4), (1, 4), (2, 4)]
    assert "reward/answer/mean" in events.Tags()["scalars"]

    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("zerowait").experiment_id])
    history = client.get_metric_history(run.info.run_id, "reward/mean")
    assert [(m.step, m.value) for m in history] == MEANS
    assert (run.info.status, run.info.run_name) == ("FINISHED", "mine")
    assert run.data.params["judges.quality.model"] == "judge-1"

    with closing(sqlite3.connect(folder / "trackio" / "zerowait.db")) as database:
        rows = database.execute("SELECT run_name, step, metrics FROM metrics ORDER BY step")
        known = [(run, step, json.loads(metrics)["reward/mean"]) for run, step, metrics in rows]
    assert known == [("mine", step, mean) for step, mean in MEANS]

    rows, config = wandb_rows(folder)
    assert points(rows) == MEANS
    assert config["judges.quality.rubric"] == "quality"

    written = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert KEY.encode() not in written
    assert b"reward/mean" in written


def in_a_loop_of_another_thread(work):
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(asyncio.to_thread(work), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def test_a_run_that_the_program_has_begun_gets_the_metrics_and_stays_open(folder):
    """The program's own steps of W&B are not used up: what it logs with its own step is kept.

    TRL calls rewards in a loop of another thread, where MLflow's own function finds no run.
    """
    import mlflow
    import trackio
    import wandb

    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    quiet = wandb.Settings(silent=True)
    own = wandb.init(project="program", mode="offline", dir=str(folder), settings=quiet)
    tracked = trackio.init(project="program", name="its", embed=False, auto_log_cpu=False)
    with FakeJudge() as judge, mlflow.start_run() as run:
        config = settings(judge, "wandb", "mlflow", "trackio")
        for n, step in enumerate(MEANS):
            own.log({"loss": 1.0 - n}, step=n)
            in_a_loop_of_another_thread(lambda step=step: train(config, steps=[step]))
        assert wandb.run is own
        assert mlflow.active_run().info.run_id == run.info.run_id
    own.finish()
    tracked.finish()
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "reward/mean")
    assert [(m.step, m.value) for m in history] == MEANS
    with closing(sqlite3.connect(folder / "trackio" / "program.db")) as database:
        rows = [
            json.loads(metrics) for (metrics,) in database.execute("SELECT metrics FROM metrics")
        ]
    assert sorted(points(rows)) == MEANS
    rows, _ = wandb_rows(folder)
    assert [row["loss"] for row in rows if "loss" in row] == [1.0, 0.0, -1.0]
    assert points(rows) == MEANS


class Collector(ThreadingHTTPServer):
    """An OTLP receiver: what was posted, by path."""

    def __init__(self):
        self.posted = {"/v1/traces": [], "/v1/metrics": []}
        super().__init__(("127.0.0.1", 0), self.Handler)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.server.posted[self.path].append(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args):
            pass

    def spans(self):
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        for body in self.posted["/v1/traces"]:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    yield from scope.spans

    def metrics(self):
        """By name, the data points of the last export."""
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
            ExportMetricsServiceRequest,
        )

        return {
            metric.name: list(getattr(metric, metric.WhichOneof("data")).data_points)
            for body in self.posted["/v1/metrics"]
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def collector():
    with Collector() as server:
        yield server
        server.shutdown()


def attributes(told):
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value")) for each in told.attributes
    }


def test_each_request_to_a_judge_is_a_span_below_its_callers(folder, collector):
    from opentelemetry.sdk.trace import TracerProvider

    where = {"endpoint": f"http://127.0.0.1:{collector.server_port}"}
    tracer = TracerProvider().get_tracer("the trainer")
    with FakeJudge() as judge:
        with (
            zerowait.open(settings(judge, {"otel": where})) as rewards,
            tracer.start_as_current_span("step 7") as step,
        ):
            rewards.score([zerowait.Sample("q", "a", "a", step=7)])
        port = int(judge.url.split(":")[2].split("/")[0])
    (span,) = collector.spans()
    told = attributes(span)
    assert span.name == "chat judge-1"
    assert span.parent_span_id == step.get_span_context().span_id.to_bytes(8, "big")
    assert span.trace_id == step.get_span_context().trace_id.to_bytes(16, "big")
    assert span.start_time_unix_nano < span.end_time_unix_nano
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "judge-1",
        "gen_ai.response.model": told["gen_ai.response.model"],
        "gen_ai.request.max_tokens": 1024,
        "gen_ai.evaluation.name": "quality",
        "server.address": "127.0.0.1",
        "server.port": port,
    }
    assert {key: told.get(key) for key in expected} == expected
    assert told["gen_ai.usage.input_tokens"] > 0
    assert told["gen_ai.usage.output_tokens"] > 0
    assert "gen_ai.input.messages" not in told
    metrics = collector.metrics()
    (duration,) = metrics["gen_ai.client.operation.duration"]
    assert duration.count == 1
    kinds = {
        attributes(point)["gen_ai.token.type"] for point in metrics["gen_ai.client.token.usage"]
    }
    assert kinds == {"input", "output"}
    assert metrics["zerowait/step"][0].as_double == 7.0
    everything = b"".join(collector.posted["/v1/traces"] + collector.posted["/v1/metrics"])
    assert KEY.encode() not in everything
    assert b"reward/mean" in everything


def test_a_span_names_the_operation_and_the_model_of_the_endpoint_that_was_asked(
    folder, collector, hold_port
):
    """The first endpoint is down, and the second has another model and another API."""
    where = {"endpoint": f"http://127.0.0.1:{collector.server_port}"}
    with hold_port() as port, FakeJudge() as judge:
        config = settings(judge, {"otel": where})
        base = config["judges"]["quality"]["endpoints"][0]
        config["judges"]["quality"]["endpoints"] = [
            base | {"base_url": f"http://127.0.0.1:{port}/v1", "model": "down"},
            base | {"model": "old", "api": "completions"},
        ]
        with zerowait.open(config) as rewards:
            rewards.score([zerowait.Sample("q", "a", "a")])
    (span,) = collector.spans()
    assert span.name == "text_completion old"


def test_a_client_of_the_service_names_the_span_above_in_its_header(folder, collector):
    where = {"endpoint": f"http://127.0.0.1:{collector.server_port}"}
    header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    async def ask(config):
        async with (
            serving(config, ServiceSettings(port=0)) as (url, _),
            aiohttp.ClientSession(headers={"traceparent": header}) as client,
            client.post(f"{url}/v1/score", json={"prompt": "q", "response": "a"}) as reply,
        ):
            assert reply.status == 200

    with FakeJudge() as judge:
        asyncio.run(ask(settings(judge, {"otel": where}, "prometheus")))
    (span,) = collector.spans()
    assert span.trace_id.hex() == "0af7651916cd43dd8448eb211c80319c"
    assert span.parent_span_id.hex() == "b7ad6b7169203331"


def test_no_collector_is_one_line_of_ours_and_holds_the_end_for_seconds_only(
    folder, monkeypatch, caplog, hold_port
):
    """The SDK alone tells of every try, and waits for half a minute."""
    monkeypatch.setattr("zerowait.loggers.otel._CLOSE_S", 0.1)
    with hold_port() as port, FakeJudge() as judge:
        where = {"endpoint": f"http://127.0.0.1:{port}"}
        with zerowait.open(settings(judge, {"otel": where})) as rewards:
            [reward] = rewards.score([zerowait.Sample("?", "<answer>a</answer>", "a")])
    assert reward.value == 1.0
    (told,) = caplog.messages
    assert told.startswith("log_to otel: ConnectionError: spans and metrics do not reach the")


def test_errors_of_the_programs_own_exporter_are_logged_while_ours_is_open(
    folder, monkeypatch, caplog, hold_port
):
    """The SDK has one logger for all exporters of a process."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    monkeypatch.setattr("zerowait.loggers.otel._CLOSE_S", 0.1)
    with hold_port() as port, FakeJudge() as judge:
        theirs = TracerProvider(shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=f"http://127.0.0.1:{port}/theirs", timeout=0.1)
        theirs.add_span_processor(SimpleSpanProcessor(exporter))
        where = {"endpoint": f"http://127.0.0.1:{port}"}
        with zerowait.open(settings(judge, {"otel": where})) as rewards:
            rewards.score([zerowait.Sample("?", "<answer>a</answer>", "a")])
            while not logging.getLogger(OTLPSpanExporter.__module__).filters:
                time.sleep(0.01)  # until ours is open, in a thread of its own
            with theirs.get_tracer("the program").start_as_current_span("a step"):
                pass
    of_the_sdk = [r.getMessage() for r in caplog.records if r.name == OTLPSpanExporter.__module__]
    assert any("Failed to export" in told for told in of_the_sdk)
    (told,) = [r.getMessage() for r in caplog.records if r.name.startswith("zerowait")]
    assert told.startswith("log_to otel: ConnectionError: spans and metrics do not reach the")


def test_a_collector_that_never_answers_changes_no_reward_and_is_told_once(
    folder, monkeypatch, caplog
):
    monkeypatch.setattr("zerowait.engine.monitor.metrics_log._END_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent, FakeJudge() as judge:
        where = {"endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        samples = [zerowait.Sample(f"{n}?", "<answer>a</answer>", "a", step=n) for n in range(5)]
        with zerowait.open(settings(judge)) as rewards:
            expected = rewards.score(samples)
        with zerowait.open(settings(judge, {"otel": where})) as rewards:
            assert rewards.score(samples) == expected
    told = [r.getMessage() for r in caplog.records if r.name.startswith("zerowait")]
    (warning,) = told
    assert warning.startswith("log_to otel: it did not end in time")


def test_a_failed_judgement_is_a_span_with_an_error_and_prompts_only_where_asked(folder, collector):
    where = {"endpoint": f"http://127.0.0.1:{collector.server_port}", "prompts": True}
    with FakeJudge() as judge, zerowait.open(settings(judge, {"otel": where})) as rewards:
        rewards.score([zerowait.Sample("first prompt", "a", "a")])
    refusing = Script(faults=[Status(status=404, message="no such model")])
    with FakeJudge(refusing) as judge, zerowait.open(settings(judge, {"otel": where})) as rewards:
        rewards.score([zerowait.Sample("second prompt", "b", "b")])
    good, bad = collector.spans()
    verdict = attributes(good)["gen_ai.evaluation.score.value"]
    assert "first prompt" in attributes(good)["gen_ai.input.messages"]
    (said,) = json.loads(attributes(good)["gen_ai.output.messages"])
    assert json.loads(said["parts"][0]["content"])["score"] == verdict
    assert attributes(bad)["error.type"] == "http_error"
    assert "no such model" in bad.status.message
    assert bad.status.code == 2


def test_the_programs_own_opentelemetry_is_used_and_left_open(folder):
    code = """
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
import zerowait
from zerowait.testing import FakeJudge
seen, reader = InMemorySpanExporter(), InMemoryMetricReader()
tracers = TracerProvider(); tracers.add_span_processor(SimpleSpanProcessor(seen))
trace.set_tracer_provider(tracers); metrics.set_meter_provider(MeterProvider([reader]))
with FakeJudge() as judge:
    config = {"components": {"q": {"judge": "q"}}, "cache": "off", "log_to": ["otel"],
        "judges": {"q": {"endpoints": [{"base_url": judge.url, "model": "m"}], "verdict": {"integer": [1, 10]}}}}
    with zerowait.open(config) as rewards:
        rewards.score([zerowait.Sample("q", "a")])
with tracers.get_tracer("mine").start_as_current_span("later"):
    pass
print([span.name for span in seen.get_finished_spans()])
print(reader.get_metrics_data() is not None)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.stdout.splitlines() == ["['chat m', 'later']", "True"], done.stderr
