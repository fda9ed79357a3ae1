"""Pictures of the page in all its states, light and dark, small and large: run it as a script.

`python tests/app/browser/screenshots.py FOLDER` writes all of them, to be looked at; without a folder, those that the
documentation shows are written into docs/images.
"""

import io
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from clew.simulation.simulate import NucleiSettings
from clew.simulation.write import write_simulation
from clew.tracking.evaluation.truth import derive_annotations
from clew.tracking.io.ctc import open_ctc_lineage
from clew.tracking.movie import open_movie
from conftest import CHROMIUM, Annotator, Served, playwright, undo_all

DOCS = Path(__file__).parents[3] / "docs"
SIZES = [(1280, 800), (1024, 600), (1920, 1080), (820, 1180)]
ANSWERS, ROUNDS = 36, 3


def take(person: Annotator, name: str, folder: Path) -> None:
    """The page as it is now."""
    person.page.mouse.move(2, 2)  # where there is no button
    person.page.wait_for_timeout(400)
    save(person, name, folder)


def save(person: Annotator, name: str, folder: Path) -> None:
    """The page and the mouse as they are now."""
    width = person.page.viewport_size["width"]
    theme = person.page.get_attribute("html", "data-theme")
    few_colours(Image.open(io.BytesIO(person.page.screenshot()))).save(
        folder / f"page-{name}-{width}-{theme}.png", optimize=True
    )


def few_colours(picture: Image.Image) -> Image.Image:
    """A palette of its own for the greys and one for the rest: a third of the size, and no thin line fades."""
    pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    grey = np.ptp(pixels.astype(int), axis=1) <= 24
    codes = np.unique(
        pixels[~grey].astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    )
    bright = np.column_stack([codes >> 16, codes >> 8 & 255, codes & 255]).astype(
        np.uint8
    )
    parts = [(bright, 160, Image.Quantize.MAXCOVERAGE), (pixels[grey], 96, None)]
    colours = [
        Image.fromarray(part[None]).quantize(n, method).getpalette()[: 3 * n]
        for part, n, method in parts
    ]
    palette = Image.new("P", (1, 1))
    palette.putpalette([*colours[0], *colours[1]])
    return picture.convert("RGB").quantize(palette=palette, dither=Image.Dither.NONE)


def answer(person: Annotator, truth: set, n: int) -> None:
    """Answer questions as someone would who knows the truth."""
    for _ in range(n):
        person.page.wait_for_selector('#question:not([data-key=""])')
        person.press("y" if person.asked()[:4] in truth else "n")
        person.page.wait_for_timeout(120)
    person.saved()
    while person.page.is_visible("#refused"):  # of a simulated person's "no" too many
        person.page.locator("#refused button").last.click()
    answered = int(person.page.inner_text("#annotated"))
    person.until(f"state.wrong && state.curve.at(-1)?.[0] === {answered}")


def outline_of_two(served: Served) -> dict:
    """An outline that is to be cut: the event by which it splits, which nobody answered yet."""
    for t in reversed(range(29)):
        for one in served.ask(f"/api/movies/0/pair/{t}")["events"]:
            if one["event"] == "split" and not one.get("pinned"):
                return {"frame": t, **one}
    raise AssertionError("no outline splits in this movie")


def across(person: Annotator, split: dict) -> list[tuple[float, float]]:
    """The ends of a line on the screen that cuts an outline between the two cells that it splits into."""
    x, y = person._place("a", split["sources"][0])
    (x0, y0), (x1, y1) = (person._place("b", target) for target in split["targets"])
    length = np.hypot(x1 - x0, y1 - y0)
    dx, dy = 60 * (y1 - y0) / length, 60 * (x0 - x1) / length
    return [(x - dx, y - dy), (x + dx, y + dy)]


