"""Reservations in a real Valkey: what a check lets through, what is kept for it, when that ends, from many processes."""

import multiprocessing
import os
import secrets
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import redis

from billing.budgets.check import Answer, Ask, check
from billing.budgets.reference import BudgetLine, Reference
from billing.budgets.reservations import Reservations, ReservationsAwayError
from billing.budgets.scope import Scope
from billing.budgets.thresholds import Rung
from billing.local.process_list import free_port
from billing.tenancy.ownership import Owner, OwnershipBook, OwnershipRow
from pricing.rate_card import PriceVersion, RateCard
from tests.factories.servers import until
from tests.factories.threads import at_once

NOW = datetime(2026, 10, 15, tzinfo=UTC)
END = datetime(2026, 10, 31, 16, tzinfo=UTC)
CAP = (Rung(100, "cap"),)
PRICES = {("small", "input"): Decimal(2), ("small", "output"): Decimal(8), ("large", "input"): Decimal(20),
          ("large", "output"): Decimal(80), ("embeddings", "input"): Decimal(1),
          ("long", "input@0-4096"): Decimal(2), ("long", "output@0-4096"): Decimal(8),
          ("long", "input@4097+"): Decimal(4), ("long", "output@4097+"): Decimal(16)}  # fmt: skip


def line(number: int = 1, *, amount: str = "10.00", spent: str = "0.00", generation: int = 5, **changed: Any) -> BudgetLine:
    values = {"scope": Scope(frozenset({"nlp"})), "ladder": CAP, "period": "2026-10", "end": END, **changed}
    return BudgetLine(
        number, f"budget {number}", amount=Decimal(amount), spent=Decimal(spent), as_of=NOW, generation=generation, **values
    )


def reference(*lines: BudgetLine) -> Reference:
    book = OwnershipBook([OwnershipRow("gw", "key-*", Owner("nlp"))])
    card = RateCard([PriceVersion("p", NOW - timedelta(days=9), None, tokens=dict(PRICES))])
    return Reference(NOW, "CNY", list(lines), book, card, {"nlp": frozenset({"nlp"})}, END)


class Kept:
    """Reservations under a prefix of this test, and one process that asks."""

    def __init__(self) -> None:
        self.prefix = f"tests:{secrets.token_hex(4)}:"
        self.store = self.another()
        self.client = redis.Redis.from_url(os.environ["BROKER_URL"], decode_responses=True)

    def another(self) -> Reservations:
        """What another process has of it."""
        return Reservations(os.environ["BROKER_URL"], self.prefix)

    def asked(self, *lines: BudgetLine, reserve: bool = True, **changed: Any) -> Answer:
        ask = Ask(**{"source": "gw", "consumer": "key-1", "amount": Decimal(3), **changed})
        return check(ask, reference(*lines), self.store, NOW, reserve=reserve)

    def reserved(self, *lines: BudgetLine) -> list[Decimal]:
        """On each line."""
        taken = self.store.take([(each, None) for each in lines], None, seconds=1, key=None)
        return [counted.reserved for counted in taken.counters]

    def lost(self) -> None:
        """Valkey forgets all of it."""
        for key in self.client.scan_iter(f"{self.prefix}*"):
            self.client.delete(key)


@pytest.fixture
def kept(services: None) -> Iterator[Kept]:
    made = Kept()
    yield made
    made.lost()
    made.client.close()
    made.store._client.close()


def test_a_burst_passes_the_limit_by_less_than_one_reservation(kept: Kept) -> None:
    tight = line(spent="1.50")
    answers = [kept.asked(tight) for _ in range(5)]
    # 1.50, 4.50, 7.50 are below 10; 10.50 is not
    assert [answer.allowed for answer in answers] == [True, True, True, False, False]
    assert [answer.reserved for answer in answers] == [3, 6, 9, 9, 9]
    last = answers[-1]
    assert last.budget is not None
    assert (last.reason, last.budget.spent, last.reservation) == ("budget_reserved", Decimal("1.50"), None)


