"""Whom the console answers."""

from __future__ import annotations

from itertools import count

import pytest

from antiphon.console.guard import FAILURES_AT_MOST, SESSION_SECONDS, Guard
from antiphon.console.http_messages import CONTENT_SECURITY_POLICY, HttpRequest, as_json, parse_request

HOST = {"host": "127.0.0.1:7480"}
OWN = {**HOST, "x-antiphon-console": "1", "origin": "http://127.0.0.1:7480", "sec-fetch-site": "same-origin"}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def asked(path: str = "/api/run", method: str = "GET", **headers: str) -> HttpRequest:
    return HttpRequest(method, path, {}, {**HOST, **{name.replace("_", "-"): value for name, value in headers.items()}})


def guard(tokens: set[str] | None = None, clock: Clock | None = None) -> Guard:
    secrets = count()
    is_admin = None if tokens is None else tokens.__contains__
    return Guard(clock or Clock(), lambda: f"secret-{next(secrets)}", is_admin)


def status(found: Guard, request: HttpRequest) -> int:
    refusal = found.refusal(request)
    return 200 if refusal is None else refusal.status


def test_the_own_page_is_answered() -> None:
    assert status(guard(), asked()) == 200
    assert status(guard(), HttpRequest("POST", "/api/publish", {}, OWN)) == 200
    assert status(guard(), asked("/")) == 200


@pytest.mark.parametrize("name", ["evil.example:7480", "evil.example", "127.0.0.1.evil.example:7480", ""])
def test_a_foreign_name_of_this_machine_is_refused(name: str) -> None:
    assert status(guard(), HttpRequest("GET", "/api/run", {}, {"host": name})) == 403
    assert status(guard(), HttpRequest("GET", "/", {}, {"host": name})) == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:7481"},
    ],
)
def test_pages_of_other_sites_are_refused(headers: dict[str, str]) -> None:
    assert status(guard(), asked(**headers)) == 403


def test_a_form_of_another_site_changes_nothing() -> None:
    """A form may post to other sites, but it cannot set a header."""
    headers = {name: value for name, value in OWN.items() if name != "x-antiphon-console"}
    assert status(guard(), HttpRequest("POST", "/api/publish", {}, headers)) == 403


def test_other_methods_are_refused() -> None:
    assert status(guard(), HttpRequest("DELETE", "/api/run", {}, OWN)) == 405
    assert status(guard(), asked("/", "POST")) == 405


def test_a_session_begins_with_the_token_of_an_admin() -> None:
    found = guard({"right"})
    assert status(found, asked("/")) == 200
    assert status(found, asked()) == 401
    assert found.log_in("wrong").status == 403
    cookie = found.log_in("right").headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    session = cookie.partition(";")[0]
    assert "right" not in session
    assert status(found, asked(cookie=f"other=1; {session}")) == 200
    assert status(found, asked(cookie="antiphon-console=secret-7")) == 401
    found.log_out(asked(cookie=session))
    assert status(found, asked(cookie=session)) == 401


def test_a_session_ends_with_its_time_and_with_its_right() -> None:
    tokens, clock = {"right", "other"}, Clock()
    found = guard(tokens, clock)
    one, other = (found.log_in(token).headers["Set-Cookie"].partition(";")[0] for token in ("right", "other"))
    tokens.discard("other")
    assert status(found, asked(cookie=other)) == 401
    assert status(found, asked(cookie=one)) == 200
    clock.now += SESSION_SECONDS + 1
    assert status(found, asked(cookie=one)) == 401


def test_tokens_cannot_be_tried_out() -> None:
    clock = Clock()
    found = guard({"right"}, clock)
    for attempt in range(FAILURES_AT_MOST):
        assert found.log_in(f"guess {attempt}").status == 403
    assert found.log_in("right").status == 429
    clock.now += 61
    assert found.log_in("right").status == 200


def test_every_answer_keeps_other_sites_out() -> None:
    head = as_json({}).head(True).decode()
    assert f"Content-Security-Policy: {CONTENT_SECURITY_POLICY}\r\n" in head
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert "X-Content-Type-Options: nosniff" in head
    assert "Access-Control-Allow-Origin" not in head


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"hello\r\n\r\n",
        b"GET / SPDY/3\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost : a\r\n\r\n",
        b"GET / HTTP/1.1\r\nx\r\n\r\n",
    ],
)
def test_what_is_not_http_is_refused(head: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (the caller drops the connection without a word)
        parse_request(head)


def test_a_request_is_read() -> None:
    found = parse_request(b"GET /api/slice?from=-5&to=1e3 HTTP/1.1\r\nHost: localhost:1\r\nCookie: a=b\r\n\r\n")
    assert (found.path, found.integer("from", 0), found.integer("to", 0), found.integer("bins", 7)) == (
        "/api/slice",
        -5,
        1000,
        7,
    )
    assert found.cookie("a") == "b"
    assert found.cookie("b") == ""
