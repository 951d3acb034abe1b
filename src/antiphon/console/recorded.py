"""Answers the page about a recorded run: the whole of it, a stretch of time, one message, the longest waits.

The run is read and indexed on a thread, so the page is there at once and says what it waits for. Questions are answered
on that thread too, one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from antiphon.audit.auditor import examples_in, files_in, judge_evidence
from antiphon.audit.columns.verdict import Example
from antiphon.audit.evidence import read_evidence
from antiphon.audit.explanations import tell_from_table
from antiphon.audit.promises import Scenarios
from antiphon.console.diagram.run_index import EVENTS, NOTHING, MessageName, RunIndex
from antiphon.console.diagram.slices import (
    LANES_AT_MOST,
    Stretch,
    absences,
    activity,
    longest_waits,
    slice_of,
    totals,
)
from antiphon.console.diagram.waits import WaitExplainer, about_message
from antiphon.console.http_messages import HttpAnswer, HttpRequest, as_json, refused
from antiphon.kernel.errors import AntiphonError

WAITS_SHOWN: Final = 30
TOPICS_SHOWN: Final = 1_000


class RunView:
    """One indexed run, and the questions of the page about it."""

    def __init__(self, run: RunIndex) -> None:
        self.run: Final = run
        self._explainer = WaitExplainer(run)

    def overview(self) -> dict[str, Any]:
        """The facts about the run that the page needs before it draws."""
        run = self.run
        about = run.about
        scenario = about.get("scenario") or {}
        return {
            "ready": True,
            "name": str(scenario.get("name", "")) or "a live run",
            "fabric": str(about.get("fabric") or scenario.get("fabric", "")),
            "order": str(scenario.get("order", "")),
            "seed": scenario.get("seed"),
            "unit": str(about.get("unit", "ticks")),
            "topics": dict(about.get("topics") or {}),
            "topic_numbers": run.topic_numbers[:TOPICS_SHOWN],
            "nodes": run.nodes,
            "events": list(EVENTS),
            "first_time": run.first_time,
            "last_time": run.last_time,
            "rows": len(run),
            "has_copies": run.has_copies,
            "totals": totals(run),
            "activity": activity(run),
            "absences": absences(run),
        }

    def slice(self, request: HttpRequest) -> dict[str, Any]:
        """A stretch of the diagram."""
        first = max(0, request.integer("first_lane", 0))
        return slice_of(
            self.run,
            Stretch(
                request.integer("from", self.run.first_time),
                request.integer("to", self.run.last_time),
                first,
                min(request.integer("last_lane", LANES_AT_MOST), first + LANES_AT_MOST),
                request.integer("bins", 400),
                request.integer("topic", NOTHING),
                request.integer("control", 0) == 1,
            ),
        )

    def message(self, request: HttpRequest) -> dict[str, Any]:
        """One message, by its name or by the number that a slice gave it."""
        message = request.integer("message", NOTHING)
        if message == NOTHING:
            name = MessageName(
                request.integer("topic", 0), request.integer("source", 0), request.integer("sequence", 0)
            )
            message = self.run.number_of(name)
        if message == NOTHING:
            return {"found": False}
        node = request.integer("node", NOTHING)
        return about_message(self.run, self._explainer, message, None if node == NOTHING else node)

    def answers(self) -> dict[str, Callable[[HttpRequest], Any]]:
        """The questions by their paths."""
        return {
            "/api/run": lambda _: self.overview(),
            "/api/slice": self.slice,
            "/api/message": self.message,
            "/api/waits": lambda _: longest_waits(self.run, WAITS_SHOWN),
        }


class RecordedRun:
    """The site of a recorded run."""

    def __init__(self, paths: Sequence[Path], scenarios: Scenarios | None = None) -> None:
        self._files = files_in(list(paths))
        self._scenarios = scenarios
        self._thread = ThreadPoolExecutor(1, "console")
        # A judgement of a large run takes long; the picture does not wait for it.
        self._judging_thread = ThreadPoolExecutor(1, "console-judge")
        self._view: RunView | None = None
        self._failure = ""
        self._violations: list[dict[str, Any]] | None = None
        self._reading = asyncio.get_running_loop().run_in_executor(self._thread, self._read)

    def _read(self) -> None:
        try:
            evidence = read_evidence(self._files)
            self._view = RunView(RunIndex(evidence.table, dict(evidence.about)))
            self._evidence = evidence
        except AntiphonError as error:
            self._failure = str(error)

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """Answer the page."""
        if request.path == "/api/mode":
            return as_json({"mode": "run"})
        if request.path == "/api/run" and not self._reading.done():
            return as_json({"ready": False, "files": [file.name for file in self._files]})
        await self._reading
        if self._view is None:
            return refused(409, self._failure)
        if request.path == "/api/violations":
            return as_json(await self._on_thread(self._judge, self._judging_thread))
        question = self._view.answers().get(request.path)
        if question is None:
            return refused(404, "there is no such question")
        return as_json(await self._on_thread(lambda: question(request)))

    async def _on_thread(self, work: Callable[[], Any], thread: ThreadPoolExecutor | None = None) -> Any:
        return await asyncio.get_running_loop().run_in_executor(thread or self._thread, work)

    def _judge(self) -> dict[str, Any]:
        """The violations that the judges find, each with its place in the diagram."""
        if self._violations is not None:
            return {"judged": True, "violations": self._violations}
        try:
            judged = judge_evidence(self._evidence, self._scenarios)
        except AntiphonError as error:
            return {"judged": False, "why": str(error), "violations": []}
        table, verdict = self._evidence.table, judged.verdict
        examples = examples_in(table, judged) if verdict.broken() else {}
        stories = tell_from_table(table, examples)
        self._violations = [
            {
                "kind": kind,
                "count": verdict.counts[kind],
                "text": verdict.examples.get(kind, ""),
                "story": stories.get(kind, []),
                **place_of(examples.get(kind)),
            }
            for kind in verdict.broken()
        ]
        return {"judged": True, "violations": self._violations}

    async def close(self) -> None:
        """Stop the threads."""
        for thread in (self._thread, self._judging_thread):
            thread.shutdown(wait=False, cancel_futures=True)


def place_of(example: Example | None) -> dict[str, int | None]:
    """The message and the node of a violation; no judge of total order names one."""
    if example is None:
        return {"topic": None, "node": None, "source": None, "sequence": None}
    return {
        "topic": example.topic,
        "node": example.node,
        "source": example.source,
        "sequence": example.sequence,
    }
