"""The report: claims, figures and tables beside the published ones, and the setup."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from clew._version import __version__
from clew.tracking.report import markup
from clew.tracking.report.markup import STYLE, escape_text, render_svg
from paper import active_annotation, fig34, fig56, published, table3
from paper.claims import NAMES, Claim
from paper.plots import FIGURES, METHODS, STRATEGIES, WAYS
from paper.tables import Json, Summary, curve, summary, values, where

PACKAGES = (
    "numpy",
    "scipy",
    "highspy",
    "clarabel",
    "numba",
    "scikit-learn",
    "matplotlib",
)
LABELS = {
    "fig3": "Test task loss against the annotated fraction, with deviations over draws",
    "fig4": "Training time against the annotated fraction, with deviations over draws",
    "fig5": "Objective against processor time for five algorithms",
    "fig6": "Bounds computed against CCCP iteration for five algorithms",
    "beyond": "Test task loss against the share of annotated events, for random and active annotation",
}
MORE_STYLE = (
    ".holds { color: var(--green); } .fails { color: var(--vermillion); } "
    ".claims td { vertical-align: top; } .claims td:first-child { white-space: nowrap; } "
    ".scroll + .scroll { margin-top: 1.75rem; }"
)


def describe_environment() -> dict[str, Any]:
    """Return the machine and the versions of the packages."""
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        "python": platform.python_version(),
        "clew": __version__,
        **{name: version(name) for name in PACKAGES},
    }


def build_report(
    results: Mapping[str, Sequence[Json]],
    claims: Sequence[Claim],
    facts: Mapping[str, Any],
) -> str:
    """Return the report as HTML."""
    parts = [_claims_section(claims)]
    if results.get("fig34"):
        parts.append(_fig34_section(results["fig34"]))
    if results.get("table3"):
        parts.append(_table3_section(results["table3"]))
    if results.get("fig56"):
        parts.append(_fig56_section(results["fig56"]))
    if results.get("beyond"):
        parts.append(_active_section(results["beyond"]))
    parts.append(
        markup.render_section("How it was made", markup.render_facts(facts.items()))
    )
    title = "Learning from partial annotations: the experiments"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape_text(title)}</title><style>{STYLE}{MORE_STYLE}</style></head><body><main>"
        f"<header><h1>{escape_text(title)}</h1><p>Section 5 of {escape_text(published.CITATION)}, and what it left as outlook. "
        "The paper's figures are read off its plots; its movies, machine and solver were others.</p></header>"
        f"{''.join(parts)}</main></body></html>"
    )


def _claims_section(claims: Sequence[Claim]) -> str:
    rows = "".join(
        f'<tr><td class="{"holds" if claim.holds else "fails"}"><b>{"holds" if claim.holds else "does not hold"}</b>'
        f"</td><td>{escape_text(claim.text)}</td><td>{escape_text(claim.evidence)}</td></tr>"
        for claim in claims
    )
    return markup.render_section(
        "Claims",
        f'<div class="scroll"><table class="claims"><tbody>{rows}</tbody></table></div>',
    )


def _render_captioned(
    caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], n_words: int = 1
) -> str:
    """Render a table below its caption."""
    table = markup.render_table(head, rows, n_words=n_words)
    return f"<p>{escape_text(caption)}</p>{table}"


def _picture(name: str, results: Sequence[Json]) -> str:
    return markup.render_picture(
        render_svg(FIGURES[name][1](results), LABELS[name], name)
    )


def _fig34_section(entries: Sequence[Json]) -> str:
    fractions = [f for f in values(entries, "fraction") if f < 1]

    def rows(quantity: str, published_values: Any, show: Any) -> list[list[str]]:
        table = [[f"{f:.0%}"] for f in fractions]
        for method in METHODS:
            for row, f in zip(table, fractions, strict=True):
                row.append(show(summary(entries, quantity, method=method, fraction=f)))
                if method in published_values:
                    row.append(str(published_values[method].get(f, "")))
        full = summary(entries, quantity, method=fig34.FULL)
        table.append(
            ["100%, BMRM", show(full), str(published_values["full"][1.0]), "", "", ""]
        )
        return table

    head = ["annotated", "clew", "paper", "perceptron", "paper", "averaged perceptron"]
    note = "The last row is BMRM with full annotation. Deviations are over stratified draws."
    return markup.render_section(
        "Figures 3 and 4: partial and full annotation",
        markup.render_lead(
            "Test task loss: the share of all true events of the test movie that the prediction misses."
        ),
        _picture("fig3", entries),
        _render_captioned(
            f"Test task loss in %. {note}",
            head,
            rows("loss", published.FIG3, Summary.percent),
        ),
        _picture("fig4", entries),
        _render_captioned(
            f"Training time in seconds. {note}",
            head,
            rows("seconds", published.FIG4, Summary.plain),
        ),
    )


def _table3_section(entries: Sequence[Json]) -> str:
    ways = values(entries, "way")
    twin = {a: b for pair in table3.TWINS for a, b in (pair, pair[::-1])}

    def table(
        caption: str, quantity: str, show: Callable[[Summary], str], column: int | None
    ) -> str:
        rows = []
        for loss in table3.LOSSES:
            found = [
                show(summary(entries, quantity, surrogate=loss, way=way))
                for way in ways
            ]
            published_values = (
                [] if column is None else [published.TABLE3[loss][column]]
            )
            rows.append([NAMES[loss], NAMES[twin[loss]], *found, *published_values])
        head = [
            "loss",
            "must coincide with",
            *ways,
            *([] if column is None else ["paper"]),
        ]
        return _render_captioned(caption, head, rows, n_words=2)

    lead = (
        f"{table3.FRACTION:.0%} of the events annotated. Literal: Y° is really searched, from w = 0. Identities: the "
        "searches that cannot matter are spared, from w = 0. Clew's start: the same from the start that clew chooses."
    )
    tables = [
        table("Test task loss in %.", "loss", Summary.percent, 0),
        table("Training time in seconds.", "seconds", Summary.plain, 1),
        table(
            "Objective that was reached.",
            "objective",
            lambda found: f"{found.mean:.5f}",
            None,
        ),
    ]
    return markup.render_section(
        "Table 3: surrogate losses", markup.render_lead(lead), *tables
    )


def _fig56_section(entries: Sequence[Json]) -> str:
    def row(way: str, start: str) -> list[str]:
        here = where(entries, way=way, start=start)
        seconds, iterations = published.FIG5.get(way, ("", ""))
        return [
            WAYS[way][0],
            summary(here, "seconds").plain(),
            seconds,
            summary(here, "iterations").plain(),
            iterations,
            summary(here, "passes").plain(),
            published.FIG6.get(way, ""),
            f"{summary(here, 'objective').mean:.5f}",
        ]

    head = [
        "",
        "seconds",
        "paper",
        "CCCP iterations",
        "paper",
        "bounds",
        "paper",
        "objective",
    ]
    tables = [
        _render_captioned(
            f"Start: {name}.", head, [row(way, start) for way in fig56.WAYS]
        )
        for start, name in (("zero", "w = 0, as in the paper"), ("auto", "clew's own"))
    ]
    lead = "With a bound for each example, as many as there are examples count as one: a pass over the data."
    return markup.render_section(
        "Figures 5 and 6: optimization",
        markup.render_lead(lead),
        _picture("fig5", entries),
        _picture("fig6", entries),
        *tables,
    )


def _active_section(entries: Sequence[Json]) -> str:
    tables = []
    for movie in values(entries, "movie"):
        for prior in values(entries, "prior"):
            here = where(entries, movie=movie, prior=prior)
            rows = []
            for strategy in values(here, "strategy"):
                chosen = where(here, strategy=strategy)
                for (share, loss), (_, left) in zip(
                    curve(chosen, "loss"), curve(chosen, "left"), strict=True
                ):
                    rows.append(
                        [
                            STRATEGIES[strategy][0],
                            f"{share:.2%}",
                            loss.percent(),
                            left.percent(),
                        ]
                    )
            head = [
                "chosen",
                "annotated",
                "test task loss, %",
                "left wrong in the annotated movie, %",
            ]
            tables.append(
                markup.render_details(
                    f"Figures: annotated in the {movie} movie, from {prior}",
                    markup.render_table(head, rows),
                )
            )
    lead = (
        "The test task loss is that of the weights alone, so that annotated events count like all others. What is left "
        f"wrong in the annotated movie keeps to the annotations. Dashed: {active_annotation.REFERENCE:.0%} annotated at random."
    )
    return markup.render_section(
        "Beyond: active annotation",
        markup.render_lead(lead),
        _picture("beyond", entries),
        *tables,
    )
