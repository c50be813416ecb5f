"""Ports, the broker's PING and the site's /readyz, with the standard library."""

from __future__ import annotations

import http.client
import socket
from urllib.parse import unquote, urlsplit

from launcher.console import Refusal

TIMEOUT = 3.0  # seconds for one question


def require_free(host: str, port: int) -> None:
    """Raise ``Refusal`` if the site could not listen there."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
    except socket.gaierror as error:
        raise Refusal(f"{host} is no address of this machine.", "Use --host 127.0.0.1 or --host 0.0.0.0.") from error
    except PermissionError as error:
        raise Refusal(f"port {port} is reserved for root.", "Take a port from 1024 on: --port 8000.") from error
    except OSError as error:
        raise Refusal(
            f"port {port} of {host} cannot be had ({error.strerror}).",
            f"Stop the program that has it, or take another: --port {port + 1 if port < 65535 else 8000}.",
        ) from error


def free_port() -> int:
    """A port of the loopback interface that is free now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def broker_answers(url: str) -> str:
    """Empty if the server at ``redis://[user][:password]@host:port/db`` says PONG, else what it or the system said."""
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "localhost", parts.port or 6379), TIMEOUT) as connection:
            if parts.password:
                credentials = [unquote(text) for text in (parts.username, parts.password) if text]
                connection.sendall(_command("AUTH", *credentials))
            connection.sendall(_command("PING"))
            answers = b""
            while answers.count(b"\r\n") < (2 if parts.password else 1):
                if not (data := connection.recv(4096)):
                    return "the connection was closed"
                answers += data
    except OSError as error:
        return error.strerror or str(error)
    bad = [line.decode(errors="replace")[1:] for line in answers.splitlines() if line not in (b"+OK", b"+PONG")]
    return "; ".join(bad)


def _command(*words: str) -> bytes:
    """A command in the Redis protocol (RESP): an array of bulk strings."""
    parts = [f"*{len(words)}\r\n".encode()]
    for word in words:
        parts.append(f"${len(word.encode())}\r\n{word}\r\n".encode())
    return b"".join(parts)


def get(host: str, port: int, path: str) -> tuple[int, str]:
    """Status and body of a page of the site; (0, reason) if there is no answer."""
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT * 2)
    try:
        connection.request("GET", path, headers={"Host": f"localhost:{port}"})
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error)
    finally:
        connection.close()
