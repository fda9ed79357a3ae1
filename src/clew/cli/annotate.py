"""The command that opens the annotation page."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import webbrowser
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clew.cli.movies import (
    Channel,
    Frames,
    ImagesPath,
    LabelsPath,
    LinksPath,
    MovieFiles,
    MovieOptions,
    NoCache,
    Radius,
    Spacing,
    Sparse,
    events_option,
    open_masked_movie,
    parse_frames,
)
from clew.cli.options import check_folder, command, make_folder, path_text, print_note
from clew.errors import InputError, MissingMasks
from clew.utils.progress import ProgressBar
from clew.utils.storage import user_folder

if TYPE_CHECKING:
    from clew.app.launch import Certificate, Socket
    from clew.app.server import Report, Server
    from clew.app.session import PageSession
    from clew.tracking.frames import Frames as FrameSource
    from clew.tracking.movie import Movie
    from clew.tracking.segmentation import DetectionSettings
    from clew.tracking.tracker import Tracker

STORE = ".annotations.clewdb"
AT_ONCE = 1.0
"""Seconds to wait for errors of opening before the browser opens."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@command()
def annotate(
    movies: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[MOVIE]...",
            help="Sequence folders of images (…/01, with masks beside it), or a table of points with --radius. Without "
            "one, a simulated movie is opened.",
            show_default=False,
        ),
    ] = None,
    labels: LabelsPath = None,
    images: ImagesPath = None,
    radius: Radius = None,
    spacing: Spacing = None,
    channel: Channel = None,
    sparse: Sparse = False,
    frames: Frames = None,
    links: LinksPath = None,
    events: Annotated[str | None, events_option("as the weights were learned")] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            "--weights",
            "-w",
            metavar="FILE",
            help="Initial weights, from clew train.",
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            "--store",
            metavar="FILE",
            help=f"Where answers are stored. Default: beside the movie, as MOVIE{STORE}.",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            max=65535,
            show_default=False,
            help="Port of the page; 0 for any free one. By default 8637, or a free one "
            "if that is taken.",
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Address to listen on. Default: this machine only.",
        ),
    ] = "127.0.0.1",
    public: Annotated[
        str,
        typer.Option(
            metavar="URL",
            show_default=False,
            help="Address under which browsers reach the page, if different: of a reverse proxy or a tunnel.",
        ),
    ] = "",
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            "--tls-cert",
            metavar="FILE",
            help="Certificate, to serve the page by https.",
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option("--tls-key", metavar="FILE", help="Key of the certificate."),
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
    no_cache: NoCache = False,
) -> None:
    """Annotate a movie in the browser; clew learns from every answer.

    The address contains a secret token: whoever has it can see the movie and answer. Ctrl-C ends the page; all answers
    are stored.
    """
    from clew.app.launch import (
        Address,
        allowed_addresses,
        check_public,
        read_token,
        run,
    )
    from clew.app.server import Server
    from clew.tracking.persistence import load_tracker
    from clew.tracking.tracker import Tracker

    paths = _choose_stores(
        movies, labels, images, store, parse_frames(frames), radius is not None
    )
    tls = _load_certificate(tls_cert, tls_key)
    public = public and check_public(public)
    tracker = Tracker.generic() if weights is None else load_tracker(weights)
    if events is not None:
        tracker.set_params(events=events)
    options = MovieOptions(spacing, channel, sparse, frames, radius)

    def list_movie_files(path: Path | None) -> MovieFiles:
        return MovieFiles(path, labels, images, links)

    opened: list[Movie | None] = []
    for path, _ in paths:
        try:
            opened.append(open_masked_movie(list_movie_files(path), options))
        except MissingMasks:
            opened.append(None)  # the page asks how its cells are detected
    with contextlib.closing(_bind_socket(host, port)) as bound:
        scheme = "http" if tls is None else "https"
        address = Address.of(bound, host, scheme, public, read_token())

        def open_sessions(report: Report) -> list[PageSession]:
            """Open all sessions; runs in a thread while the page shows progress."""
            sessions: list[PageSession] = []
            with contextlib.ExitStack() as cleanup:
                for movie, (source, path) in zip(opened, paths, strict=True):
                    if movie is None:
                        report("Detecting the cells", 0, 0)
                        movie = open_masked_movie(
                            list_movie_files(source), options, -1, choose_detection
                        )
                    server.preview(movie)
                    session = _open_session(
                        len(sessions),
                        movie,
                        path,
                        tracker,
                        no_cache,
                        weights is None,
                        report,
                    )
                    sessions.append(session)
                    cleanup.callback(session.close)
                cleanup.pop_all()  # the server closes them from now on
            return sessions

        @functools.cache
        def print_address() -> None:
            typer.echo(f"clew annotate: {address}")
            sys.stdout and sys.stdout.flush()
            print_note("Ctrl-C ends it.")

        def choose_detection(
            images: FrameSource, settings: DetectionSettings
        ) -> DetectionSettings:
            """Let the page choose how cells are detected."""
            print_address()
            print_note("choose there how cells are detected")
            chosen = server.choose_detection(images, settings)
            print_note(
                f"diameter {chosen.diameter:g}, sensitivity {chosen.sensitivity:g}"
            )
            return chosen

        def announce(server: Server) -> None:
            """Print the address of the page."""
            _print_session_notes(
                server.sessions, [path for _, path in paths], host, tls is not None
            )
            print_address()

        server = Server(
            open_sessions,
            token=address.token,
            addresses=allowed_addresses(bound, host, scheme, public),
            on_open=announce,
        )
        run(
            server,
            bound,
            lambda: _open_browser(address.base, server) if browser else None,
            tls,
        )
    print_note("ended; all answers are stored.")


