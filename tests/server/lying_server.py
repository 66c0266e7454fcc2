"""A server that answers with given bytes, whatever it is asked."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Write = Callable[[Callable[[bytes], object]], object]


@contextmanager
def lying_server(*answers: bytes | Write) -> Iterator[tuple[str, list[bytes]]]:
    """Give an address, and the requests that come; the last answer is given again and again."""
    listener = socket.create_server(("127.0.0.1", 0))
    requests = list[bytes]()
    left = list(answers)

    def run() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client, suppress(OSError):
                    requests.append(_request(client))
                    answer = left.pop(0) if len(left) > 1 else left[0]
                    if callable(answer):
                        answer(client.sendall)
                    else:
                        client.sendall(answer)
                    client.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", requests
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(60)
        assert not thread.is_alive()


def _request(client: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += client.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    sizes = [line.partition(b":")[2] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while sizes and len(body) < int(sizes[0]):
        body += client.recv(65536)
    return head + b"\r\n\r\n" + body


def answer(body: bytes, kind: str = "application/json", status: str = "200 OK", more: str = "") -> bytes:
    """Return an answer that ends with its connection."""
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{more}Connection: close\r\n\r\n".encode() + body
