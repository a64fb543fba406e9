"""Proxies and private authorities: a real proxy and a CA of the test's own, on this machine."""

from __future__ import annotations

import base64
import datetime
import pickle
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import hsparse
from hsparse.cli.embedded_server import embedded_server
from hsparse.cli.main import main
from hsparse.client.connection import Connection
from hsparse.client.errors import InvalidValue, NotSignedIn, Unreachable
from hsparse.client.http.route import Proxy, proxy_for, trusted_authorities
from hsparse.config import load_settings

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "HSPARSE_CA_FILE")
NAME = "data.example"
"""A host that only the proxy knows: this machine's own names have no proxy."""
LOGIN = "ann:s%3Acret"
"""The user and password of the proxy, as in a URL."""
HEAD_END = b"\r\n\r\n"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@dataclass
class ForwardProxy:
    """A proxy that takes every host for this machine; `requests` are the first lines that it was sent."""

    port: int = 0
    requests: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://{LOGIN}@127.0.0.1:{self.port}"

    def serve(self, client: socket.socket) -> None:
        head = b""
        while HEAD_END not in head:
            data = client.recv(1 << 16)
            if not data:
                return
            head += data
        line, _, rest = head.partition(b"\r\n")
        self.requests.append(line.decode())
        method, target, _ = line.decode().split()
        login = base64.b64encode(b"ann:s:cret")
        if b"Proxy-Authorization: Basic " + login not in rest:
            client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return
        parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
        with socket.create_connection(("127.0.0.1", parts.port or 0)) as server:
            if method == "CONNECT":
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            else:  # one request a connection is enough, as no client may rely on more
                path = target.removeprefix(f"{parts.scheme}://{parts.netloc}")
                server.sendall(f"{method} {path} HTTP/1.1\r\nConnection: close\r\n".encode() + rest)
            back = threading.Thread(target=pipe, args=(server, client))
            back.start()
            pipe(client, server)
            back.join()


def pipe(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return


@contextmanager
def served(server: Any) -> Iterator[None]:
    thread = threading.Thread(target=partial(server.serve_forever, 0.01))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def proxy() -> Iterator[ForwardProxy]:
    made = ForwardProxy()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            made.serve(self.request)

    class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
        daemon_threads = True

    with (server := Server(("127.0.0.1", 0), Handler)), served(server):
        made.port = server.server_address[1]
        yield made


@dataclass(frozen=True)
class Authority:
    """A CA of its own: its certificate's file, and that of a server's key and certificate."""

    ca_file: Path
    server_file: Path


def certificate(
    subject: str, key: Any, issuer: str, issuer_key: Any, names: list[Any], *, complete: bool
) -> x509.Certificate:
    """Return a certificate; one that is `complete` has all extensions of RFC 5280."""
    now = datetime.datetime.now(datetime.UTC)
    subject_name, issuer_name = (
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one)]) for one in (subject, issuer)
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject_name)
        .issuer_name(issuer_name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=not names, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    if complete:
        of_issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        usage = dict.fromkeys(("digital_signature", "key_cert_sign"), True)
        others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign")
        others = (*others, "encipher_only", "decipher_only")
        for extension in (of_issuer, own):
            builder = builder.add_extension(extension, critical=False)
        if not names:
            builder = builder.add_extension(
                x509.KeyUsage(**usage, **dict.fromkeys(others, False)), critical=True
            )
    return builder.sign(issuer_key, hashes.SHA256())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("authority"), complete=True)


@pytest.fixture(scope="module")
def incomplete_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority without identifiers of keys, as many a private one is."""
    return make_authority(tmp_path_factory.mktemp("incomplete"), complete=False)


def make_authority(folder: Path, *, complete: bool) -> Authority:
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    names = [x509.DNSName(NAME), x509.IPAddress(ip_address("127.0.0.1"))]
    pem = serialization.Encoding.PEM
    made = Authority(folder / "ca.pem", folder / "server.pem")
    own = certificate("own CA", ca_key, "own CA", ca_key, [], complete=complete)
    made.ca_file.write_bytes(own.public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    servers = certificate("server", key, "own CA", ca_key, names, complete=complete)
    made.server_file.write_bytes(private + servers.public_bytes(pem))
    return made


@pytest.fixture
def tls_port(authority: Authority) -> Iterator[int]:
    with tls_server(authority) as port:
        yield port


@pytest.fixture
def incomplete_port(incomplete_authority: Authority) -> Iterator[int]:
    with tls_server(incomplete_authority) as port:
        yield port


@contextmanager
def tls_server(authority: Authority) -> Iterator[int]:
    """The port of a server with a certificate of the authority, for `NAME` and for this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"name": "%s"}' % self.headers["Host"].encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a client that does not trust it

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.server_file)
    with Server(("127.0.0.1", 0), Handler) as server, served(server):
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        yield server.server_address[1]


