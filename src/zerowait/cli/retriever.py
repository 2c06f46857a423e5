"""``zerowait retriever``: build a search index, and serve it over HTTP in the form of Search-R1."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from zerowait.cli.app import app
from zerowait.cli.json_output import JsonOption, print_json
from zerowait.engine.portal import new_loop
from zerowait.errors import ConfigError, ZerowaitError
from zerowait.search.corpus import ReportProgress

if TYPE_CHECKING:
    from zerowait.search.index import Kind
    from zerowait.search.reloadable_index import ReloadableIndex

_KINDS = ("bm25", "dense", "hybrid")

retriever = typer.Typer(no_args_is_help=True, help="Build and serve a search index for agents.")
app.add_typer(retriever, name="retriever")


@retriever.command()
def build(  # noqa: PLR0913, PLR0917 - typer reads options from parameters
    corpus: Annotated[Path, typer.Argument(help="JSONL of {id, contents}, the title first.")],
    index: Annotated[Path, typer.Argument(help="Folder for the index.")],
    kind: Annotated[str, typer.Option(help="bm25, dense, or hybrid for both.")] = "bm25",
    encoder: Annotated[
        str | None, typer.Option(help="Folder of a sentence encoder, for dense and hybrid.")
    ] = None,
    query_prefix: Annotated[str, typer.Option(help="Before each query; E5 needs 'query: '.")] = "",
    passage_prefix: Annotated[str, typer.Option(help="Before each passage.")] = "",
    max_tokens: Annotated[int, typer.Option(min=1, help="Of a text, for the encoder.")] = 256,
    as_json: JsonOption = False,
) -> int:
    """Index a corpus; the index refers to the file, which must not be moved or changed.

    A running server of the same folder keeps its index until it gets SIGHUP.
    """
    from zerowait.search.dense import EncoderSettings
    from zerowait.search.index import build_index

    if kind not in _KINDS:
        raise ConfigError(f"--kind {kind}: must be one of {', '.join(_KINDS)}")
    if kind == "bm25" and encoder is not None:
        raise ConfigError(
            f"--encoder {encoder}: is for --kind dense and hybrid; bm25 embeds nothing"
        )
    settings = None
    if encoder is not None:
        settings = EncoderSettings(
            path=encoder,
            query_prefix=query_prefix,
            passage_prefix=passage_prefix,
            max_tokens=max_tokens,
        )
    with _bars() as progress:
        built = build_index(
            corpus,
            index,
            kind=cast("Kind", kind),
            encoder=settings,
            progress=progress,
        )
    if as_json:
        print_json({"index": str(index), "kind": kind, "documents": built.documents})
    else:
        print(f"{built.documents} documents are indexed in {index}")
    return 0


@retriever.command()
def serve(
    index: Annotated[Path, typer.Argument(help="Folder written by build.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes any free port.")] = 8000,
    topk: Annotated[int, typer.Option(help="Passages for a request without topk.")] = 3,
) -> int:
    """Serve POST /retrieve, /healthz and /metrics until interrupted.

    SIGHUP reloads the index; until then requests are answered from the old one.
    """
    from zerowait.search.reloadable_index import ReloadableIndex
    from zerowait.search.server import serving_index

    async def serve_until_signal() -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        async with (
            _reload_on_sighup(served),
            serving_index(served, host=host, port=port, topk=topk) as url,
        ):
            print(f"{len(served)} documents are served at {url}", flush=True)
            await stop.wait()

    with (
        closing(ReloadableIndex(index)) as served,
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        runner.run(serve_until_signal())
    return 0


@asynccontextmanager
async def _reload_on_sighup(index: ReloadableIndex) -> AsyncIterator[None]:
    """Reload the index at each SIGHUP; after an error the old one stays in use."""
    hung_up = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hung_up.set)

    async def reload() -> None:
        while True:
            await hung_up.wait()
            hung_up.clear()
            try:
                await asyncio.to_thread(index.reload)
            except (ZerowaitError, OSError) as error:
                print(f"the index was not reloaded: {error}", file=sys.stderr, flush=True)
            else:
                print(f"{len(index)} documents are served now", flush=True)

    task = asyncio.get_running_loop().create_task(reload())
    try:
        yield
    finally:
        task.cancel()


@contextmanager
def _bars() -> Iterator[Callable[[str], ReportProgress]]:
    """Progress bars, one for each stage; none where standard error is no terminal."""
    from rich.console import Console
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    with Bars(transient=True, console=console, disable=not console.is_terminal) as bars:

        def stage(name: str) -> ReportProgress:
            task = bars.add_task(name, total=1.0)
            return lambda share: bars.update(task, completed=share)

        yield stage
