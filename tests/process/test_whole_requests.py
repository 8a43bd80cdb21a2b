"""A request reaches its thread when it is whole, and what is sent to nobody's name is not read."""

import socket
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.db import connections

from billing.api.admission import gate
from billing.api.whole_requests import FROM_ANYBODY, PIECE, WholeRequests
from billing.tenancy.tokens import api_token_create
from tests.factories.servers import heard_until_closed, served, until

LARGE = bytes(range(256)) * 300
pytestmark = pytest.mark.django_db(transaction=True)


class Application:
    """WSGI: notes each request, and answers what a test chose, or how many bytes of the body it read."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.answer: Iterable[bytes] | None = None
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.seen.append(environ)
        self.may_go_on.wait()
        if environ["PATH_INFO"] == "/broken":
            raise ZeroDivisionError
        try:
            length = b"%d" % len(environ["wsgi.input"].read())
        except OSError:
            length = b"unread"
        start_response("200 OK", [("X-Read", length.decode())])
        return [length] if self.answer is None else self.answer


@pytest.fixture
def application() -> Application:
    return Application()


@pytest.fixture
def url(application: Application, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 0)  # threads end without closing theirs
    with served(WholeRequests(application, threads=2)) as port:
        yield f"http://127.0.0.1:{port}"
    assert gate.held == 0, "whatever was counted in was given back"


def test_the_head_is_what_wsgi_says(url: str, application: Application) -> None:
    headers = {"Host": "localhost", "X_Forwarded_Proto": "https", "X-Forwarded-For": "10.0.0.1", "X-Two": "1"}
    httpx.put(f"{url}/a%2Fb/%E7%AE%97?q=%20%E7", headers=[*headers.items(), ("X-Two", "2")], content=b"four")
    (seen,) = application.seen
    assert (seen["REQUEST_METHOD"], seen["PATH_INFO"], seen["QUERY_STRING"]) == ("PUT", "/a/b/\xe7\xae\x97", "q=%20%E7")
    assert (seen["CONTENT_LENGTH"], seen["HTTP_X_TWO"]) == ("4", "1,2")
    assert (seen["REMOTE_ADDR"], seen["wsgi.url_scheme"], seen["HTTP_HOST"]) == ("127.0.0.1", "http", "localhost")
    assert "HTTP_X_FORWARDED_PROTO" not in seen, "a name with an underscore passes for one of the proxy's"


def test_a_body_without_a_length_has_one(url: str, application: Application) -> None:
    assert httpx.post(url, content=iter([b"a", b"bc"])).text == "3"
    assert application.seen[0]["CONTENT_LENGTH"] == "3"


def test_a_request_that_is_not_whole_holds_no_thread(url: str, application: Application) -> None:
    begun = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nConnection: close\r\n\r\na"
    with dialled(url, begun) as one, dialled(url, begun), dialled(url, begun):
        assert httpx.post(url, content=b"abc").text == "3"
        one.sendall(b"b")
        assert b"x-read: 2\r\n" in heard_until_closed(one)
    assert len(application.seen) == 2


@pytest.mark.parametrize("size", [FROM_ANYBODY, FROM_ANYBODY + 1])
def test_a_stranger_sends_no_more_than_a_form(size: int, url: str) -> None:
    answer = httpx.post(url, content=bytes(size))
    assert answer.text == (str(size) if size == FROM_ANYBODY else "unread")
    for headers in ({"Authorization": "Bearer x"}, {"Cookie": "sessionid=x"}, {"Cookie": f"sessionid={session_of(None)}"}):
        assert httpx.post(url, content=bytes(size), headers=headers).text == answer.text


def test_the_bearer_of_a_token_or_a_session_sends_up_to_the_limit(url: str, settings: Any) -> None:
    settings.INGEST_MAX_BYTES = 3 * FROM_ANYBODY
    token = api_token_create(name="gateway", scopes=["usage:write"], actor="tests")[1]
    session = session_of(User.objects.create_user("lin"))
    for headers in ({"Authorization": f"Bearer {token}"}, {"Cookie": f"a=b; sessionid={session}"}):
        assert httpx.post(url, content=bytes(3 * FROM_ANYBODY), headers=headers).text == str(3 * FROM_ANYBODY)
        beyond = int(httpx.post(url, content=bytes(9 * FROM_ANYBODY), headers=headers).text)
        assert 3 * FROM_ANYBODY < beyond < 9 * FROM_ANYBODY, "so much that the application refuses it, and no more"


def test_beyond_what_a_process_takes_in_at_a_time_bodies_are_to_come_again(url: str, settings: Any) -> None:
    settings.INGEST_MAX_INFLIGHT_BYTES = 4 * FROM_ANYBODY
    token = api_token_create(name="gateway", scopes=["usage:write"], actor="tests")[1]
    headers = {"Authorization": f"Bearer {token}"}
    with gate.admit(3 * FROM_ANYBODY):
        refused = httpx.post(url, content=bytes(2 * FROM_ANYBODY), headers=headers)
        assert (refused.status_code, "Retry-After" in refused.headers) == (503, True)
        assert httpx.post(url, content=bytes(FROM_ANYBODY), headers=headers).status_code == 200
    assert httpx.post(url, content=bytes(2 * FROM_ANYBODY), headers=headers).status_code == 200


def test_a_large_answer_comes_in_pieces(url: str, application: Application) -> None:
    application.answer = (LARGE for _ in range(40))
    answer = httpx.get(url)
    assert (answer.content, answer.headers["Transfer-Encoding"]) == (LARGE * 40, "chunked")
    application.answer = []
    assert httpx.get(url).content == b""


def test_who_does_not_read_a_large_answer_is_left(
    url: str, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("billing.api.whole_requests.PIECE_SECONDS", 0.5)
    application.answer = [bytes(PIECE)] * 1000
    asking = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with dialled(url, asking), dialled(url, asking):
        until(lambda: len(application.seen) == 2)
        application.answer = None
        assert httpx.get(url, timeout=20).text == "0", "a thread is free again"


def test_an_error_is_an_answer_and_the_log_names_it(url: str, caplog: pytest.LogCaptureFixture) -> None:
    answer = httpx.get(f"{url}/broken")
    assert (answer.status_code, answer.headers["Content-Type"]) == (500, "application/problem+json")
    assert "ZeroDivisionError" in caplog.text


def test_probes_are_answered_while_every_thread_works(url: str, application: Application) -> None:
    application.may_go_on.clear()
    waiting = [threading.Thread(target=httpx.get, args=[url], kwargs={"timeout": 30}) for _ in range(4)]
    for thread in waiting:
        thread.start()
    until(lambda: len(application.seen) == 2)
    assert httpx.get(f"{url}/healthz").json() == {"status": "ok"}
    assert httpx.head(f"{url}/healthz").status_code == 200
    probing = threading.Thread(target=httpx.get, args=[f"{url}/readyz"], kwargs={"timeout": 30})
    probing.start()
    until(lambda: len(application.seen) == 3)
    assert application.seen[2]["PATH_INFO"] == "/readyz", "in a thread of its own"
    application.may_go_on.set()
    for thread in (*waiting, probing):
        thread.join(30)
    assert len(application.seen) == 5


def dialled(url: str, sent: bytes) -> socket.socket:
    channel = socket.create_connection(("127.0.0.1", httpx.URL(url).port or 80), timeout=30)
    channel.sendall(sent)
    return channel


def session_of(user: User | None) -> str:
    session = SessionStore()
    session.update({"_auth_user_id": str(user.pk)} if user else {"theme": "dark"})
    session.save()
    return str(session.session_key)