def _burst(prefix: str, number: int, allowed: Any) -> None:
    store = Reservations(os.environ["BROKER_URL"], prefix)
    wide, tight = line(1, amount="100000.00"), line(2, amount="100.00")
    found = 0
    for turn in range(100):
        ask = Ask("gw", "key-1", amount=Decimal("0.7"), key=f"{number}-{turn}".encode())
        found += check(ask, reference(wide, tight), store, NOW).allowed
    with allowed.get_lock():
        allowed.value += found
    os._exit(0)


def test_many_processes_pass_the_limit_by_less_than_one_reservation(kept: Kept) -> None:
    context = multiprocessing.get_context("fork")
    allowed = context.Value("i", 0)
    processes = [context.Process(target=_burst, args=(kept.prefix, number, allowed)) for number in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=60)
        assert process.exitcode == 0
    # 142 x 0.7 = 99.4 is below 100, 143 x 0.7 = 100.1 is not: the 143rd passes, none after it
    assert allowed.value == 143
    assert kept.reserved(line(1, amount="100000.00"), line(2, amount="100.00")) == [Decimal("100.1"), Decimal("100.1")]


def test_a_reservation_ends_when_its_record_is_counted_and_not_before(kept: Kept) -> None:
    kept.asked(line(generation=5), key=b"record")
    assert kept.store.waiting() == [b"record"]
    kept.store.count([line(spent="2.00", generation=7)], landed=[b"record"], since=7)
    assert kept.reserved(line()) == [3], "refresh 7 may have begun before the record came"
    kept.store.count([line(spent="2.00", generation=8)], landed=[b"record"], since=7)
    assert (kept.reserved(line()), kept.store.waiting()) == ([0], [])


def test_a_reservation_ends_on_each_budget_that_counts_its_record_and_stays_on_the_others(kept: Kept) -> None:
    kept.asked(line(1), line(2), key=b"record", seconds=1)
    kept.store.count([line(1, generation=8), line(2, generation=6)], landed=[b"record"], since=7)
    assert kept.reserved(line(1), line(2)) == [0, 3], "the team of the second could not be rated"
    time.sleep(1.1)
    assert kept.reserved(line(1), line(2)) == [0, 3], "its time is over, and the record is still not counted"
    kept.store.count([line(2, generation=7)], landed=[], since=8)
    assert kept.reserved(line(1), line(2)) == [0, 3], "refresh 7 may have begun before the record came"
    kept.store.count([line(2, spent="3.00", generation=8)], landed=[], since=9)
    assert kept.reserved(line(1), line(2, generation=8)) == [0, 0]


def test_what_a_budget_cannot_count_adds_up_until_it_can(kept: Kept) -> None:
    """10.00, of which 4.00 are known as spent: two requests of 3.00 pass, and nothing more until they are counted."""
    behind = line(spent="4.00", generation=6)
    for number, since in enumerate((7, 8)):
        assert kept.asked(behind, key=b"%d" % number, seconds=1).allowed
        kept.store.count([behind], landed=[b"%d" % number], since=since)
    time.sleep(1.1)
    answer = kept.asked(behind)
    assert (answer.allowed, answer.reason, answer.reserved) == (False, "budget_reserved", 6)
    kept.store.count([line(spent="7.00", generation=8)], landed=[], since=9)
    assert kept.reserved(behind) == [6], "the second record may have come after refresh 8 began: too high, never too low"
    counted = line(spent="9.00", generation=9)
    kept.store.count([counted], landed=[], since=9)
    assert (kept.reserved(counted), kept.asked(counted).allowed) == ([0], True)


