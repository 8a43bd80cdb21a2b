"""The counter of the budget check: what it lets through, what it holds, when a hold ends, what survives a kill."""

import itertools
import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from billing.budgets.counter import Ask, BudgetLine, Counter, Reservation, Snapshot
from billing.budgets.follower import WaitingKeys
from billing.budgets.reservation_log import ReservationLog
from billing.budgets.scope import Scope
from billing.budgets.thresholds import Rung
from billing.tenancy.ownership import Owner, OwnershipBook, OwnershipRow
from pricing.rate_card import PriceVersion, RateCard

NOW = datetime(2026, 10, 15, tzinfo=UTC)
SECOND = timedelta(seconds=1)
CAP = (Rung(100, "cap"),)
PRICES = {("small", "input"): Decimal(2), ("small", "output"): Decimal(8), ("large", "input"): Decimal(20),
          ("large", "output"): Decimal(80)}  # fmt: skip


def line(number: int = 1, *, amount: str = "10.00", spent: str = "0.00", generation: int = 5, **changed) -> BudgetLine:
    values = {"scope": Scope(frozenset({"nlp"})), "ladder": CAP, **changed}
    return BudgetLine(
        number, f"budget {number}", period="2026-10", amount=Decimal(amount), spent=Decimal(spent), as_of=NOW,
        generation=generation, **values,
    )  # fmt: skip


def snapshot(*lines: BudgetLine) -> Snapshot:
    book = OwnershipBook([OwnershipRow("gw", "key-*", Owner("nlp"))])
    card = RateCard([PriceVersion("p", NOW - timedelta(days=9), None, tokens=dict(PRICES))])
    return Snapshot("CNY", list(lines), book, card)


def counter(*lines: BudgetLine) -> Counter:
    numbers = itertools.count()
    made = Counter(
        remember=lambda hold: None, forget=lambda identity: None, new_id=lambda: f"h{next(numbers)}",
        waits_for=lambda key: None,
    )  # fmt: skip
    if lines:
        made.replace(snapshot(*lines), NOW)
    return made


def ask(**changed) -> Ask:
    return Ask(**{"source": "gw", "consumer": "key-1", "amount": Decimal(3), **changed})


def test_a_burst_passes_the_limit_by_less_than_one_reservation() -> None:
    made = counter(line(spent="1.50"))
    answers = [made.check(ask(), NOW) for _ in range(5)]
    # 1.50, 4.50, 7.50 are below 10; 10.50 is not
    assert [answer.allowed for answer in answers] == [True, True, True, False, False]
    assert made.held_on(1) == 9
    assert (answers[-1].reason, answers[-1].budget.spent, answers[-1].held) == ("budget_reserved", Decimal("1.50"), 9)


def test_many_threads_reserve_no_more_than_one() -> None:
    made = counter(line(amount="100.00"))
    allowed: list[bool] = []
    gate = threading.Barrier(8)

    def work() -> None:
        gate.wait()
        allowed.extend(made.check(ask(amount=Decimal(1)), NOW).allowed for _ in range(100))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(allowed) == 100
    assert len(allowed) == 800


def test_a_hold_ends_when_its_record_is_counted_and_not_before() -> None:
    made = counter(line(generation=5))
    made.check(ask(key=b"record"), NOW)
    assert made.waiting_keys() == [b"record"]
    made.landed([b"record"], 7)
    assert made.waiting_keys() == []
    made.replace(snapshot(line(spent="2.00", generation=7)), NOW)
    assert made.held_on(1) == 3, "refresh 7 may have begun before the record came"
    made.replace(snapshot(line(spent="2.00", generation=8)), NOW)
    assert made.held_on(1) == 0


def test_a_hold_ends_with_its_time_or_when_it_is_released() -> None:
    made = counter(line())
    first, second = made.check(ask(), NOW), made.check(ask(seconds=5), NOW)
    made.replace(snapshot(line()), NOW + 4 * SECOND)
    assert made.held_on(1) == 6
    made.replace(snapshot(line()), NOW + 5 * SECOND)
    assert made.held_on(1) == 3
    assert made.release(first.hold.id)
    assert not made.release(second.hold.id)
    assert made.held_on(1) == 0


def test_the_same_request_asked_again_holds_once() -> None:
    made = counter(line(amount="4.00"))
    holds = {made.check(ask(key=b"same"), NOW).hold.id for _ in range(3)}
    assert len(holds) == 1
    assert made.held_on(1) == 3


def test_asking_without_reserving_holds_nothing() -> None:
    made = counter(line())
    answer = made.check(ask(), NOW, hold=False)
    assert (answer.allowed, answer.hold, made.held_on(1)) == (True, None, 0)