@pytest.fixture(scope="module")
def named_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of an hsparse server that answers as `NAME`."""
    settings = load_settings(root=tmp_path_factory.mktemp("named"), port=0, allowed_hosts=NAME)
    with embedded_server(settings) as url:
        yield urlsplit(url).port or 0


# --- proxies --------------------------------------------------------------------------------------


def test_a_domain_is_written_and_read_through_a_proxy(
    proxy: ForwardProxy, named_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    url = f"http://{NAME}:{named_port}/proxied.h5"
    with hsparse.open(url, "w") as file:
        file["x"] = np.arange(5)
    with hsparse.open(url) as file:
        assert file["x"][:].tolist() == [0, 1, 2, 3, 4]
    assert len(proxy.requests) >= 4
    assert all(one.split()[1].startswith(f"http://{NAME}:") for one in proxy.requests)


def test_a_command_goes_through_the_proxy(
    proxy: ForwardProxy, named_port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("http_proxy", proxy.url)
    assert main(["info", "--endpoint", f"http://{NAME}:{named_port}"]) == 0
    assert proxy.requests
    assert "hsparse" in capsys.readouterr().out


def test_https_goes_through_a_tunnel_and_the_certificate_is_the_servers(
    proxy: ForwardProxy, authority: Authority, tls_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    with Connection(f"https://{NAME}:{tls_port}", ca_file=authority.ca_file) as connection:
        assert connection.json("GET", "/") == {"name": f"{NAME}:{tls_port}"}
        assert connection.json("GET", "/") == {"name": f"{NAME}:{tls_port}"}
        copy = pickle.loads(pickle.dumps(connection))
        assert copy.json("GET", "/") == {"name": f"{NAME}:{tls_port}"}
        copy.close()
    assert proxy.requests[0].startswith(f"CONNECT {NAME}:{tls_port} ")


def test_this_machine_has_no_proxy_unless_it_is_given(
    proxy: ForwardProxy, embedded_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    with Connection(embedded_url) as connection:
        connection.json("GET", "/about")
    assert proxy.requests == []
    with Connection(embedded_url, proxy=proxy.url) as connection:
        connection.json("GET", "/about")
    assert proxy.requests == [f"GET {embedded_url}/about HTTP/1.1"]


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_without_its_password_is_named_but_not_what_was_given(
    proxy: ForwardProxy, scheme: str
) -> None:
    wrong = f"http://ann:hidden@127.0.0.1:{proxy.port}"
    with Connection(f"{scheme}://{NAME}:9", proxy=wrong) as connection:
        with pytest.raises((Unreachable, NotSignedIn), match="407 Proxy Authentication Required") as failed:
            connection.json("GET", "/")
        assert "hidden" not in str(failed.value) + repr(connection._pool.proxy)
        assert scheme == "http" or f"through the proxy 127.0.0.1:{proxy.port}" in str(failed.value)


@pytest.mark.parametrize(
    ("variables", "url", "port"),
    [
        ({"HTTPS_PROXY": "http://p:3128"}, f"https://{NAME}", 3128),
        ({"HTTPS_PROXY": "p:3128"}, f"https://{NAME}", 3128),
        ({"HTTPS_PROXY": "http://p"}, f"https://{NAME}", 80),
        ({"HTTPS_PROXY": "p:1", "https_proxy": "p:2"}, f"https://{NAME}", 2),
        ({"HTTPS_PROXY": "p:1", "https_proxy": ""}, f"https://{NAME}", None),
        ({"HTTPS_PROXY": "p:1"}, f"http://{NAME}", None),
        ({"HTTP_PROXY": "p:1"}, f"http://{NAME}", 1),
        ({"HTTP_PROXY": "p:1", "REQUEST_METHOD": "GET"}, f"http://{NAME}", None),
        ({"HTTP_PROXY": "p:1"}, "http://localhost:5101", None),
        ({"HTTP_PROXY": "p:1"}, "http://127.0.0.9:5101", None),
        ({"HTTP_PROXY": "p:1"}, "http://[::1]:5101", None),
        *(
            ({"HTTP_PROXY": "p:1", "NO_PROXY": excepted}, url, port)
            for excepted, url, port in [
                ("*", f"http://{NAME}", None),
                (f"other, {NAME.upper()}", f"http://{NAME}", None),
                ("example", f"http://{NAME}", None),
                (".example", f"http://{NAME}", None),
                ("*.example", f"http://{NAME}", None),
                ("ample", f"http://{NAME}", 1),
                (f"{NAME}:80", f"http://{NAME}", None),
                (f"{NAME}:81", f"http://{NAME}", 1),
                ("10.0.0.0/8", "http://10.1.2.3:5101", None),
                ("10.0.0.0/8", "http://11.1.2.3:5101", 1),
                ("10.1.2.3", "http://10.1.2.3", None),
                ("[fe80::1]:5101", "http://[fe80::1]:5101", None),
                ("fe80::/10,", "http://[fe80::1]:5101", None),
                ("", f"http://{NAME}", 1),
            ]
        ),
    ],
)
def test_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], url: str, port: int | None
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    parts = urlsplit(url)
    found = proxy_for(parts.scheme, parts.hostname or "", parts.port)
    assert (found and found.port) == port
    assert proxy_for(parts.scheme, parts.hostname or "", parts.port, "") is None


@pytest.mark.parametrize(
    "text", ["socks5://ann:hidden@p:1", "https://p:1", "http://ann:hidden@p:x", "http://"]
)
def test_other_proxies_are_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="give a URL http://host:port") as refused:
        Proxy.parse(text)
    assert "hidden" not in str(refused.value)


# --- certificates ---------------------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR", "HSPARSE_CA_FILE", None])
def test_a_private_authority_is_trusted(
    authority: Authority,
    tls_port: int,
    variable: str | None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = f"https://127.0.0.1:{tls_port}"
    given: dict[str, Any] = {}
    if variable is None:
        given["ca_file"] = str(authority.ca_file)
    elif variable == "SSL_CERT_DIR":  # named by the hash of its subject
        context = ssl.create_default_context(cafile=authority.ca_file)
        (tmp_path / f"{subject_hash(context)}.0").write_bytes(authority.ca_file.read_bytes())
        monkeypatch.setenv(variable, str(tmp_path))
    else:
        monkeypatch.setenv(variable, str(authority.ca_file))
    with Connection(url, **given) as connection:
        assert connection.json("GET", "/")
    flags = ["--ca-file", str(authority.ca_file)] if variable is None else []
    assert main(["info", "--endpoint", url, *flags]) == 0
    capsys.readouterr()


@pytest.fixture
def strict_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every Python check certificates as 3.13 and later do."""
    make = ssl.create_default_context

    def strict(*args: Any, **options: Any) -> ssl.SSLContext:
        context = make(*args, **options)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)