def test_the_counter_of_a_budget_that_cannot_be_summed_is_not_forgotten(kept: Kept) -> None:
    kept.asked(line(generation=6))
    kept.client.expire(f"{kept.prefix}counter:1:2026-10", 2)
    kept.store.count([line(generation=6)], landed=[], since=7)
    assert kept.client.ttl(f"{kept.prefix}counter:1:2026-10") > 200
    kept.client.expire(f"{kept.prefix}counter:1:2026-10", 2)
    kept.store.count([line(generation=5)], landed=[], since=7)
    assert kept.client.ttl(f"{kept.prefix}counter:1:2026-10") <= 2, "of a database that was restored it is"


def test_a_reservation_that_was_made_for_a_budget_no_longer_in_force_ends(kept: Kept) -> None:
    kept.asked(line(1), line(2), key=b"record")
    kept.store.count([line(1, generation=9)], landed=[b"record"], since=8)
    assert kept.reserved(line(1), line(2)) == [0, 0]


def test_an_older_counter_never_replaces_a_newer_one(kept: Kept) -> None:
    kept.store.count([line(spent="9.00", generation=8)], landed=[], since=7)
    answer = kept.asked(line(spent="1.00", generation=5), reserve=False)
    assert answer.budget is not None
    assert answer.budget.spent == 9
    assert kept.asked(line(spent="9.50", generation=9), reserve=False).budget == line(spent="9.50", generation=9)


def test_a_reservation_ends_with_its_time_or_when_it_is_released(kept: Kept) -> None:
    before = datetime.now(UTC)
    first, second = kept.asked(line()), kept.asked(line(), seconds=1)
    assert first.reservation is not None
    assert second.reservation is not None
    assert timedelta(seconds=59) < first.reservation.until - before < timedelta(seconds=70)
    assert kept.reserved(line()) == [6]
    until(lambda: kept.reserved(line()) == [3])
    assert kept.store.release(first.reservation.id)
    assert not kept.store.release(first.reservation.id)
    assert not kept.store.release(second.reservation.id)
    assert kept.reserved(line()) == [0]
    assert set(kept.client.scan_iter(f"{kept.prefix}*")) == {f"{kept.prefix}counter:1:2026-10"}, "nothing is left behind"


def test_the_same_request_asked_again_reserves_once_in_whatever_process(kept: Kept) -> None:
    made = set()
    for _ in range(3):
        kept.store = kept.another()
        answer = kept.asked(line(amount="4.00"), key=b"same")
        assert answer.reservation is not None
        assert (answer.allowed, answer.reservation.amount) == (True, 3)
        made.add(answer.reservation.id)
    assert len(made) == 1
    assert kept.reserved(line()) == [3]


def test_every_budget_above_a_consumer_has_a_say_and_the_refusing_one_is_named(kept: Kept) -> None:
    wide, narrow = line(1, amount="1000.00"), line(2, amount="5.00", scope=Scope(frozenset({"nlp"}), model="small"))
    other = line(3, amount="0.01", scope=Scope(frozenset({"cv"})))
    devices = line(4, amount="0.01", scope=Scope(frozenset({"nlp"}), accelerator="NVIDIA-H800"))
    small = [kept.asked(wide, narrow, other, devices, model="small") for _ in range(3)]
    assert [answer.allowed for answer in small] == [True, True, False]
    assert small[-1].budget is not None
    assert small[-1].budget.id == 2
    large = kept.asked(wide, narrow, other, devices, model="large")
    assert large.budget is not None
    assert large.budget.id == 1
    assert kept.reserved(wide, narrow, other) == [9, 6, 0]


def test_what_is_used_up_is_refused_and_what_no_budget_watches_is_not(kept: Kept) -> None:
    used_up = line(amount="10.00", spent="10.00")
    assert kept.asked(used_up).reason == "budget_used_up"
    stranger = kept.asked(used_up, consumer="stranger")
    assert (stranger.allowed, stranger.reason) == (True, "unknown_consumer")
    assert kept.asked(line(scope=Scope(frozenset({"cv"})))).reason == "no_budget"


