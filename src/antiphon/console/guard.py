"""Decides about each request of a browser whether it is answered.

Three attackers are kept out. A page of another site cannot ask: browsers say where a request comes from, requests that
change something carry a header that other sites may not set, and the session's cookie is never sent from other sites.
A name of another site that points to this machine does not help either: the server answers to its own names alone. And
where other machines can connect, or a file says which client may do what, a session begins with the token of a client
that is an admin. Pure but for the clock and the random numbers that it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from antiphon.console.http_messages import HttpAnswer, HttpRequest, as_json, refused

SESSION_SECONDS: Final = 12 * 3600.0
SESSIONS_AT_MOST: Final = 64
FAILURES_AT_MOST: Final = 10
"""So many wrong tokens within ``FAILURE_SECONDS``, from everywhere together, and no further one is looked at."""

FAILURE_SECONDS: Final = 60.0
OWN_HEADER: Final = "x-antiphon-console"
COOKIE: Final = "antiphon-console"
LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")

LOGIN_PATH: Final = "/api/login"
LOGOUT_PATH: Final = "/api/logout"


class Guard:
    """Knows the sessions of one server.

    ``is_admin`` says whether a token is that of an admin; None lets everybody in, who must be on this machine.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        make_secret: Callable[[], str],
        is_admin: Callable[[str], bool] | None = None,
        has_tls: bool = False,
        is_local: bool = True,
    ) -> None:
        self._clock = clock
        self._make_secret = make_secret
        self._is_admin = is_admin
        self._has_tls = has_tls
        self._is_local = is_local
        # The token of each session is asked again each time, so that a right that is taken ends the session.
        self._sessions: dict[str, tuple[float, str]] = {}
        self._failures: list[float] = []

    @property
    def asks_for_token(self) -> bool:
        """Whether a session begins with a token."""
        return self._is_admin is not None

    def refusal(self, request: HttpRequest) -> HttpAnswer | None:
        """Why a request is not answered; None if it is."""
        stranger = self._stranger(request)
        if stranger is not None:
            return stranger
        is_page = not request.path.startswith("/api/")
        if is_page or request.path in (LOGIN_PATH, LOGOUT_PATH) or self._is_admin is None:
            return None
        if self._has_session(request):
            return None
        return refused(401, "this console asks for the token of a client with the right admin")

    def _stranger(self, request: HttpRequest) -> HttpAnswer | None:
        """Why a request cannot be one of our own page."""
        host = request.headers.get("host", "")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        is_page = not request.path.startswith("/api/")
        if self._is_local and name not in LOOPBACK_NAMES:
            return refused(403, "this console answers to 127.0.0.1 and localhost")
        if request.method not in ({"GET", "HEAD"} if is_page else {"GET", "POST"}):
            return refused(405, "pages are read, and questions are asked with GET and POST")
        if is_page:
            return None
        has_own_origin = request.headers.get("origin") in {None, f"{'https' if self._has_tls else 'http'}://{host}"}
        if not has_own_origin or request.headers.get("sec-fetch-site", "none") not in {"same-origin", "none"}:
            return refused(403, "a page of another site asked")
        if request.method == "POST" and request.headers.get(OWN_HEADER) != "1":
            return refused(403, "a request that changes something comes from the console's own page")
        return None

    def _has_session(self, request: HttpRequest) -> bool:
        found = self._sessions.get(request.cookie(COOKIE))
        if found is None or self._is_admin is None:
            return False
        ends, token = found
        if ends < self._clock() or not self._is_admin(token):
            del self._sessions[request.cookie(COOKIE)]
            return False
        return True

    def token_of(self, request: HttpRequest) -> str:
        """The token with which the session of a request began; empty where none is asked for."""
        return self._sessions.get(request.cookie(COOKIE), (0.0, ""))[1]

    def log_in(self, token: str) -> HttpAnswer:
        """Begin a session, or say that the token is not that of an admin."""
        if self._is_admin is None:
            return as_json({"ok": True})
        now = self._clock()
        self._failures = [each for each in self._failures if each > now - FAILURE_SECONDS]
        if len(self._failures) >= FAILURES_AT_MOST:
            return refused(429, "too many wrong tokens; wait a minute")
        if not token or not self._is_admin(token):
            self._failures.append(now)
            return refused(403, "this is not the token of a client with the right admin")
        while len(self._sessions) >= SESSIONS_AT_MOST:
            del self._sessions[next(iter(self._sessions))]
        secret = self._make_secret()
        self._sessions[secret] = now + SESSION_SECONDS, token
        return as_json({"ok": True}, headers={"Set-Cookie": self._cookie(secret, int(SESSION_SECONDS))})

    def log_out(self, request: HttpRequest) -> HttpAnswer:
        """End a session."""
        self._sessions.pop(request.cookie(COOKIE), None)
        return as_json({"ok": True}, headers={"Set-Cookie": self._cookie("", 0)})

    def _cookie(self, value: str, seconds: int) -> str:
        secure = "; Secure" if self._has_tls else ""
        return f"{COOKIE}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
