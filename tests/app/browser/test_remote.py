"""The page behind a reverse proxy, with its stream of events, through a tunnel, and by TLS."""

import contextlib
import http.client
import shutil
import socket
import socketserver
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.app.browser.conftest import ServedHere, open_tab

PATH = "/lab/clew/"


class Proxy(BaseHTTPRequestHandler):
    """Hands what lies below a path on to another server, and its reply back as it comes."""

    protocol_version = "HTTP/1.1"

    def handle_one(self):
        if not self.path.startswith(PATH):
            self.send_error(404)
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        upstream = http.client.HTTPConnection(
            "127.0.0.1", self.server.behind, timeout=60
        )
        upstream.request(
            self.command, "/" + self.path.removeprefix(PATH), body, dict(self.headers)
        )
        reply = upstream.getresponse()
        self.send_response(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in (
                "transfer-encoding",
                "connection",
                "content-length",
            ):
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        while part := reply.read1(65536):
            self.wfile.write(part)
            self.wfile.flush()
        self.close_connection = True

    do_GET = do_POST = handle_one  # noqa: N815

    def log_message(self, *_):
        pass


@pytest.fixture
def proxy():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


def test_the_page_works_below_a_path_of_another_server(browser, proxy, solid, tmp_path):
    public = f"http://127.0.0.1:{proxy.server_port}{PATH}"
    served = ServedHere(
        [solid], "--public", public, "--store", str(tmp_path / "answers.clewdb")
    )
    proxy.behind = served.port
    try:
        assert served.address.startswith(public)
        person = open_tab(browser)
        other = open_tab(browser)
        for one in (person, other):
            one.page.goto(served.address)
            one.page.wait_for_selector('#question:not([data-key=""])[data-key]')
            one.page.wait_for_selector("[data-action=yes]:not(:disabled)")
        person.press("y")
        person.saved()
        other.until_annotated(1)  # told through the proxy, too
        assert person.complaints == other.complaints == []
    finally:
        served.stop()


class Tunnel(socketserver.BaseRequestHandler):
    """Hands bytes on in both directions, as `ssh -L` does with its near end."""

    def handle(self):
        with socket.create_connection(("127.0.0.1", self.server.behind)) as far:
            back = threading.Thread(target=pump, args=(far, self.request), daemon=True)
            back.start()
            pump(self.request, far)
            back.join()


def pump(one, other):
    with contextlib.suppress(OSError):
        while part := one.recv(65536):
            other.sendall(part)
        other.shutdown(socket.SHUT_WR)


def test_the_page_at_the_near_end_of_a_tunnel_with_another_port(
    browser, solid, tmp_path
):
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Tunnel) as tunnel:
        tunnel.daemon_threads = True
        threading.Thread(target=tunnel.serve_forever, daemon=True).start()
        public = f"http://localhost:{tunnel.server_address[1]}/"
        served = ServedHere(
            [solid], "--public", public, "--store", str(tmp_path / "answers.clewdb")
        )
        tunnel.behind = served.port
        try:
            assert served.address.startswith(public)
            person = open_tab(browser)
            person.open(served.address)
            person.press("y")
            person.saved()
            person.until_annotated(1)
            assert person.complaints == []
        finally:
            served.stop()
            tunnel.shutdown()


@pytest.mark.skipif(
    shutil.which("openssl") is None, reason="a certificate is made with openssl"
)
def test_the_page_by_tls(browser, solid, tmp_path):
    names = [tmp_path / name for name in ("key.pem", "cert.pem")]
    make = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    said = [
        "-subj",
        "/CN=127.0.0.1",
        "-days",
        "2",
        "-keyout",
        str(names[0]),
        "-out",
        str(names[1]),
    ]
    subprocess.run([*make, *said], check=True, capture_output=True)
    files = ["--tls-key", str(names[0]), "--tls-cert", str(names[1])]
    served = ServedHere([solid], *files, "--store", str(tmp_path / "answers.clewdb"))
    try:
        assert served.address.startswith(f"https://127.0.0.1:{served.port}/")
        person = open_tab(browser, ignore_https_errors=True)
        person.open(served.address)
        person.press("y")
        person.saved()
        person.until_annotated(1)
        assert person.complaints == []
        plain = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
        plain.request("GET", "/")
        with pytest.raises(
            (http.client.HTTPException, ConnectionError)
        ):  # nothing is told in the clear
            plain.getresponse()
    finally:
        served.stop()
