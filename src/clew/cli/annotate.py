"""The command that opens the annotation page."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clew.cli.base import app, check_folder, make_folder, note, shown
from clew.cli.movies import (
    Channel,
    Frames,
    ImagesPath,
    LabelsPath,
    NoCache,
    Spacing,
    Sparse,
    events_option,
    open_pixels,
    parse_frames,
)
from clew.errors import InputError
from clew.progress import ProgressBar

if TYPE_CHECKING:
    from clew.app.run import Certificate
    from clew.app.session import Session
    from clew.tracking.movie import Movie
    from clew.tracking.tracker import Tracker

STORE = ".annotations.clewdb"
PORT = "port"
"""The note in a store that tells where its page was last."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@app.command()
def annotate(
    movies: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[MOVIE]...",
            help="Sequence folders of images (…/01, with masks beside it). Without one, a simulated movie is opened.",
            show_default=False,
        ),
    ] = None,
    labels: LabelsPath = None,
    images: ImagesPath = None,
    spacing: Spacing = None,
    channel: Channel = None,
    sparse: Sparse = False,
    frames: Frames = None,
    events: Annotated[str | None, events_option("as the weights were learned")] = None,
    weights: Annotated[
        Path | None,
        typer.Option("--weights", "-w", metavar="FILE", help="Weights to begin with: what clew train wrote."),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option("--store", metavar="FILE", help=f"Where answers are kept; beside the movie, as MOVIE{STORE}."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            max=65535,
            show_default=False,
            help="The port of the page; 0 for any. By default the one that this movie had last, so that answers which "
            "a browser could not send find their way.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where the page can be reached; by default from this machine only.")
    ] = "127.0.0.1",
    public: Annotated[
        str,
        typer.Option(
            metavar="URL",
            show_default=False,
            help="The address under which browsers reach the page, if it is another one: of a reverse proxy, or of the "
            "near end of a tunnel.",
        ),
    ] = "",
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="A certificate, to serve the page by https.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="The certificate's key.")] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
    no_cache: NoCache = False,
) -> None:
    """Annotate a movie in the browser, while clew learns from every answer.

    The page's address holds a secret token: who knows it may see the movie and answer. Ctrl-C ends the page; nothing
    that was answered is lost.
    """
    from clew.app.run import addresses_of, bind, bind_as_before, check_public, make_server, run
    from clew.tracking.archive import load_tracker
    from clew.tracking.tracker import Tracker

    paths = _stores(movies, labels, images, store, parse_frames(frames))
    tls, public = _certificate(tls_cert, tls_key), public and check_public(public)
    scheme = "http" if tls is None else "https"
    with contextlib.ExitStack() as cleanup:
        if port is None:
            bind(host, 0).close()  # an address that cannot be used is refused before a store is made
        bound = None if port is None else cleanup.enter_context(contextlib.closing(bind(host, port)))
        tracker = Tracker.generic() if weights is None else load_tracker(weights)
        if events is not None:
            tracker.set_params(events=events)
        opened = [open_pixels(path, labels, images, spacing, channel, sparse, frames) for path, _ in paths]
        sessions: list[Session] = []
        for number, (movie, (_, place)) in enumerate(zip(opened, paths, strict=True)):
            sessions.append(_open(number, movie, place, tracker, no_cache, weights is None))
            cleanup.callback(sessions[-1].close)
        if bound is None:
            last = sessions[0].store.noted(PORT)
            bound = cleanup.enter_context(contextlib.closing(bind_as_before(host, last)))
            if last not in (None, bound.getsockname()[1]):
                note(
                    f"port {last}, which this movie had last, is taken; another one is used. Answers that a page of "
                    "then could not send can be saved there to a file, and imported here"
                )
        for session in sessions:
            session.store.note(PORT, bound.getsockname()[1])
        server, token = make_server(sessions, addresses_of(bound, host, scheme, public))
        name = host if host not in ("0.0.0.0", "::") else "localhost"
        name = f"[{name}]" if ":" in name else name
        address = f"{public or f'{scheme}://{name}:{bound.getsockname()[1]}/'}?token={token}"
        for session, (_, place) in zip(sessions, paths, strict=True):
            known = len(session.state.annotations)
            note(f"{session.movie.name}: answers are kept in {shown(place)}" + (f" ({known} so far)" if known else ""))
        if host not in LOOPBACK:
            note(f"the page can be reached from other machines under {host}, by anyone who knows the token")
            if tls is None:
                note(
                    "WARNING: without --tls-cert and --tls-key, anyone on the network between can read the token and "
                    "the movie; an ssh tunnel to this machine needs no --host"
                )
        typer.echo(f"clew annotate: {address}")
        sys.stdout and sys.stdout.flush()
        note("Ctrl-C ends it.")
        run(server, bound, lambda: _show(address) if browser else None, tls)
    note("ended; all answers are kept.")