def _bind_socket(host: str, port: int | None) -> Socket:
    """Return the socket of the page, on the given port or the default one."""
    from clew.app.launch import DEFAULT_PORT, bind, bind_default

    if port is not None:
        return bind(host, port)
    bound = bind_default(host)
    if bound.getsockname()[1] != DEFAULT_PORT:
        print_note(
            f"port {DEFAULT_PORT} is taken, so another one is used; answers that a tab "
            "could not send can be saved there to a file, and imported here"
        )
    return bound


def _print_session_notes(
    sessions: Sequence[PageSession], stores: list[Path], host: str, is_secure: bool
) -> None:
    """Print where answers are stored and who can reach the page."""
    for session, place in zip(sessions, stores, strict=True):
        known = len(session.state.annotations)
        print_note(
            f"{session.movie.name}: answers are stored in {path_text(place)}"
            + (f" ({known} so far)" if known else "")
        )
    if host not in LOOPBACK:
        print_note(
            f"anyone who knows the token can reach the page from other machines at {host}"
        )
        if not is_secure:
            print_note(
                "WARNING: without --tls-cert and --tls-key, others on the network can read the token and the movie; "
                "an ssh tunnel needs no --host"
            )


def _load_certificate(certificate: Path | None, key: Path | None) -> Certificate | None:
    """Return the TLS files after checking them; None without TLS."""
    from clew.app.launch import Certificate

    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise InputError("--tls-cert and --tls-key must be given together")
    found = Certificate(certificate, key)
    found.check()
    return found


def _choose_stores(
    movies: list[Path] | None,
    labels: Path | None,
    images: Path | None,
    store: Path | None,
    frames: range | None,
    is_points: bool,
) -> list[tuple[Path | None, Path]]:
    """Return each movie to open and the path of its store."""
    for name, given in (("--store", store), ("--labels", labels)):
        if given is not None and len(movies or []) > 1:
            raise InputError(
                f"{name} works with one movie only; got {len(movies or [])} movies"
            )
    if labels is not None and not movies:
        return [(None, store or _default_store(labels, frames))]
    if images is not None and not (len(movies or []) == 1 and is_points):
        raise InputError("--images needs --labels, or one table with --radius")
    paths = movies or [_make_example()]
    names = [path.absolute() for path in paths]
    if len(set(names)) < len(names):
        raise InputError("the same movie was given twice")
    return [(path, store or _default_store(path, frames)) for path in paths]


def _default_store(path: Path, frames: range | None) -> Path:
    """…/01 → …/01.annotations.clewdb, and for some of its frames …/01.0-59.annotations.clewdb."""
    whole = path.absolute()
    part = "" if frames is None else f".{frames.start}-{frames.stop - 1}"
    return whole.with_name(whole.name + part + STORE)


def _open_session(
    number: int,
    movie: Movie,
    store: Path,
    tracker: Tracker | None,
    no_cache: bool,
    as_before: bool,
    report: Report,
) -> PageSession:
    """Open the session of a movie and report progress."""
    from clew.app.session import PageSession
    from clew.tracking.measurement.measure import measure_movie

    check_folder(store.absolute().parent)
    movie = replace(
        movie, name=path_text(Path(movie.name))
    )  # a folder name may be invalid Unicode
    with ProgressBar(f"measuring {movie.name}") as progress:

        def tell(done: int, total: int) -> None:
            report(
                f"Measuring the cells of {movie.name}: frame {done} of {total}",
                done,
                total,
            )
            progress(done, total)

        source = measure_movie(
            movie, cache=None if no_cache else "auto", n_jobs=-1, progress=tell
        )
    report(f"Looking at what happens in {movie.name}", 0, 0)
    return PageSession.open(number, movie, source, store, tracker, as_before)


def _make_example() -> Path:
    """Simulate a movie once, and return its path."""
    from clew.simulation.simulate import NucleiSettings
    from clew.simulation.write import write_simulation

    folder = user_folder("cache") / "example"
    if not (folder / "01").is_dir():
        check_folder(folder)
        make_folder(folder.parent)
        with ProgressBar("simulating an example movie") as progress:
            write_simulation(
                folder, NucleiSettings(frames=60, cells=40), "01", progress
            )
    print_note(f"no movie was given: using a simulated one in {path_text(folder)}")
    return folder / "01"


def _open_browser(address: str, server: Server) -> None:
    """Open the browser, unless it would block the terminal; ignore errors.

    Parameters
    ----------
    address : str
        Without the token; a ticket takes its place.
    server : Server
    """

    def show() -> None:
        server.is_settled.wait(AT_ONCE)
        if server.failure is not None:
            return
        with contextlib.suppress(Exception):
            found = webbrowser.get()
            if not isinstance(found, webbrowser.GenericBrowser) or isinstance(
                found, webbrowser.BackgroundBrowser
            ):
                found.open_new_tab(f"{address}?ticket={server.make_ticket()}")

    threading.Thread(target=show, daemon=True).start()