def stroke(person: Annotator, folder: Path, split: dict) -> None:
    """A cell that is being cut: the picture is taken before the button is let go."""
    frame, (cell,) = split["frame"], split["sources"]
    person.look_at(frame, cell)
    person.press("x")
    zoom = """async ([frame, cell]) => {
        const { centreOn } = await import("/static/camera.js"), { changed } = await import("/static/state.js");
        centreOn({ frame, sources: [cell], targets: [] });
        changed();
    }"""
    person.page.evaluate(zoom, [frame, cell])
    begin, end = across(person, split)
    person.page.mouse.move(*begin)
    person.page.mouse.down()
    person.page.mouse.move(*end, steps=6)
    person.page.wait_for_timeout(200)
    save(person, "masks", folder)
    person.page.keyboard.press("Escape")  # nothing is cut
    person.page.mouse.up()
    person.press("Escape")


def states(person: Annotator, folder: Path, split: dict) -> None:
    """One picture after the other."""
    take(person, "question", folder)
    person.skip_to("move")
    person.press("m")
    take(person, "half-given", folder)
    person.press("Escape", "y")
    person.saved()
    person.press("Control+z", "Control+Shift+z")
    person.page.wait_for_selector("[data-action=browse][aria-pressed=true]")
    person.settle()
    take(person, "answered", folder)
    person.press("Escape", "0")
    take(person, "browse", folder)
    person.press("f")
    take(person, "filter", folder)
    person.press("Escape", "o")
    person.page.wait_for_selector("#overview tbody tr:nth-child(2)")
    take(person, "movies", folder)
    person.press("Escape", "e")
    take(person, "export", folder)
    person.press("Escape", "?")
    take(person, "keys", folder)
    person.press("Escape")
    stroke(person, folder, split)
    person.press("q")
    person.until("state.question && isPrepared()")  # pictures come from the server
    person.settle()
    person.page.route("**/api/**", lambda route: route.abort())
    person.press("y", "y")
    person.page.wait_for_selector("#banner", state="visible")
    take(person, "offline", folder)
    person.page.unroute("**/api/**")
    doing = {
        "doing": "Measuring the cells of nuclei-01: frame 17 of 30",
        "done": 17,
        "total": 30,
    }
    how_far = {"error": "", "kind": "opening", **doing}
    person.page.route(
        "**/api/movies", lambda route: route.fulfill(status=503, json=how_far)
    )
    person.page.reload()
    person.page.wait_for_selector("#opening", state="visible")
    take(person, "opening", folder)
    person.page.unroute("**/api/movies")


def shown_in_docs(folder: Path) -> None:
    """Put those pictures of a folder that a page of the documentation shows into docs/images."""
    pages = "".join(page.read_text() for page in DOCS.rglob("*.md"))
    for picture in folder.glob("*.png"):
        if f"images/{picture.name}" in pages:
            shutil.copy(picture, DOCS / "images")


def main(folder: Path) -> None:
    """All pictures, of a simulated movie."""
    with (
        tempfile.TemporaryDirectory() as temporary,
        playwright.sync_playwright() as driver,
    ):
        movie = Path(temporary) / "nuclei"
        write_simulation(
            movie, NucleiSettings(frames=30, cells=50, cycle=40, seed=3, noise=0.3)
        )
        marks = derive_annotations(
            open_ctc_lineage(movie / "01_GT/TRA"), open_movie(movie / "01")
        )
        truth = {
            (frame, str(event), sources, targets)
            for frame, event, sources, targets in marks.events
        }
        other = Path(temporary) / "others"
        write_simulation(other, NucleiSettings(frames=12, cells=30, seed=4))
        served = Served([movie / "01", other / "01"])
        chromium = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        first = True
        for width, height in SIZES:
            for theme in ("light", "dark"):
                fingers = (
                    {"has_touch": True, "is_mobile": True} if width < height else {}
                )  # a tablet
                size = {"width": width, "height": height}
                context = chromium.new_context(
                    viewport=size, color_scheme=theme, **fingers
                )
                person = Annotator(context.new_page())
                person.open(served.address)
                if first:
                    for _ in range(ROUNDS):
                        answer(person, truth, ANSWERS // ROUNDS)
                    first = False
                person.until("state.wrong")  # the movie is tracked
                states(person, folder, outline_of_two(served))
                context.close()
        undo_all(served)
        served.stop()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        (folder := Path(sys.argv[1])).mkdir(parents=True, exist_ok=True)
        main(folder)
    else:
        with tempfile.TemporaryDirectory() as everything:
            main(Path(everything))
            shown_in_docs(Path(everything))
