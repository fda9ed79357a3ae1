"""Every line of what a page on this machine must withstand."""

import asyncio
import json
import socket

import pytest

from clew.app import views
from clew.app.launch import Certificate, allowed_addresses, bind, check_public
from clew.app.security import CONTENT_POLICY, MAX_BODY, SecurityMiddleware
from clew.errors import InputError
from clew.tracking.movie import Movie
from tests.app.conftest import no_loop

TOKEN = "a-token-for-tests"
HOST = "127.0.0.1:8017"
ANSWERS = "/api/movies/0/answers"
PATHS = [
    "/",
    "/api/movies",
    "/api/events",
    "/api/movies/0/pair/0",
    "/api/movies/0/image/0.png",
    "/api/nothing",
    "/x",
]
JSON = {"content-type": "application/json"}


def ask(app, path, *, method="GET", headers=None, chunks=(), query=f"token={TOKEN}"):
    """A request as it comes from the socket, for no client smoothes the path here.

    Returns status, headers, body, and how many chunks were read.
    """
    sent, left, begun = [], list(chunks), []

    async def receive():
        if begun and not left:
            await asyncio.sleep(
                3600
            )  # as a server does after the body, until the client is gone
        begun.append(True)
        return {
            "type": "http.request",
            "body": left.pop(0) if left else b"",
            "more_body": bool(left),
        }

    async def send(message):
        sent.append(message)

    given = {"host": HOST, **(headers or {})}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [
            (name.encode(), value.encode("latin-1")) for name, value in given.items()
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8017),
    }
    with no_loop():
        asyncio.run(app(scope, receive, send))
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], found, body, len(chunks) - len(left)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "query",
    ["", "token=", "token=wrong", f"token={TOKEN}x", f"token={TOKEN}&token=wrong"],
)
def test_no_or_a_wrong_token_is_refused(still, path, query):
    assert ask(still.app, path, query=query)[0] == 403


def test_query_with_too_many_fields_is_refused(still):
    fields = "&".join(f"field{k}=1" for k in range(50))
    assert ask(still.app, "/", query=f"token={TOKEN}&{fields}")[0] == 403


def test_a_wrong_token_in_the_header_is_refused(still):
    assert (
        ask(still.app, "/api/movies", query="", headers={"x-clew-token": "wrong"})[0]
        == 403
    )
    assert (
        ask(still.app, "/api/movies", query="", headers={"x-clew-token": "\xff"})[0]
        == 403
    )
    assert (
        ask(still.app, "/api/movies", query="", headers={"x-clew-token": TOKEN})[0]
        == 200
    )
    assert ask(still.app, "/api/movies")[0] == 200


def test_ticket_leads_to_the_token_until_the_page_is_open(still):
    """The arguments of the browser, which other users see, hold no token."""
    query = f"ticket={still.server.make_ticket()}"
    token = {"x-clew-token": TOKEN}
    older_tab = ask(still.app, "/api/movies", query="", headers=token)
    assert older_tab[0] == 200
    for _ in range(2):  # desktops may look before the browser does
        status, headers, *_ = ask(still.app, "/", query=query)
        assert (status, headers["location"]) == (303, f"?token={TOKEN}")
    assert ask(still.app, "/", query="ticket=")[0] == 403
    assert ask(still.app, "/", query="ticket=wrong")[0] == 403
    assert ask(still.app, "/api/movies", query=query)[0] == 403
    evil = {"host": "evil.example"}
    assert ask(still.app, "/", query=query, headers=evil)[0] == 403

    assert ask(still.app, "/api/movies", query="", headers=token)[0] == 200
    assert ask(still.app, "/", query=query)[0] == 403


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8017",
        "127.0.0.1",
        "127.0.0.1:80",
        "127.0.0.1:8017.x",
        "",
    ],
)
def test_another_host_is_refused(still, host):
    assert ask(still.app, "/api/movies", headers={"host": host})[0] == 403
    assert ask(still.app, "/static/main.js", headers={"host": host})[0] == 403


