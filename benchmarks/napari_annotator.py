"""Somebody who answers from the truth, through the napari dock: events left wrong against answers.

xvfb-run -a python benchmarks/napari_annotator.py $CLEW_DATA/…/01 --answers 25 50 100
python benchmarks/page.py annotator … measures the same through the page.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from clew.annotation.annotator import Annotator, AskedQuestion
from clew.annotation.answers import Answer
from clew.annotation.questions import answer_from_truth, find_settled
from clew.tracking.events import Annotations, Event, EventTable

PATIENCE = 300.0


def split_gaps(truth: Annotations) -> Annotations:
    """The truth as frame pairs see it: a gap is a disappearance and an appearance."""
    gaps = truth.events[truth.happened & (truth.events.event == Event.GAP)]
    ends = [(frame, Event.DISAPPEAR, sources, ()) for frame, _, sources, _ in gaps]
    ends += [(frame + 1, Event.APPEAR, (), targets) for frame, _, _, targets in gaps]
    pairs = truth.to_pairwise()
    happened = np.append(pairs.happened, np.ones(len(ends), dtype=bool))
    return Annotations.of(
        EventTable.join([pairs.events, EventTable.of(ends)]), happened
    )


def count_wrong(annotator: Annotator, truth: Annotations) -> int:
    """Count predicted events that are not true, of cells whose truth is known."""
    predictions = annotator.session.predictions.by_frame
    events = EventTable.join([one.events for one in predictions.values()])
    is_true = np.isin(events.row_keys(), truth.events.row_keys())
    return int((~is_true & find_settled(events, truth)).sum())


def wait_until(holds: Any) -> None:
    from qtpy.QtWidgets import QApplication

    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("the dock does not answer")
        QApplication.processEvents()
        time.sleep(0.002)


def answer_question(dock: Any, truth: Annotations) -> int:
    """Answer the question that the dock shows; return the number of answers."""
    asked: AskedQuestion = dock.asked
    rows = answer_from_truth(asked.question, truth)
    facts = list(truth.events[rows])
    if not facts:
        dock.act("skip")
    elif asked.question.fact in facts:
        dock.act("yes")
    else:
        frame, event, sources, targets = facts[0]
        dock.draft = (list(sources), list(targets))
        if event is Event.SPLIT:  # clicks cannot name it
            answer = Answer.of(frame, event, sources, targets)
            dock._answer(answer, is_correction=True)
        else:
            dock.act("say")
    wait_until(
        lambda: dock.asked is not None or "Nothing" in dock.panel.question.text()
    )
    return int(dock.annotator.n_answers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("movies", nargs="+", type=Path)
    parser.add_argument("--answers", nargs="+", type=int, default=[25, 50, 100])
    parser.add_argument("--pace", type=float, default=0.0, help="seconds an answer")
    options = parser.parse_args()

    import napari
    from clew.napari.dock import AnnotationDock
    from clew.napari.layers import stack_frames
    from clew.tracking.evaluation.truth import derive_annotations
    from clew.tracking.io.ctc import open_ctc_lineage
    from clew.tracking.movie import open_movie

    for path in options.movies:
        movie = open_movie(path)
        lineage = open_ctc_lineage(path.parent / f"{path.name}_GT/TRA")
        truth = split_gaps(derive_annotations(lineage, movie))
        viewer = napari.Viewer(show=True)
        scale = (1.0, *movie.spacing)
        if movie.images is not None:
            viewer.add_image(stack_frames(movie.images), scale=scale, name="images")
        viewer.add_labels(stack_frames(movie.labels), scale=scale, name="masks")
        with tempfile.TemporaryDirectory() as folder:
            dock = AnnotationDock(viewer, store_folder=Path(folder))
            begin = time.perf_counter()
            dock.act("start")
            wait_until(lambda: dock.asked is not None)
            first = time.perf_counter() - begin
            wait_until(lambda: not dock.annotator.session.is_learning)
            print(
                f"{path}: first question after {first:.1f} s; 0 answers: "
                f"{count_wrong(dock.annotator, truth)} wrong",
                flush=True,
            )
            times: list[float] = []
            for n_answers in options.answers:
                done = dock.annotator.n_answers
                while done < n_answers and dock.asked is not None:
                    begin = time.perf_counter()
                    done = answer_question(dock, truth)
                    times.append(time.perf_counter() - begin)
                    limit = time.monotonic() + options.pace
                    wait_until(lambda: time.monotonic() >= limit)
                wait_until(lambda: not dock.annotator.session.is_learning)
                estimate = dock.annotator.estimate_errors() or {}
                print(
                    f"{done} answers: {count_wrong(dock.annotator, truth)} wrong; the "
                    f"dock says {estimate.get('number')} ({estimate.get('low')} to "
                    f"{estimate.get('high')}); next question after "
                    f"{np.median(times):.2f} s (median), Qt held for at most "
                    f"{1000 * max(dock.held):.0f} ms CPU",
                    flush=True,
                )
            dock.close()
        viewer.close()


if __name__ == "__main__":
    main()
