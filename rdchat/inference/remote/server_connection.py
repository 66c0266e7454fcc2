"""HTTP with a remote server: JSON answers and streamed replies, within limits of time and size.

A server is foreign: whatever it sends, the result is an answer or a RdchatError with its own words in it. Importing
this module takes a quarter of a second.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2
from socksio import SOCKSError

from rdchat import __version__
from rdchat.errors import ModelError, NetworkError, PromptTooLongError, RdchatError, UntrustedCertificateError, one_line
from rdchat.files import as_text, json_or_none
from rdchat.host import local_network_hint
from rdchat.hub.hub_api import tls_context
from rdchat.inference.api import EXAMPLE, RemoteServer, fingerprint_of, is_address, parsed_json

# Time for a connection, and for a short answer.
_CONNECT_S = 15.0
_SHORT_S = 30.0
# A server may read a long prompt before it sends anything.
_SILENT_S = 600.0
# Limits of a short answer, of a streamed one, and of one line of it.
_SHORT_BYTES = 4 * 2**20
_REPLY_BYTES = 64 * 2**20
_LINE_BYTES = 4 * 2**20
# Characters of a server's own words in an error.
_MAX_QUOTED = 300
# OpenSSL's codes for a certificate that is not valid yet, or no longer.
_OUT_OF_DATE = {9, 10}
DONE: dict[str, Any] = {}
"""What `Connection.events` yields for `[DONE]`, the line with which a server says that its reply is complete."""
_REACH = "Check that it runs and that the address is right."


@dataclass(frozen=True, slots=True)
class Connection:
    """Sends requests to one server, with its key; each request has a connection of its own.

    The methods that send raise RdchatError where there is no answer, a refusal, or an answer beyond the limits.

    Attributes:
        server: The server.
        key: Its key; empty for none.
    """

    server: RemoteServer
    key: str = ""

    def read_json(self, path: str) -> Any:
        """Return the JSON at a path, such as `/v1/models`. It waits for the answer, at most half a minute."""

        async def read() -> bytes:
            async with asyncio.timeout(_SHORT_S), self._response("GET", path) as response:
                return await self._body(response)

        try:
            parsed = json_or_none(asyncio.run(read()))
        except TimeoutError as error:
            raise NetworkError(f"{self.server.host} takes too long to answer.", _REACH) from error
        if parsed is None:
            raise self.stranger()
        return parsed

    async def events(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Send a request, and yield the JSON objects of the streamed answer, up to `[DONE]` (`DONE`) or its end."""
        async with self._response("POST", path, body) as response:
            if response.headers.get("content-type", "").partition(";")[0].strip().lower() != "text/event-stream":
                raise self.stranger(_quoted(_parsed(await self._body(response))))
            line = bytearray()
            received = 0
            async for data in response.aiter_raw():
                received += len(data)
                # `line` has the beginning of a line whose end comes with other data.
                *line_ends, beginning = data.split(b"\n")
                for line_end in line_ends:
                    field, _, value = bytes(line + line_end).strip().partition(b":")
                    line.clear()
                    if field == b"data" and value.strip() == b"[DONE]":
                        yield DONE
                        return
                    if field == b"data":
                        yield self._event(value)
                line += beginning
                if received > _REPLY_BYTES or len(line) > _LINE_BYTES:
                    raise NetworkError(f"{self.server.host} sends more than a reply can have.", "Try another model.")

    def stopped(self, reason: str = "") -> RdchatError:
        """Return the error for a reply that ends too early, with the server's reason if it gives one."""
        if reason:
            return ModelError(
                f"{self.server.host} broke off the reply: {one_line(reason)[:_MAX_QUOTED]}.", "Try again."
            )
        return NetworkError(f"{self.server.host} stopped answering.", "Try again; check that the server still runs.")

    def stranger(self, reason: str = "") -> ModelError:
        """Return the error for an answer that is none of OpenAI's API; `reason` is a sentence with its own words."""
        hint = f"Give the address up to /v1, such as {EXAMPLE}."
        return ModelError(f"{self.server.host} does not answer as an OpenAI-compatible server.{reason}", hint)

    def _event(self, data: bytes) -> dict[str, Any]:
        """Return the JSON object of a line; raise RdchatError for another line, or the server's error."""
        if not isinstance(event := json_or_none(data), dict):
            raise self.stranger()
        if event.get("error") or event.get("object") == "error":
            raise self._refusal(500, event)
        return event

    @asynccontextmanager
    async def _response(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request and give its answer, which has status 200; the body is not read yet."""
        # Set by `as response` below, once there is an answer: an error is then one in the middle of it.
        response = None
        # Half a character, which no UTF-8 can have, becomes a question mark.
        content = None if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        headers = {"User-Agent": f"rdchat/{__version__}", "Accept-Encoding": "identity"}
        headers |= {"Content-Type": "application/json"} if content else {}
        headers |= {"Authorization": f"Bearer {self.key}"} if self.key else {}
        try:
            async with httpx2.AsyncClient(
                verify=await self._tls(),
                timeout=httpx2.Timeout(_SILENT_S, connect=_CONNECT_S),
                # A proxy from the environment is used only for servers whose certificates the system trusts.
                trust_env=self.server.address.startswith("https:") and not self.server.fingerprint,
            ) as client:
                address = f"{self.server.address}{path}"
                request = client.build_request(method, address, content=content, headers=headers)
                async with aclosing(await client.send(request, stream=True)) as response:
                    await self._check(response)
                    yield response
        except httpx2.ConnectError as error:
            raise await self._unreachable(error) from error
        # An address may be invalid too: a ValueError.
        except (httpx2.TransportError, httpx2.StreamError, SOCKSError, ValueError) as error:
            if response is not None:
                raise self.stopped() from error
            raise NetworkError(f"{self.server.host} does not answer.", _REACH) from error

    async def _tls(self) -> ssl.SSLContext:
        """Return the TLS settings. With a fingerprint, they accept the one certificate that has it, and no other.

        That is checked before a request is sent, on a connection of its own; the request's connection must then show
        the same certificate.
        """
        if not self.server.fingerprint:
            return tls_context()
        certificate = await self._certificate()
        if fingerprint_of(certificate) != self.server.fingerprint:
            raise self._changed()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(cadata=certificate)
        return context

    async def _certificate(self) -> str:
        """Return the certificate that the server shows, unchecked, in PEM."""
        parts = urlsplit(self.server.address)
        unchecked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        unchecked.check_hostname = False
        unchecked.verify_mode = ssl.CERT_NONE
        try:
            # On the event loop, since a thread cannot be stopped: Stop would have to wait for it.
            async with asyncio.timeout(_CONNECT_S):
                _, writer = await asyncio.open_connection(
                    parts.hostname, parts.port or 443, ssl=unchecked, all_errors=True
                )
        except (OSError, ExceptionGroup) as error:
            raise self._no_connection(error) from error
        presented = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.transport.abort()
        return ssl.DER_cert_to_PEM_cert(presented)

    async def _unreachable(self, error: httpx2.ConnectError) -> NetworkError:
        """Return the error for a connection that was not made."""
        # Found by its type, because on macOS the text is the system's own.
        refusal = next((each for each in _causes(error) if isinstance(each, ssl.SSLCertVerificationError)), None)
        if refusal is None:
            return self._no_connection(error)
        host = self.server.host
        if self.server.fingerprint and refusal.verify_code in _OUT_OF_DATE:
            return NetworkError(f"The certificate of {host} is no longer valid.", "Make a new one on the server.")
        if self.server.fingerprint:
            return self._changed()
        hint = "If it is your own server, accept it by its fingerprint, which `rdchat serve` prints."
        text = f"This computer does not trust the certificate of {host}."
        return UntrustedCertificateError(text, hint, fingerprint_of(await self._certificate()))

    def _changed(self) -> NetworkError:
        """Return the error for another certificate than the accepted one."""
        text = f"{self.server.host} has another certificate than the one you accepted, so nothing was sent."
        return NetworkError(text, "If you changed it there, remove the server in rdchat and add it again.")

    def _no_connection(self, error: Exception) -> NetworkError:
        hint = next(filter(None, map(local_network_hint, _causes(error))), "")
        return NetworkError(f"{self.server.host} cannot be reached.", _REACH + hint)

    async def _check(self, response: httpx2.Response) -> None:
        """Raise RdchatError for an answer that is a redirect, a refusal or compressed."""
        host = self.server.host
        target = response.headers.get("location", "")
        if 300 <= response.status_code < 400:
            other = urlsplit(target).netloc if is_address(target) else "another address"
            raise NetworkError(f"{host} redirects to {other[:100]}; nothing went there.", "Add that address instead.")
        if response.headers.get("content-encoding", "identity") != "identity":
            raise self.stranger()
        if response.status_code != 200:
            body = await self._body(response)
            raise self._refusal(response.status_code, _parsed(body))

    async def _body(self, response: httpx2.Response) -> bytes:
        body = bytearray()
        async for data in response.aiter_raw():
            body += data
            if len(body) > _SHORT_BYTES:
                raise NetworkError(f"{self.server.host} answers with more than {_SHORT_BYTES // 2**20} MB.", _REACH)
        return bytes(body)

    def _refusal(self, status: int, answer: object) -> RdchatError:
        """Return the error for a refusal, with the server's own words where it has some."""
        host = self.server.host
        reason = _quoted(answer)
        if status in {401, 403}:
            text = f"{host} refused the key." if self.key else f"{host} needs a key."
            return ModelError(f"{text}{reason}", "Add the server again, with the key that it has.")
        match answer:
            case {"error": {"code": "context_length_exceeded"}}:
                return PromptTooLongError(f"This chat is too long for the model on {host}.{reason}")
            case {"error": _} | {"message": _}:
                # An API's own words, also with 404.
                pass
            case _ if status == 404:
                # No API has this path: the address is wrong.
                return self.stranger(reason)
        if status in {429, 503}:
            return NetworkError(f"{host} is busy.{reason}", "Try again soon.")
        happened = "failed" if status >= 500 else f"refused the request ({status})"
        return ModelError(f"{host} {happened}.{reason}")


def _parsed(body: bytes) -> object:
    """Return the JSON of an answer, or its text."""
    text = body.decode(errors="ignore")
    return parsed_json(text) or text


def _quoted(message: object) -> str:
    """Return a sentence with what a refusal says; empty for a page of HTML.

    Args:
        message: The refusal as JSON, or its text. Its words are in one of the usual fields, perhaps inside another one;
            where there is none, all of it is quoted.
    """
    # From the outside in: `message` may stand beside these fields, or inside of the one that was found.
    for field in ("message", "error", "detail", "message", "msg"):
        if isinstance(message, dict) and message.get(field):
            message = message[field]
    text = as_text(message)
    line = "" if text.lstrip().startswith("<") else one_line(text)[:_MAX_QUOTED]
    return f" It says: {line}" if line else ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, those of its group, and those that caused it."""
    while error is not None:
        yield error
        for each in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
            yield from _causes(each)
        error = error.__cause__ or error.__context__
