"""The page in use as an animated picture, docs/images/page.gif: run it as a script."""

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image
from screenshots import DOCS, few_colours

from clew.simulation.simulate import NucleiSettings
from clew.simulation.write import write_simulation
from clew.tracking.evaluation.truth import derive_annotations
from clew.tracking.io.ctc import open_ctc_lineage
from clew.tracking.movie import open_movie
from conftest import CHROMIUM, Annotator, Served, playwright, undo_all

SIZE, SCALE = (1280, 800), 0.75
KEYS = {"y": "Y", "n": "N", "Control+z": "Ctrl+Z", "b": "B", "q": "Q"}
CAP = """(text) => {
  const cap = document.getElementById("shown-key") ?? document.body.appendChild(document.createElement("div"));
  cap.id = "shown-key"; cap.textContent = text; cap.hidden = !text;
  Object.assign(cap.style, {position: "fixed", left: "34%", bottom: "7%", padding: "10px 22px", zIndex: 99,
    font: "bold 30px sans-serif", color: "#111", background: "#f5c542", borderRadius: "10px"});
}"""


class Recorder:
    """Frames with how long each is shown, in milliseconds."""

    def __init__(self, person: Annotator) -> None:
        self.person, self.frames, self.durations = person, [], []

    def take(self, milliseconds: int, key: str = "") -> None:
        """The page as it is now, with the key that is being pressed, if any."""
        self.person.page.evaluate(CAP, key)
        picture = Image.open(io.BytesIO(self.person.page.screenshot())).convert("RGB")
        size = tuple(round(SCALE * side) for side in SIZE)
        self.frames.append(picture.resize(size, Image.Resampling.LANCZOS))
        self.durations.append(milliseconds)
        self.person.page.evaluate(CAP, "")

    def press(self, key: str, milliseconds: int = 1400) -> None:
        """Show the key, press it, and show what came of it."""
        self.take(450, KEYS[key])
        self.person.press(key)
        self.person.page.wait_for_timeout(350)
        self.take(milliseconds)

    def save(self, path: Path) -> None:
        """One palette for all frames, so that only what changes is stored."""
        strip = Image.new(
            "RGB", (self.frames[0].width, self.frames[0].height * len(self.frames))
        )
        for place, frame in enumerate(self.frames):
            strip.paste(frame, (0, place * frame.height))
        palette = few_colours(strip)
        frames = [
            frame.quantize(palette=palette, dither=Image.Dither.NONE)
            for frame in self.frames
        ]
        frames[0].save(
            path,
            save_all=True,
            append_images=frames[1:],
            duration=self.durations,
            loop=0,
            optimize=True,
        )


def record(person: Annotator, truth: set, recorder: Recorder) -> None:
    """Answer a dozen questions, take one back, look around."""
    page = person.page
    page.mouse.move(2, 2)  # where there is no button
    recorder.take(1600)
    for _ in range(7):
        page.wait_for_selector('#question:not([data-key=""])')
        recorder.press("y" if person.asked()[:4] in truth else "n")
    recorder.press("Control+z", 1600)
    person.press("Control+Shift+z")
    person.press("q")
    page.wait_for_selector('#question:not([data-key=""])')
    page.wait_for_timeout(400)
    recorder.press("b", 2200)


def main(path: Path = DOCS / "images/page.gif") -> None:
    """The animation, of a simulated movie."""
    with (
        tempfile.TemporaryDirectory() as temporary,
        playwright.sync_playwright() as driver,
    ):
        movie = Path(temporary) / "nuclei"
        write_simulation(
            movie, NucleiSettings(frames=40, cells=60, cycle=45, seed=3, noise=0.3)
        )
        events = derive_annotations(
            open_ctc_lineage(movie / "01_GT/TRA"), open_movie(movie / "01")
        ).events
        truth = {
            (frame, str(event), sources, targets)
            for frame, event, sources, targets in events
        }
        served = Served([movie / "01"])
        chromium = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        context = chromium.new_context(
            viewport=dict(zip(("width", "height"), SIZE, strict=True)),
            color_scheme="dark",
        )
        person = Annotator(context.new_page())
        person.open(served.address)
        person.until("state.wrong && state.curve.length")  # all of the movie is tracked
        for _ in range(16):  # before the recording, so that the curve has begun
            person.page.wait_for_selector('#question:not([data-key=""])')
            person.press("y" if person.asked()[:4] in truth else "n")
            person.page.wait_for_timeout(150)
        person.saved()
        person.until("state.wrong && state.curve.length > 1")
        recorder = Recorder(person)
        record(person, truth, recorder)
        recorder.save(path)
        context.close()
        undo_all(served)
        served.stop()
    print(
        f"written: {path}, {len(recorder.frames)} frames, {path.stat().st_size / 1e3:.0f} kB"
    )


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