def test_a_ladder_without_a_cap_lets_through_and_says_what_to_do(kept: Kept) -> None:
    ladder = (Rung(50, "require_approver"), Rung(80, "rate_limit", 1000, 100))
    answer = kept.asked(line(spent="12.00", ladder=ladder))
    assert (answer.allowed, answer.reason) == (True, "over_budget")
    assert [(asked.action, asked.tokens_per_minute) for asked in answer.actions] == [
        ("require_approver", None), ("rate_limit", 100),
    ]  # fmt: skip


@pytest.mark.parametrize(("spent", "ladder", "cap_raise", "allowed"), [
    ("9.99", (Rung(100, "cap"),), "0", True), ("10.00", (Rung(100, "cap"),), "0", False),
    ("10.00", (Rung(100, "cap"),), "0.01", True), ("10.01", (Rung(100, "cap"),), "0.01", False),
    ("3.29", (Rung(33, "cap"), Rung(90, "cap")), "0", True), ("3.30", (Rung(33, "cap"), Rung(90, "cap")), "0", False),
    ("-5.00", (Rung(100, "cap"),), "0", True),
])  # fmt: skip
def test_the_limit_is_met_to_the_cent(
    kept: Kept, spent: str, ladder: tuple[Rung, ...], cap_raise: str, allowed: bool
) -> None:
    answer = kept.asked(line(spent=spent, ladder=ladder, cap_raise=Decimal(cap_raise)))
    assert (answer.allowed, answer.reservation is not None) == (allowed, allowed)


def test_amounts_beyond_what_a_float_holds_are_exact(kept: Kept) -> None:
    """2^53 ten-thousandths are 900,719,925,474.0992; one more has no float of its own."""
    large = line(amount="900719925474.10", spent="900719925474.09", scope=Scope(frozenset({"nlp"})))
    first = kept.asked(large, amount=Decimal("0.0099"))
    assert (first.allowed, first.reserved) == (True, Decimal("0.0099"))
    second = kept.asked(large, amount=Decimal("0.0001"))
    assert (second.allowed, second.reserved) == (True, Decimal("0.0100")), "one ten-thousandth was left"
    assert kept.asked(large, amount=Decimal("0.0001")).allowed is False


@pytest.mark.parametrize(("spent", "allowed"), [("1000000000000000.00", False), ("-1000000000000000.00", True)])
def test_a_sum_beyond_what_a_counter_holds_holds_up_no_other_budget(kept: Kept, spent: str, allowed: bool) -> None:
    """One record can cost 10^15, which is more ten-thousandths than 64 bits count."""
    absurd = line(1, spent=spent, generation=8)
    kept.asked(line(1), line(2), key=b"record")
    kept.store.count([absurd, line(2, spent="4.00", generation=8)], landed=[b"record"], since=7)
    answer = kept.asked(line(2), reserve=False)
    assert answer.budget is not None
    assert (answer.budget.spent, answer.reserved) == (4, 0)
    answer = kept.asked(absurd)
    assert answer.budget is not None
    assert (answer.allowed, answer.budget.spent) == (allowed, Decimal(spent))
    stale = kept.asked(line(1), reserve=False)
    assert (stale.allowed, stale.budget is not None and abs(stale.budget.spent)) == (allowed, Decimal(2 * 10**14))
    kept.store.count([line(1, spent="5.00", generation=9)], landed=[], since=8)
    assert kept.reserved(line(1, spent="5.00", generation=9)) == [0 if spent[0] != "-" else 3]
    assert kept.asked(line(1, spent="5.00", generation=9), reserve=False).allowed


def test_a_budget_without_a_cap_lets_through_whatever_was_spent(kept: Kept) -> None:
    answer = kept.asked(line(spent="1000000000000000.00", ladder=(Rung(50, "require_approver"),)))
    assert (answer.allowed, answer.reason) == (True, "over_budget")


