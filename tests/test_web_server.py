"""`diamond web` answers this machine alone, with what it serves and nothing else."""

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from diamond_attention.command_line import run_command
from diamond_attention.errors import UserError
from diamond_attention.web.live_page import LIVE_POLICIES, live_answers, live_files
from diamond_attention.web.server import HOST, Answer, RefusedError, Server

DOCS = Path(__file__).parents[1] / "docs" / "live"


@contextmanager
def serving(answers):
    with Server(answers, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def asked(port, address, host=None, method="GET", **headers):
    """Status, headers and body; the address goes out as it is, not tidied up."""
    connection = http.client.HTTPConnection(HOST, port, timeout=20)
    connection.putrequest(method, address, skip_host=True)
    for name in [f"{HOST}:{port}"] if host is None else [host] if isinstance(host, str) else host:
        connection.putheader("Host", name)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, answer.headers, body


@pytest.fixture(scope="module")
def live():
    with serving(live_answers) as port:
        yield port


def test_every_file_of_the_page_is_served_with_its_type(live):
    for name, file in live_files():
        status, headers, body = asked(live, f"/{name}")
        assert (status, body) == (200, file.read_bytes()), name
        if name.endswith(".js"):
            assert headers["Content-Type"].startswith("text/javascript")  # else a browser refuses modules
    assert asked(live, "/")[2] == asked(live, "/index.html?x=1")[2]
    assert asked(live, "/", method="HEAD")[2] == b""
    assert {"xor-commitments", "spread"} <= set(LIVE_POLICIES)


def test_the_page_names_no_other_site_and_only_files_that_are_there():
    served = dict(live_files())
    for name, file in served.items():
        if not name.endswith((".html", ".js", ".css")):
            continue
        text = file.read_text()
        assert not re.search(r"https?://(?!www\.w3\.org)", text), name
        for other in re.findall(r'(?:from "|src="|href=")(?:\./)?([\w.]+)"', text):
            assert other in served, f"{name} wants {other}"


def test_the_folder_in_docs_is_the_page_by_links_and_no_copies():
    links = {path.relative_to(DOCS).as_posix(): path for path in DOCS.rglob("*") if not path.is_dir()}
    assert links.keys() == dict(live_files()).keys()
    for name, file in live_files():
        assert links[name].read_bytes() == file.read_bytes(), name
        if (DOCS.parents[1] / ".git").exists():  # a source archive holds plain files in place of links
            assert not os.path.isabs(os.readlink(links[name])), name
            assert links[name].resolve() == file.resolve(), name


def test_the_page_is_written_as_plain_files_for_any_web_server(tmp_path, capsys):
    folder = tmp_path / "new" / "page"
    assert run_command(["web", "--to", str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder}\n"
    written = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if not path.is_dir()}
    assert written.keys() == dict(live_files()).keys()
    for name, file in live_files():
        assert not written[name].is_symlink()
        assert written[name].read_bytes() == file.read_bytes()
    assert [path.name for path in folder.parent.iterdir()] == ["page"]


def test_a_page_is_written_over_nothing(tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("mine", "file", "link"):
        assert run_command(["web", "--to", str(tmp_path / name)]) == 2
        assert capsys.readouterr().err == (
            f"diamond: --to is {tmp_path / name}, which already exists; name a new folder.\n"
        )
    assert (tmp_path / "mine" / "index.html").read_text() == (tmp_path / "file").read_text() == "mine"
    assert run_command(["web", "--to", str(tmp_path / "file" / "page")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert run_command(["web", str(tmp_path), "--to", str(tmp_path / "page")]) == 2
    assert "leave RUNS out, or --to." in capsys.readouterr().err
    assert not (tmp_path / "page").exists()


@pytest.mark.parametrize(
    "address",
    [
        "/../pyproject.toml",
        "/..%2f..%2fpyproject.toml",
        "/%2e%2e/server.py",
        "//etc/passwd",
        "/policies/../../server.py",
        "/policies/spread/../../shipped/spread/policy.json",
        "/main.js%00.html",
        "/live_page.py",
        "/policies",
        "/" + "a" * 5000,
    ],
)
def test_nothing_else_is_served(live, address):
    status, _, body = asked(live, address)
    assert (status, body) == (404, b"there is nothing at this address.")


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1:1", "", "127.0.0.1.evil.example:{port}", "[::1]:{port}"],
)
def test_who_names_another_host_is_refused(live, host):
    """So that a page elsewhere, whose name leads here, reads nothing."""
    assert asked(live, "/", host.format(port=live))[0] == 403


def test_one_host_is_named_and_it_is_this_machine(live):
    assert asked(live, "/", f"localhost:{live}")[0] == 200
    assert asked(live, "/", f"LOCALHOST:{live}")[0] == 200
    assert asked(live, "/", [f"localhost:{live}", "evil.example"])[0] == 403
    assert asked(live, "/", [])[0] == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(live, method):
    assert asked(live, "/", method=method)[0] == 501


def test_what_can_be_put_right_is_said_and_what_is_not_there_is_not_there():
    def answers(address):
        raise UserError("put it right.") if address == "wrong" else RefusedError

    with serving(answers) as port:
        assert asked(port, "/wrong")[::2] == (409, b"put it right.")
        assert asked(port, "/else")[0] == 404


@pytest.mark.parametrize(
    ("wanted", "status", "part", "said"),
    [
        ("bytes=0-", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=0-0", 206, b"0", "bytes 0-0/10"),
        ("bytes=3-5", 206, b"345", "bytes 3-5/10"),
        ("bytes=7-99", 206, b"789", "bytes 7-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=10-", 416, b"", "bytes */10"),
        ("bytes=-0", 416, b"", "bytes */10"),
        ("bytes=5-3", 200, b"0123456789", None),
        ("bytes=0-1,4-5", 200, b"0123456789", None),
        ("bytes=-", 200, b"0123456789", None),
        ("lines=1-2", 200, b"0123456789", None),
        ("bytes=" + "9" * 30 + "-", 200, b"0123456789", None),
    ],
)
def test_a_part_of_a_film_can_be_asked_for(wanted, status, part, said):
    with serving(lambda _: Answer(b"0123456789", "video/mp4")) as port:
        found, headers, body = asked(port, "/film.mp4", Range=wanted)
        assert (found, body, headers["Content-Range"]) == (status, part, said)
        assert (headers["Accept-Ranges"], headers["Content-Length"]) == ("bytes", str(len(part)))
        # A length alone, and a part of what may be another film by now, are of the whole.
        assert asked(port, "/film.mp4", method="HEAD", Range=wanted)[0] == 200
        assert asked(port, "/film.mp4", Range=wanted, If_Range='"then"')[::2] == (200, b"0123456789")


def test_a_part_of_what_is_not_there_is_not_there(live):
    assert asked(live, "/nothing", Range="bytes=0-1")[::2] == (404, b"there is nothing at this address.")


def test_a_port_in_use_is_one_sentence(capsys):
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run_command(["web", "--port", str(port)]) == 2
    assert capsys.readouterr().err == (
        f"diamond: --port is {port}, which is in use; name another, or 0 for any that is free.\n"
    )


def test_it_listens_to_this_machine_alone(live):
    with pytest.raises(ConnectionRefusedError):  # another address of this machine, as others would reach it
        socket.create_connection(("127.0.0.2", live), timeout=5)


def test_the_command_says_its_address_and_ends_with_ctrl_c():
    words = [sys.executable, "-m", "diamond_attention", "web", "--port", "0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        said = process.stdout.readline()
        port = int(re.match(r"http://127\.0\.0\.1:(\d+)/", said)[1])
        assert b"<title>Diamond Attention" in asked(port, "/")[2]
        # Somebody who keeps a connection open does not keep it alive.
        with socket.create_connection((HOST, port)):
            time.sleep(0.1)
            os.kill(process.pid, signal.SIGINT)
            assert process.wait(20) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