@pytest.mark.usefixtures("strict_checks")
@pytest.mark.parametrize("variable", ["HSPARSE_CA_FILE", None])
def test_an_authority_that_is_named_may_leave_out_extensions(
    incomplete_authority: Authority,
    incomplete_port: int,
    variable: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = str(incomplete_authority.ca_file)
    if variable is not None:
        monkeypatch.setenv(variable, path)
    given = {"ca_file": path} if variable is None else {}
    with Connection(f"https://127.0.0.1:{incomplete_port}", **given) as connection:
        assert connection.json("GET", "/")


@pytest.mark.usefixtures("strict_checks")
def test_an_incomplete_certificate_is_refused_with_the_remedy(
    incomplete_authority: Authority, incomplete_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(incomplete_authority.ca_file))
    said = r"lacks extensions that RFC 5280 requires \(Missing .* Key.*\): .* in ca_file= or HSPARSE_CA_FILE, which"
    with pytest.raises(InvalidValue, match=said):
        hsparse.open(f"https://127.0.0.1:{incomplete_port}/x.h5")


def subject_hash(context: ssl.SSLContext) -> str:
    """Return the name that OpenSSL looks for in a directory: of the canonical subject, in small letters."""
    (der,) = context.get_ca_certs(binary_form=True)
    name = x509.load_der_x509_certificate(der).subject
    canonical = x509.Name(
        [x509.NameAttribute(one.oid, str(one.value).lower(), _type=None) for one in name]
    ).public_bytes()
    digest = hashes.Hash(hashes.SHA1())
    digest.update(canonical[2:])  # without the head of the sequence
    return digest.finalize()[:4][::-1].hex()


def test_an_unknown_authority_is_refused_with_the_remedy_and_asked_once(tls_port: int) -> None:
    with pytest.raises(InvalidValue, match=r"is not trusted .* in ca_file= or HSPARSE_CA_FILE"):
        hsparse.open(f"https://127.0.0.1:{tls_port}/x.h5")


def test_a_certificate_for_another_host_is_refused(authority: Authority, tls_port: int) -> None:
    with (
        Connection(f"https://localhost:{tls_port}", ca_file=authority.ca_file) as connection,
        pytest.raises(InvalidValue, match="not trusted"),
    ):
        connection.json("GET", "/")


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_a_file_without_certificates_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidValue, match=r"ca\.pem has no PEM certificates"):
        trusted_authorities(path)