def test_a_reservation_is_the_price_of_the_tokens_or_of_an_ordinary_request(kept: Kept) -> None:
    def reserved(**changed: Any) -> Decimal:
        answer = kept.asked(line(), amount=None, **changed)
        assert answer.reservation is not None
        return answer.reservation.amount

    assert reserved(model="small", input_tokens=100_000, output_tokens=10_000) == Decimal("0.2800")
    assert reserved(model="small") == Decimal("0.0240")  # 8,000 x 2 + 1,000 x 8 per million
    assert reserved() == Decimal("0.2400"), "of an unknown model the dearest"
    assert reserved(model="small", input_tokens=0, output_tokens=0) == Decimal("0.0001")
    assert reserved(model="long", input_tokens=4096, output_tokens=1000) == Decimal("0.0162"), "8,192 + 8,000 millionths"
    assert reserved(model="long", input_tokens=4097, output_tokens=1000) == Decimal("0.0324"), "16,388 + 16,000"
    assert reserved(model="embeddings") == Decimal("0.0080"), "their output has no price, since they have none"
    stated = kept.asked(line(reservation=Decimal("0.5")), amount=None, model="small").reservation
    assert stated is not None
    assert stated.amount == Decimal("0.5")
    assert kept.asked(line(), amount=None, model="unpriced").reservation is None


def test_what_valkey_loses_are_reservations_only(kept: Kept) -> None:
    kept.store.count([line(spent="4.00", generation=8)], landed=[], since=7)
    kept.asked(line(spent="4.00", generation=8), key=b"record")
    kept.lost()
    kept.client.script_flush()
    answer = kept.asked(line(spent="4.00", generation=8), reserve=False)
    assert answer.budget is not None
    assert (answer.budget.spent, answer.reserved) == (4, 0)
    assert kept.asked(line(spent="10.00", generation=9)).reason == "budget_used_up"


def test_a_counter_that_was_lost_alone_comes_back_with_what_is_reserved(kept: Kept) -> None:
    """As one that nobody refreshed for minutes, or after the database was restored with older numbers."""
    kept.asked(line(1, generation=8), line(2, generation=8))
    kept.asked(line(2, generation=8))
    kept.client.delete(f"{kept.prefix}counter:2:2026-10")
    assert kept.reserved(line(1, generation=3), line(2, spent="1.00", generation=3)) == [3, 6]
    assert 0 < kept.client.ttl(f"{kept.prefix}counter:2:2026-10") <= 300


def test_a_new_period_begins_without_the_reservations_of_the_last(kept: Kept) -> None:
    kept.asked(line(spent="6.00"))
    november = line(period="2026-11", generation=6)
    assert (kept.reserved(line()), kept.reserved(november)) == ([3], [0])


def test_names_are_looked_for_in_turns(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("billing.budgets.reservations.MOST_NAMES", 2)
    for number in range(6):
        kept.asked(line(amount="100.00"), key=b"key %d" % number)
        time.sleep(0.002)
    looks = []
    for _ in range(6):
        looks += kept.store.waiting()
        time.sleep(0.002)
    assert sorted(looks) == sorted([b"key %d" % number for number in range(6)] * 2)


def test_a_valkey_that_is_away_is_an_error_at_once_and_never_a_yes(kept: Kept) -> None:
    kept.store = Reservations(f"redis://127.0.0.1:{free_port()}/0")
    started = time.monotonic()
    for _ in range(50):
        with pytest.raises(ReservationsAwayError):
            kept.asked(line())
    assert time.monotonic() - started < 5


def test_a_valkey_that_hears_and_says_nothing_holds_nobody_up_for_long(kept: Kept) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        kept.store = Reservations(f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        started = time.monotonic()
        for _ in range(20):
            with pytest.raises(ReservationsAwayError):
                kept.asked(line())
        assert time.monotonic() - started < 5
        kept.store._client.close()


def test_threads_of_a_process_share_connections(kept: Kept) -> None:
    def work() -> list[bool]:
        return [kept.asked(line(amount="20.00"), amount=Decimal(1)).allowed for _ in range(25)]

    allowed = [one for found in at_once(*[work] * 8) for one in found]
    assert (sum(allowed), len(allowed)) == (20, 200)