@pytest.mark.parametrize("query", [b"", f"token={TOKEN}".encode()])
def test_web_socket_is_closed(still, query):
    sent = []

    async def receive():
        return {"type": "websocket.connect"}

    async def send(message):
        sent.append(message)

    headers = [(b"host", HOST.encode())]
    scope = {"type": "websocket", "path": "/api/events", "headers": headers}
    with no_loop():
        asyncio.run(still.app(scope | {"query_string": query}, receive, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_own_hosts_are_served(still):
    assert ask(still.app, "/api/movies", headers={"host": "localhost:8017"})[0] == 200
    assert ask(still.app, "/api/movies", headers={"host": "LOCALHOST:8017"})[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": f"https://{HOST}"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_another_site_is_refused(page, headers):
    """Even with the token; nothing is stored."""
    good = answer_of(page)
    body = [json.dumps(good).encode()]
    assert (
        ask(page.app, ANSWERS, method="POST", headers=headers | JSON, chunks=body)[0]
        == 403
    )
    assert ask(page.app, "/api/movies", headers=headers)[0] == 403
    assert page.session.store.revision == 0
    own = {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}
    assert page.client.post(ANSWERS, json=good, headers=own).status_code == 200


def test_a_form_of_another_site_is_no_json(still):
    """Forms can send text without the browser asking first."""
    body = [json.dumps(answer_of(still)).encode()]
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert (
            ask(
                still.app,
                ANSWERS,
                method="POST",
                headers={"content-type": kind},
                chunks=body,
            )[0]
            == 400
        )
    assert still.session.store.revision == 0


@pytest.mark.parametrize(
    "path",
    [
        "/static/../security.py",
        "/static/%2e%2e/security.py",
        "/static/..%2fsecurity.py",
        "/static//etc/passwd",
        "/static/\x00",
        "/static/main.js\x00.png",
        "/static/..\\security.py",
        "/static/.",
        "/static/",
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/api/movies/../../etc",
        "/api/movies/0/image/../0.png",
        "/api/movies/0/image/%2e%2e.png",
        "/api/movies/0/export/../../etc/passwd",
        "/api/movies/0/export/%2e%2e",
        "/api/movies/-1/status",
        "/api/movies/1/status",
        "/api/movies/0/image/99999.png",
        "/api/movies/0/pair/13",
        "/api/movies/0/image/0",
        "/api/movies/0/image/x.png",
        "/api/movies/99999999999999999999999/status",
    ],
)
def test_what_leads_elsewhere_is_not_found(still, path):
    assert ask(still.app, path)[0] == 404


@pytest.mark.posix
def test_a_link_that_leads_out_is_not_found(serve, tmp_path):
    static, outside = tmp_path / "static", tmp_path / "secret.txt"
    static.mkdir()
    outside.write_text("secret")
    (static / "index.html").write_text("<!doctype html>")
    (static / "inside.js").write_text("1")
    (static / ".hidden").write_text("hidden")
    (static / "out.txt").symlink_to(outside)
    (static / "folder").symlink_to(tmp_path, target_is_directory=True)
    with serve(static=static) as page:
        for name in ("out.txt", "folder/secret.txt", ".hidden", "../secret.txt"):
            assert ask(page.app, f"/static/{name}")[0] == 404
        assert ask(page.app, "/static/inside.js", query="")[::2] == (200, b"1")
        assert ask(page.app, "/static/inside.js")[1]["content-type"].startswith(
            "text/javascript"
        )
        assert ask(page.app, "/")[::2] == (200, b"<!doctype html>")


def test_a_script_as_a_name_is_text(serve, simulated, source):
    name = "<script>alert(1)</script>"
    movie = Movie(
        name, simulated.movie.labels, simulated.movie.images, simulated.movie.spacing
    )
    with serve(movie=movie) as page:
        answer = page.client.get("/api/movies")
        assert answer.json()[0]["name"] == name
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert (
            "<"
            not in page.client.get("/api/movies/0/export/annotations.csv").headers[
                "content-disposition"
            ]
        )


def test_a_name_that_is_no_unicode_gets_through(serve, simulated):
    movie = Movie(
        "\udcff-01",
        simulated.movie.labels,
        simulated.movie.images,
        simulated.movie.spacing,
    )
    with serve(movie=movie) as page:
        assert page.client.get("/api/movies").json()[0]["name"] == "�-01"


def test_every_response_has_the_policy(page, monkeypatch):
    assert "default-src 'self'" in CONTENT_POLICY
    assert "unsafe" not in CONTENT_POLICY
    requests = [
        ("/api/movies", {}, 200),
        ("/api/movies/0/image/0.png", {}, 200),
        ("/api/movies", {"query": ""}, 403),
        ("/none", {}, 404),
        (ANSWERS, {}, 405),
        (ANSWERS, {"method": "POST"}, 400),
        (ANSWERS, {"method": "POST", "headers": {"content-length": "999999999"}}, 413),
    ]
    for path, given, status in requests:
        found = ask(page.app, path, **given)
        assert (found[0], found[1]["content-security-policy"]) == (
            status,
            CONTENT_POLICY,
        )
        assert found[1]["referrer-policy"] == "no-referrer"

    def fail(*_):
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr(views, "view_status", fail)
    fault = page.client.get("/api/movies/0/status")
    assert (fault.status_code, fault.headers["content-security-policy"]) == (
        500,
        CONTENT_POLICY,
    )
    assert "inside" not in fault.text


def test_a_body_that_says_it_is_too_large_is_not_read(still):
    headers = JSON | {"content-length": str(100 * 2**20)}
    found = ask(
        still.app, ANSWERS, method="POST", headers=headers, chunks=[b" " * 2**16] * 1600
    )
    assert found[0] == 413
    assert found[3] == 0


def test_a_body_that_does_not_say_so_is_read_to_the_limit(still):
    found = ask(
        still.app, ANSWERS, method="POST", headers=JSON, chunks=[b" " * 2**16] * 1600
    )
    assert found[0] == 413
    assert found[3] <= MAX_BODY // 2**16 + 1


@pytest.mark.parametrize("start", ["/api/movies/", "/static/", "/api/opening/"])
def test_path_of_endless_length_is_refused(still, start):
    """Python refuses to convert numbers of so many digits."""
    assert ask(still.app, f"{start}{'9' * 5000}/status")[0] == 414


@pytest.mark.parametrize("length", ["-1", "x", "1e3", "９"])
def test_a_length_that_is_none_is_refused(still, length):
    headers = JSON | {"content-length": length.encode().decode("latin-1")}
    assert ask(still.app, ANSWERS, method="POST", headers=headers)[0] == 400


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"1",
        b'"x"',
        b"\xff",
        b"[" * 100_000,
        b'{"frame": NaN}',
        b"\x00",
        b"null",
    ],
)
def test_malformed_json_is_refused(still, body):
    for path in (ANSWERS, "/api/movies/0/undo", "/api/movies/0/place"):
        assert (
            ask(still.app, path, method="POST", headers=JSON, chunks=[body])[0] == 400
        )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("key", ""),
        ("key", 1),
        ("key", None),
        ("key", "x" * 1000),
        ("key", "\x00"),
        ("revision", "0"),
        ("revision", True),
        ("revision", -1),
        ("revision", None),
        ("revision", 0.5),
        ("frame", -1),
        ("frame", 13),
        ("frame", 10**30),
        ("frame", "0"),
        ("event", "explode"),
        ("event", 0),
        ("event", []),
        ("event", "divide"),
        ("sources", []),
        ("sources", "5"),
        ("sources", [0]),
        ("sources", [10**6]),
        ("sources", [1, 2, 3]),
        ("sources", [True]),
        ("sources", {}),
        ("targets", [-1]),
        ("targets", [2**60]),
        ("targets", None),
        ("happened", 1),
        ("happened", "yes"),
        ("replace", None),
    ],
)
def test_an_answer_of_another_form_is_refused(still, field, value):
    answer = still.client.post(ANSWERS, json=answer_of(still) | {field: value})
    assert answer.status_code == 400
    assert answer.json()["error"]
    assert still.session.store.revision == 0


