"""The report: what it says is what the lineage has, whatever is missing, and nothing in it is obeyed or fetched."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from clew.errors import InputError
from clew.tracking.evaluation.evaluate import Evaluation
from clew.tracking.evaluation.metrics import Aogm, MatchCounts
from clew.tracking.evaluation.task_loss import NOTHING, TaskLoss
from clew.tracking.events import PAIRWISE, Event, EventTable
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.movie import Movie
from clew.tracking.report import (
    make_report,
    make_weight_rows,
    plot_events,
    plot_lineage,
    plot_weights,
)
from clew.tracking.report.doubts import draw_crops, group_least_certain, render_doubts
from clew.tracking.report.figures import Forest, rank_confidence
from clew.tracking.report.markup import escape_text, format_number
from clew.tracking.report.page import render_evaluation

# six frames, one cell that divides, one that goes, one that comes, two that merge and part again:
#   frame   0    1    2      3      4      5
#           1 →  1 ⑂  1 + 2  …
#           3 →  3 →  3 →    3 →    gone
#                            4 comes →     4
#           5 →  5 ┐  5 →    5 ┬    5 →    5
#           6 →  6 ┘         6 └→   6 →    6
ALIVE = [
    {1, 3, 5, 6},
    {1, 3, 5, 6},
    {1, 2, 3, 5},
    {1, 2, 3, 4, 5},
    {1, 2, 4, 5, 6},
    {1, 2, 4, 5, 6},
]
SPECIAL = {
    1: [(Event.DIVIDE, [1], [1, 2]), (Event.MERGE, [5, 6], [5])],
    2: [(Event.APPEAR, [], [4])],
    3: [(Event.DISAPPEAR, [3], []), (Event.SPLIT, [5], [5, 6])],
}
ROWS, COLUMNS = 60, 80


def place(label, t):
    return (8 + 8 * (label % 3), 8 + 11 * label + t)


def toy(confidence=None, ndim=2):
    events = []
    for t in range(5):
        special = SPECIAL.get(t, [])
        done = [
            {label for event in special for label in event[side]} for side in (1, 2)
        ]
        events += [(t, *event) for event in special]
        events += [
            (t, Event.MOVE, [label], [label])
            for label in sorted(ALIVE[t] - done[0])
            if label in ALIVE[t + 1]
        ]
    nodes = [(t, label) for t, labels in enumerate(ALIVE) for label in sorted(labels)]
    table = EventTable.of(events)
    confidence = (
        np.arange(len(table), 0, -1) / 10
        if confidence is None
        else np.full(len(table), confidence)
    )
    position = np.array(
        [[2.0][: ndim - 2] + list(place(label, t)) for t, label in nodes], dtype=float
    )
    frame, label = np.array(nodes).T
    return Lineage(6, frame, label, position, table, confidence)


def filmed(images=True, ndim=2, name="toy", spacing=None):
    labels = np.zeros((6, ROWS, COLUMNS), dtype=np.uint16)
    for t, present in enumerate(ALIVE):
        for label in present:
            y, x = place(label, t)
            labels[t, y - 3 : y + 4, x - 3 : x + 4] = label
    if ndim == 3:
        labels = np.stack(
            [np.zeros_like(labels), labels, labels, labels, np.zeros_like(labels)],
            axis=1,
        )
    raw = (
        100.0 * (labels > 0) + np.random.default_rng(0).normal(size=labels.shape)
        if images
        else None
    )
    return Movie.from_arrays(labels, raw, spacing=spacing, name=name)


WEIGHTS = {
    "move: distance": -2.5,
    "divide: angle of the daughters": 1.25,
    "move: overlap": 3.0,
    "appear: constant": 0.0,
}


def evaluation(scores=True):
    none = np.zeros(len(Event), dtype=np.int64)
    annotated, missed = none.copy(), none.copy()
    annotated[:3], missed[:3] = [1234, 31, 7], [17, 3, 0]
    confusion = np.zeros((len(Event), NOTHING + 1), dtype=np.int64)
    confusion[Event.DIVIDE, Event.MOVE] = 3
    return Evaluation(
        TaskLoss(annotated, missed, none, none, confusion),
        Aogm(1, 2, 3, 4, 6, 5, 100, 90),
        {0: MatchCounts(8, 1, 3), 1: MatchCounts(9, 0, 2)},
        {"DET": 0.98765, "SEG": None, "TRA": 0.97654, "LNK": 0.9, "BIO": 0.8}
        if scores
        else None,
        "events.csv",
    )


def parsed(page):
    """The page as a tree; raises where a tag is left open or a character is not allowed."""
    start = "<!DOCTYPE html>\n"
    assert page.startswith(start)
    return ET.fromstring(page[len(start) :])


def words(page):
    return " ".join("".join(parsed(page).find("body").itertext()).split())


def cells(tree):
    """Every row of every table, as texts."""
    return [["".join(cell.itertext()) for cell in row] for row in tree.iter("tr")]


@pytest.fixture(scope="module")
def page():
    """A report with every part."""
    facts = {"certificate": "gap 1e-4"}
    return make_report(
        toy(),
        movie=filmed(),
        weights=WEIGHTS,
        evaluation=evaluation(),
        title="A day",
        facts=facts,
    )


def test_the_page_has_every_part(page):
    tree = parsed(page)
    assert [heading.text for heading in tree.iter("h2")] == [
        "Comparison with the truth",
        "Lineage",
        "Events over time",
        "Least certain events",
        "Learned weights",
    ]
    assert tree.find("body/main/header/h1").text == "A day"
    assert "gap 1e-4" in words(page)


def test_its_numbers_are_the_lineages(page):
    lineage, tree = toy(), parsed(page)
    tiles = [dd.text for dd in tree.find("body/main/dl").iter("dd")]
    assert tiles == ["6", str(len(lineage.frame)), str(len(lineage.tracks)), "1"]
    rows = {row[0]: row[1:] for row in cells(next(tree.iter("table")))}
    assert rows["gap"] == ["0", "–", "–", "–"]
    for event in PAIRWISE:
        own = lineage.confidence[lineage.events.event == event]
        assert rows[str(event)][0] == str(len(own))
        assert rows[str(event)][1] == "–"  # nobody calibrated this lineage
        assert rows[str(event)][2] == format_number(own.min())


def test_it_says_how_many_events_are_expected_to_be_wrong():
    lineage = toy()
    probability = np.full(len(lineage.events), 0.75)
    page = make_report(replace(lineage, probability=probability))
    rows = {row[0]: row[1:] for row in cells(next(parsed(page).iter("table")))}
    moves = int((lineage.events.event == Event.MOVE).sum())
    assert rows["move"][1] == f"{moves / 4:.1f}"
    assert (
        f"about {len(probability) / 4:.0f} of {len(probability)} events are wrong"
        in words(page)
    )


def test_its_scores_are_the_evaluations(page):
    rows = cells(parsed(page))
    assert ["move", "1,234", "17", "1.38 %", "–"] in rows
    assert ["divide", "31", "3", "9.68 %", "move (3)"] in rows
    assert ["total", "1,272", "20", "1.57 %", ""] in rows
    assert ["DET, detection", "0.9877"] in rows
    assert ["SEG, segmentation", "–"] in rows
    assert [
        "AOGM, the weighted sum",
        format_number(5 * 1 + 10 * 2 + 3 + 4 + 1.5 * 6 + 5),
    ] in rows
    assert ["division F1, exact frame (8 right, 1 false, 3 missed)", "0.8000"] in rows


def test_denied_events_are_counted():
    loss = evaluation().loss
    first = (np.arange(len(Event)) == 0).astype(int)
    denied = TaskLoss(loss.annotated, loss.missed, 6 * first, 3 * first, loss.confusion)
    rows = cells(
        ET.fromstring(
            render_evaluation(
                Evaluation(denied, Aogm(0, 0, 0, 0, 0, 0, 1, 1), {}, None, "x")
            )
        )
    )
    assert ["move", "1,234", "17", "1.61 %", "6", "3", "–"] in rows
    assert ["TRA, tracking", "1.0000"] in rows


def test_nothing_is_loaded_and_nothing_runs(page):
    assert "default-src 'none'" in page
    assert "http:" not in page
    assert "//" not in re.sub(r"base64,[^\"]*", "", page)
    assert "@import" not in page
    tree = parsed(page)
    assert not {"script", "link", "iframe", "object", "base"} & {
        element.tag for element in tree.iter()
    }
    for element in tree.iter():
        for name, value in element.attrib.items():
            assert not name.startswith("on")
            if name == "href":
                assert value.startswith(("data:image/png;base64,", "#"))


def test_ids_are_unique_and_references_lead_somewhere(page):
    ids = [
        element.attrib["id"]
        for element in parsed(page).iter()
        if "id" in element.attrib
    ]
    assert len(ids) == len(set(ids))
    asked = re.findall(r'href="#([^"]+)"', page) + re.findall(r"url\(#([^)]+)\)", page)
    assert asked
    assert set(asked) <= set(ids)


def test_names_from_files_are_text():
    names = [
        "<script>alert(1)</script>",
        "a\"b'c&amp;",
        "nul\x00bell\x07",
        "bad\udce9path",
        "$x$ -->",
    ]
    name = " ".join(names)
    page = make_report(
        toy(),
        movie=filmed(name=name),
        weights={f"{name}: {part}": 1.0 for part in names},
        title=name,
        facts={name: name},
    )
    page.encode("utf-8")  # a path that is not UTF-8 can be written
    tree = parsed(page)
    assert not list(tree.iter("script"))
    shown = [re.sub("[\x00-\x1f\udce9]", "\ufffd", part) for part in names]
    assert (
        tree.find("body/main/header/h1").text
        == tree.find("head/title").text
        == " ".join(shown)
    )
    labels = ["".join(label.itertext()) for label in tree.iter("text")]
    assert set(shown) <= set(labels)


def test_text_is_escaped_in_attributes_too():
    assert escape_text('"<&\x00') == "&quot;&lt;&amp;\ufffd"


@pytest.mark.parametrize("ndim", [2, 3])
@pytest.mark.parametrize("images", [True, False])
@pytest.mark.parametrize("spacing", [None, (0.5, 2.0)])
def test_every_doubt_has_a_picture(ndim, images, spacing):
    spacing = None if spacing is None else (*(1.0,) * (ndim - 2), *spacing)
    lineage = toy(ndim=ndim)
    scale = np.ones(ndim) if spacing is None else np.array(spacing)
    lineage = Lineage(
        6,
        lineage.frame,
        lineage.label,
        lineage.position * scale,
        lineage.events,
        lineage.confidence,
    )
    tree = ET.fromstring(
        render_doubts(lineage, filmed(images, ndim, spacing=spacing), 5)
    )
    items = list(tree.iter("li"))
    assert len(items) == 5
    for item, row in zip(items, lineage.least_certain(5), strict=True):
        svg = item.find("svg")
        assert svg.attrib["aria-label"] == lineage.events.describe(row)
        assert len(svg.findall(".//image")) == 2
        own = [
            label
            for label in (*lineage.events.sources[row], *lineage.events.targets[row])
            if label
        ]
        bold = sorted(
            int(name.text)
            for name in svg.iter("text")
            if name.attrib.get("font-weight") == "600"
        )
        assert bold == sorted(own)
        source, target = Event(lineage.events.event[row]).arity
        assert len(svg.findall(".//polygon")) == source * target
        assert f"confidence {format_number(lineage.confidence[row])}" in "".join(
            item.itertext()
        )


def test_crops_read_the_frames_they_need_and_no_other():
    movie, read = filmed(), []

    class Spy:
        name, spacing, n_frames, ndim, shape = (
            movie.name,
            movie.spacing,
            movie.n_frames,
            movie.ndim,
            movie.shape,
        )

        def label(self, t):
            read.append(t)
            return movie.label(t)

        def image(self, t):
            return movie.image(t)

    lineage = toy()
    rows = [[int(row)] for row in np.flatnonzero(np.isin(lineage.events.frame, [1, 4]))]
    assert len(draw_crops(lineage, Spy(), rows)) == len(rows)
    assert read == [1, 2, 4, 5]


def test_large_crops_are_thinned_out():
    mask = np.zeros((2, 2000, 2000), dtype=np.int32)
    mask[:, 100:1900, 100:1900] = 7
    lineage = Lineage(
        2,
        np.array([0, 1]),
        np.array([7, 7]),
        np.full((2, 2), 1000.0),
        EventTable.of([(0, Event.MOVE, [7], [7])]),
        np.ones(1),
    )
    rng = np.random.default_rng(0)
    (picture,) = draw_crops(
        lineage, Movie.from_arrays(mask, rng.random(mask.shape)), [[0]]
    )
    assert len(picture) < 100_000


def test_of_a_crowd_only_the_nearest_are_outlined():
    mask = np.kron(
        np.arange(1, 401).reshape(20, 20), np.pad(np.ones((6, 6), dtype=int), 1)
    )
    label = mask[82, 82]
    lineage = Lineage(
        2,
        np.array([0, 1]),
        np.full(2, label),
        np.full((2, 2), 82.0),
        EventTable.of([(0, Event.MOVE, [label], [label])]),
        np.ones(1),
    )
    (close,) = draw_crops(lineage, Movie.from_arrays(np.stack([mask, mask])), [[0]])
    outlined = {
        int(name.text)
        for name in ET.fromstring(close).iter("text")
        if "dy" in name.attrib
    }
    assert {label - 1, label, label + 1, label - 20, label + 20} <= outlined
    wide = Lineage(
        2,
        np.array([0, 1]),
        np.array([1, 400]),
        np.array([[3.0, 3.0], [155.0, 155.0]]),
        EventTable.of([(0, Event.MOVE, [1], [400])]),
        np.ones(1),
    )
    (crowd,) = draw_crops(wide, Movie.from_arrays(np.stack([mask, mask])), [[0]])
    assert len(ET.fromstring(crowd).findall(".//g/path")) <= 2 * (30 + 1) + 1


def test_cells_at_the_border_and_constant_images():
    mask = np.zeros((2, 30, 40), dtype=np.int32)
    mask[:, :3, 36:] = 1
    events = EventTable.of([(0, Event.MOVE, [1], [1])])
    lineage = Lineage(
        2,
        np.array([0, 1]),
        np.array([1, 1]),
        np.array([[1.0, 38.0]] * 2),
        events,
        np.ones(1),
    )
    assert "top right of the image" in render_doubts(
        lineage, Movie.from_arrays(mask, np.full(mask.shape, np.nan)), 1
    )


def test_events_that_stand_or_fall_together_are_one_doubt():
    lineage = toy()
    confidence = np.arange(10.0, 10.0 + len(lineage.events))
    first = np.flatnonzero(lineage.events.frame == 4)[:2]
    confidence[first] = 0.5
    confidence[np.flatnonzero(lineage.events.frame == 0)[:1]] = 0.5
    tied = Lineage(
        6, lineage.frame, lineage.label, lineage.position, lineage.events, confidence
    )
    assert sorted(map(len, group_least_certain(tied, 2))) == [1, 2]
    assert first.tolist() in group_least_certain(tied, 2)
    assert all(
        len(rows) == 1
        for rows in group_least_certain(toy(0.0), 20)
        if lineage.events.frame[rows[0]] == 4
    )  # five tied


def test_certain_events_are_no_doubts():
    assert group_least_certain(toy(np.inf), 5) == []
    assert "No event has an alternative" in render_doubts(toy(np.inf), filmed(), 5)
    assert render_doubts(toy(), filmed(), 0) == ""
    assert not rank_confidence(toy(np.inf)).any()


def nothing(n_frames):
    empty = np.zeros(0, dtype=np.int64)
    return Lineage(
        n_frames, empty, empty, np.zeros((0, 2)), EventTable.empty(), np.zeros(0)
    )


@pytest.mark.parametrize("n_frames", [1, 4])
def test_a_movie_without_cells(n_frames):
    movie = Movie.from_arrays(np.zeros((n_frames, 9, 9), dtype=np.uint8))
    page = make_report(nothing(n_frames), movie=movie)
    assert "There are no cells in any frame." in words(page)
    plot_lineage(nothing(n_frames))
    plot_events(nothing(n_frames))


def test_one_frame_and_frames_without_cells():
    one = Lineage(
        1,
        np.array([0]),
        np.array([3]),
        np.zeros((1, 2)),
        EventTable.empty(),
        np.zeros(0),
    )
    assert "1 track in 1 family, all of them." in words(make_report(one))
    gap = Lineage(
        4,
        np.array([0, 3]),
        np.array([1, 1]),
        np.zeros((2, 2)),
        EventTable.of([(0, Event.DISAPPEAR, [1], []), (2, Event.APPEAR, [], [1])]),
        np.ones(2),
    )
    assert "never happen: move, divide, split, merge" in words(make_report(gap))


def test_another_movie_is_refused():
    with pytest.raises(InputError, match="the movie that was tracked"):
        make_report(toy(), movie=filmed()[:4])


def test_the_figure_of_events_has_a_row_for_each_kind_that_happens():
    figure = plot_events(toy())
    texts = [note.get_text() for axes in figure.axes for note in axes.texts]
    assert texts[::2] == ["cells", *map(str, PAIRWISE)]
    counts = toy().counts()
    assert texts[3::2] == [f"{n} in all" for n in counts.sum(axis=0)[list(PAIRWISE)]]
    drawn = figure.axes[1].patches[0].get_data().values
    assert drawn.tolist() == counts[:, Event.MOVE].tolist()


def family(generations, length=3):
    """A cell that divides every `length` frames, as do all its daughters."""
    n_frames = generations * length
    events = []
    for t in range(n_frames - 1):
        alive = range(1, 2 ** (t // length) + 1)
        if (t + 1) % length:
            events += [(t, Event.MOVE, [cell], [cell]) for cell in alive]
        else:
            events += [
                (t, Event.DIVIDE, [cell], [2 * cell - 1, 2 * cell]) for cell in alive
            ]
    nodes = np.array(
        [(t, c) for t in range(n_frames) for c in range(1, 2 ** (t // length) + 1)]
    )
    table = EventTable.of(events)
    return Lineage(
        n_frames,
        *nodes.T,
        np.zeros((len(nodes), 2)),
        table,
        np.linspace(1, 2, len(table)),
    )


def test_mothers_lie_amid_their_daughters_and_leaves_one_below_the_other():
    forest = Forest(family(4), 100)
    leaves = ~np.isin(np.arange(15), forest.parent)
    assert sorted(forest.row[leaves]) == list(range(8))
    for mother in np.flatnonzero(~leaves):
        assert forest.row[mother] == forest.row[forest.parent == mother].mean()
    assert forest.describe() == "15 tracks in 1 family, all of them."


def test_a_family_that_is_too_large_loses_its_last_tracks():
    forest = Forest(family(5), 10)
    assert len(forest.shown) == 10
    assert set(forest.parent[forest.shown].tolist()) - {-1} <= set(
        forest.shown.tolist()
    )
    assert forest.describe().startswith(
        "The first 10 tracks of the largest family, which has 31."
    )
    plot_lineage(family(5), max_tracks=10)


def test_the_largest_families_are_shown_and_the_others_counted():
    lineage = toy()
    forest = Forest(lineage, 3)
    assert sorted(lineage.tracks.begin[forest.shown]) == [0, 2, 2]  # the division
    n, families = len(lineage.tracks), int((lineage.tracks.parent == 0).sum())
    assert forest.describe() == (
        f"The largest 1 of {families} families, with 3 of {n} tracks; left out: {families - 1} families with {n - 3} "
        "tracks."
    )


def test_lines_cover_every_link_once():
    """The length of all horizontal lines is the number of links within tracks, whatever their confidence."""
    lineage = family(4)
    axes = plot_lineage(lineage).axes[0]
    length = 0.0
    for patch in axes.patches:
        points, codes = patch.get_path().vertices, patch.get_path().codes
        steps = np.abs(np.diff(points[:, 0]))[codes[1:] == 2]
        length += steps.sum()
    assert length == pytest.approx(len(lineage.edges.source))
    assert len(axes.patches) == 3  # three classes of confidence


def test_weights_by_event_the_largest_first():
    rows = make_weight_rows(list(WEIGHTS), list(WEIGHTS.values()))
    assert rows == [
        ("move", "overlap", 3.0),
        ("move", "distance", -2.5),
        ("divide", "angle of the daughters", 1.25),
        ("appear", "constant", 0.0),
    ]
    axes = plot_weights(list(WEIGHTS), list(WEIGHTS.values())).axes[0]
    assert [bar.get_width() for bar in axes.patches] == [row.weight for row in rows]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        row.feature for row in rows
    ]
    assert [row.event for row in make_weight_rows(["bias"], [1])] == [""]
    plot_weights([], [])
    plot_weights(["move: a"], [0.0])


def test_weights_without_names_are_refused():
    with pytest.raises(InputError, match="2 names"):
        make_weight_rows(["a", "b"], [1.0])


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (3, "3"),
        (12345, "12,345"),
        (-0.5, "−0.500"),
        (0.00012, "0.00012"),
        (float("inf"), "∞"),
        (float("nan"), "–"),
        (2.5e9, "2,500,000,000"),
        (0.0, "0"),
    ],
)
def test_numbers_for_people(value, shown):
    assert format_number(value) == shown


def test_a_large_movie_makes_a_small_page():
    n_frames, n = 300, 300
    frame, label = np.divmod(np.arange(n_frames * n), n)
    source = np.column_stack([label[:-n] + 1, np.zeros_like(label[:-n])])
    events = EventTable(
        frame[:-n], np.zeros(len(source), dtype=np.int8), source, source
    )
    confidence = np.random.default_rng(0).exponential(size=len(source))
    lineage = Lineage(
        n_frames, frame, label + 1, np.zeros((len(frame), 2)), events, confidence
    )
    page = make_report(lineage)
    assert len(page) < 1_000_000
    assert "The largest 120 of 300 families" in words(page)