def _certificate(certificate: Path | None, key: Path | None) -> Certificate | None:
    """The files for TLS, if both are given and belong together."""
    from clew.app.run import Certificate

    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise InputError("--tls-cert and --tls-key belong together; one of them is missing")
    found = Certificate(certificate, key)
    found.check()
    return found


def _stores(
    movies: list[Path] | None, labels: Path | None, images: Path | None, store: Path | None, frames: range | None
) -> list[tuple[Path | None, Path]]:
    """The movies to open, and where the answers about each are kept."""
    for name, given in (("--store", store), ("--labels", labels)):
        if given is not None and len(movies or []) > 1:
            raise InputError(f"{name} is for one movie; {len(movies or [])} are given: expected those beside each")
    if labels is not None and not movies:
        return [(None, store or _beside(labels, frames))]
    if images is not None:
        raise InputError("--images is for a movie that is opened by its --labels")
    paths = movies or [_example()]
    names = [path.absolute() for path in paths]
    if len(set(names)) < len(names):
        raise InputError("the same movie is given twice")
    return [(path, store or _beside(path, frames)) for path in paths]


def _beside(path: Path, frames: range | None) -> Path:
    """…/01 → …/01.annotations.clewdb, and for some of its frames …/01.0-59.annotations.clewdb."""
    whole = path.absolute()
    part = "" if frames is None else f".{frames.start}-{frames.stop - 1}"
    return whole.with_name(whole.name + part + STORE)


def _open(number: int, movie: Movie, store: Path, tracker: Tracker | None, no_cache: bool, as_before: bool) -> Session:
    from clew.app.run import open_session
    from clew.tracking.measurement.measure import measure

    check_folder(store.absolute().parent)
    movie = replace(movie, name=shown(Path(movie.name)))  # a folder's name may be no valid Unicode
    with ProgressBar(f"measuring {movie.name}") as progress:
        source = measure(movie, cache=None if no_cache else "auto", n_jobs=-1, progress=progress)
    return open_session(number, movie, source, store, tracker, as_before)


def cache_folder() -> Path:
    """Where clew may keep what it can make again."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local"
    elif sys.platform == "darwin":
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / "Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "clew"


def _example() -> Path:
    """A simulated movie, made once."""
    from clew.tracking.formats.simulated import write_simulation
    from clew.tracking.simulation.simulate import NucleiSettings

    folder = cache_folder() / "example"
    if not (folder / "01").is_dir():
        check_folder(folder)
        make_folder(folder.parent)
        with ProgressBar("simulating a movie to try clew on") as progress:
            write_simulation(folder, NucleiSettings(frames=60, cells=40), "01", progress)
    note(f"no movie was given: this is a simulated one, in {shown(folder)}")
    return folder / "01"


def _show(address: str) -> None:
    """Open the browser, unless it is one that would take the terminal; what goes wrong is no harm."""

    def show() -> None:
        with contextlib.suppress(Exception):
            found = webbrowser.get()
            if not isinstance(found, webbrowser.GenericBrowser) or isinstance(found, webbrowser.BackgroundBrowser):
                found.open_new_tab(address)

    threading.Thread(target=show, daemon=True).start()