def answer_of(page):
    """What the page would send to confirm the first predicted move."""
    pair = page.client.get("/api/movies/0/pair/0").json()
    event = next(event for event in pair["events"] if event["event"] == "move")
    return {
        "key": "k1",
        "revision": 0,
        "frame": 0,
        "event": "move",
        "sources": event["sources"],
        "targets": event["targets"],
        "happened": True,
        "replace": False,
    }


def test_hosts_are_those_of_the_address_that_was_asked_for():
    with bind() as bound:
        port = bound.getsockname()[1]
        assert bound.getsockname()[0] == "127.0.0.1"
        assert allowed_addresses(bound) == [
            f"http://{name}:{port}" for name in ("127.0.0.1", "[::1]", "localhost")
        ]
        assert allowed_addresses(bound, scheme="https", public="https://lab/")[-2:] == [
            f"https://localhost:{port}",
            "https://lab/",
        ]
    with bind("0.0.0.0") as bound:
        port = bound.getsockname()[1]
        assert f"http://{socket.gethostname()}:{port}" in allowed_addresses(
            bound, "0.0.0.0"
        )


def test_an_address_that_leads_to_the_page_is_its_own(page):
    """A reverse proxy, or the end of a tunnel: its host and its origin, and those alone."""
    guard = SecurityMiddleware(
        page.app.app, TOKEN, [f"http://{HOST}", "https://lab.example/clew/"]
    )
    asked = {"host": "lab.example", "origin": "https://lab.example"}
    assert ask(guard, "/api/movies", headers=asked)[0] == 200
    for other in (
        {"origin": "http://lab.example"},
        {"host": "lab.example:80"},
        {"host": "evil.example"},
    ):
        assert ask(guard, "/api/movies", headers=asked | other)[0] == 403


@pytest.mark.parametrize(
    "address",
    [
        "lab.example",
        "ftp://lab.example/",
        "https://",
        "https://a@lab.example",
        "http://x/?q",
    ],
)
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(InputError, match="expected an address as in"):
        check_public(address)
    assert check_public("https://lab.example/clew") == "https://lab.example/clew/"


def test_a_certificate_that_is_none_is_refused(tmp_path):
    (tmp_path / "cert.pem").write_text("no certificate")
    with pytest.raises(InputError, match="--tls-cert"):
        Certificate(tmp_path / "cert.pem", tmp_path / "key.pem").check()