def test_every_budget_above_a_consumer_has_a_say_and_the_refusing_one_is_named() -> None:
    wide, narrow = line(1, amount="1000.00"), line(2, amount="5.00", scope=Scope(frozenset({"nlp"}), model="small"))
    other = line(3, amount="0.01", scope=Scope(frozenset({"cv"})))
    devices = line(4, amount="0.01", scope=Scope(frozenset({"nlp"}), accelerator="NVIDIA-H800"))
    made = counter(wide, narrow, other, devices)
    small = [made.check(ask(model="small"), NOW) for _ in range(3)]
    assert [answer.allowed for answer in small] == [True, True, False]
    assert small[-1].budget.id == 2
    assert made.check(ask(model="large"), NOW).budget.id == 1
    assert (made.held_on(1), made.held_on(2), made.held_on(3)) == (9, 6, 0)


def test_what_is_used_up_is_refused_and_what_no_budget_watches_is_not() -> None:
    made = counter(line(amount="10.00", spent="10.00"))
    assert made.check(ask(), NOW).reason == "budget_used_up"
    assert made.check(ask(consumer="stranger"), NOW).reason == "unknown_consumer"
    assert made.check(ask(consumer="stranger"), NOW).allowed
    assert counter(line(scope=Scope(frozenset({"cv"})))).check(ask(), NOW).reason == "no_budget"
    assert counter().check(ask(), NOW) is None, "nothing is known yet"


def test_a_ladder_without_a_cap_lets_through_and_says_what_to_do() -> None:
    ladder = (Rung(50, "require_approver"), Rung(80, "rate_limit", 1000, 100))
    made = counter(line(spent="12.00", ladder=ladder))
    answer = made.check(ask(), NOW)
    assert (answer.allowed, answer.reason) == (True, "over_budget")
    assert [(asked.action, asked.tokens_per_minute) for asked in answer.actions] == [
        ("require_approver", None), ("rate_limit", 100),
    ]  # fmt: skip


def test_a_reservation_is_the_price_of_the_tokens_or_of_an_ordinary_request() -> None:
    def held(**changed) -> Decimal:
        answer = counter(line()).check(ask(amount=None, **changed), NOW)
        return answer.hold.amount

    assert held(model="small", input_tokens=100_000, output_tokens=10_000) == Decimal("0.2800")
    assert held(model="small") == Decimal("0.0240")  # 8,000 x 2 + 1,000 x 8 per million
    assert held() == Decimal("0.2400"), "of an unknown model the dearest"
    assert held(model="small", input_tokens=0, output_tokens=0) == Decimal("0.0001")
    stated = counter(line(reservation=Decimal("0.5"))).check(ask(amount=None, model="small"), NOW)
    assert stated.hold.amount == Decimal("0.5")
    assert counter(line()).check(ask(amount=None, model="unpriced"), NOW).hold is None


def test_a_killed_process_leaves_its_holds_to_the_next(tmp_path: Path) -> None:
    directory = tmp_path / "run" / "holds"
    journal = ReservationLog(directory, NOW)
    holds = [
        Reservation("a", Decimal("1.5"), (1, 2), NOW + 60 * SECOND, b"k" * 16),
        Reservation("b", Decimal(2), (1,), NOW + 60 * SECOND),
        Reservation("c", Decimal(3), (1,), NOW + SECOND),
    ]  # fmt: skip
    for hold in holds:
        journal.remember(hold, NOW)
    journal.forget("b")
    journal.close()
    (segment,) = directory.iterdir()
    with segment.open("ab") as file:
        file.write(b'{"id":"torn')
    made = counter()
    made.restore(ReservationLog(directory, NOW + 2 * SECOND).read(NOW + 2 * SECOND))
    assert (made.held_on(1), made.held_on(2), made.waiting_keys()) == (Decimal("1.5"), Decimal("1.5"), [b"k" * 16])


def test_segments_of_holds_go_when_all_in_them_is_over(tmp_path: Path) -> None:
    journal = ReservationLog(tmp_path, NOW)
    for number in range(14):
        at = NOW + number * 10 * 60 * SECOND
        journal.remember(Reservation(str(number), Decimal(1), (1,), at + 3600 * SECOND), at)
    journal.close()
    assert len(list(tmp_path.iterdir())) == 8
    later = NOW + 130 * 60 * SECOND
    assert {hold.id for hold in ReservationLog(tmp_path, later).read(later)} == {str(number) for number in range(8, 14)}


def test_records_are_looked_for_ever_less_often_and_not_for_ever() -> None:
    waiting = WaitingKeys()
    waiting.add([b"a", b"b"], 0.0)
    waiting.found([b"b"])
    looks = [second for second in range(5000) if waiting.due(float(second))]
    assert looks[:4] == [0, 1, 2, 3]
    assert len(looks) < 60
    assert looks[-1] <= 3600
