"""PURE: prices per bucket of prompt lengths from load tests at several prompt lengths.

Each measured length is priced by itself, by the same method and terms. Lengths whose prices lie within 20 % of each other
share a bucket; a bucket ends with the longest prompt measured in it, so a prompt between two buckets is priced as the
longer, and the last bucket is open. A shared price recovers an hour of the deployment at each length.

Source: FT2, a context-length bucket where prices differ by more than 20 %.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import Any, Final

from metering.messages import Message
from pricing.contexts import LONGEST, Context, contexts_of, priced_class
from pricing.loadtests.own import LoadRun, LoadTest, gpus_of
from pricing.money import exact_decimal
from pricing.token_price import ClassCosts, LoadPointError
from pricing.token_pricing import TokenTerms, class_rows, price_tokens

LARGEST_DIFFERENCE: Final = Fraction(1, 5)
SAME_LENGTH: Final = Fraction(5, 4)
"""Largest factor between mean prompts of runs of one length: load generators vary their prompts."""
CLASSES: Final = ("input", "cache_read", "output")


@dataclass(frozen=True, slots=True)
class MeasuredLength:
    """Measured prompt length: the longest mean of its runs in tokens, the selected run, its costs."""

    tokens: int
    selected: LoadRun
    costs: ClassCosts
    gpus: int

    def recovered(self, costs: ClassCosts) -> Fraction:
        """Return the revenue of other costs per GPU-hour at this length's selected run."""
        point = self.selected.point
        return costs.recovered_per_hour(
            uncached_tps=point.uncached_input_tps / self.gpus, cached_tps=point.cached_input_tps / self.gpus,
            output_tps=point.output_tps / self.gpus,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bucket:
    """Prompt lengths that share a price."""

    context: Context
    lengths: tuple[MeasuredLength, ...]
    costs: ClassCosts


@dataclass(frozen=True, slots=True)
class Buckets:
    """Buckets, and each step between the measured lengths that decided them.

    A step names the class that differs most and its change as a ratio with 6 decimals, below 0 where the longer prompts
    cost less; `splits` where another bucket begins.
    """

    buckets: tuple[Bucket, ...]
    steps: tuple[dict[str, Any], ...]

    @property
    def lengths(self) -> list[MeasuredLength]:
        """Return every length, the shortest first."""
        return [item for bucket in self.buckets for item in bucket.lengths]


def one_price(tests: Sequence[LoadTest], terms: TokenTerms) -> tuple[ClassCosts, Fraction]:
    """Return the costs of one price for all prompts, and their revenue per GPU-hour, averaged over the measured lengths.

    Raises LoadPointError, ValueError.
    """
    if terms.by_context:
        lengths = context_buckets(tests, terms).lengths
        costs = shared_costs(lengths)
    else:
        selected, costs = price_tokens(tests, terms)
        lengths = [MeasuredLength(0, selected, costs, gpus_of(tests, selected))]
    return costs, sum((item.recovered(costs) for item in lengths), Fraction(0)) / len(lengths)


def priced_answer(tests: Sequence[LoadTest], terms: TokenTerms) -> dict[str, Any]:
    """Return the answer of the contract. By context also the buckets; `classes` then has one price for all lengths.

    Raises LoadPointError where no run is sustainable or prices it, ValueError where the reports do not fit together.
    """
    contexts: dict[str, Any] = {}
    if terms.by_context:
        found = context_buckets(tests, terms)
        selected, costs = found.lengths[0].selected, shared_costs(found.lengths)
        several = found.buckets if len(found.buckets) > 1 else ()
        contexts = {
            "contexts": [_bucket_dict(bucket, terms) for bucket in several], "context_steps": list(found.steps)
        }
    else:
        selected, costs = price_tokens(tests, terms)
    return {
        "model": tests[0].model, "method": terms.method, "selected": selected.fields,
        "gpu_hour_cost": exact_decimal(terms.gpu_hour_cost), "classes": class_rows(costs, terms), **contexts,
    }  # fmt: skip


def _bucket_dict(bucket: Bucket, terms: TokenTerms) -> dict[str, Any]:
    return {
        "context": str(bucket.context), "up_to_tokens": bucket.context.last,
        "measured": [{"tokens": item.tokens, "selected": item.selected.fields} for item in bucket.lengths],
        "classes": class_rows(bucket.costs, terms),
    }  # fmt: skip


def figures_by_class(answer: Mapping[str, Any], figure: str) -> dict[str, Decimal]:
    """Return `price_per_1m` or `cost_per_1m` of an answer by priced class: per bucket, if there are any."""
    contexts = answer.get("contexts") or [{"context": "", "classes": answer["classes"]}]
    return {
        priced_class(row["class"], part["context"]): Decimal(row[figure]) for part in contexts for row in part["classes"]
    }


def context_buckets(tests: Sequence[LoadTest], terms: TokenTerms) -> Buckets:
    """Price every measured length, and group lengths of about the same cost.

    Raises LoadPointError where a length has no sustainable run or a run no prompt length, ValueError where the reports do
    not fit together.
    """
    lengths = [_measured(tests, runs, terms) for runs in runs_by_length(tests)]
    groups: list[list[MeasuredLength]] = []
    steps: list[dict[str, Any]] = []
    for item in lengths:
        # against every length of the bucket: neighbours may each differ by less than 20 % and its ends by more
        splits = not groups
        if groups:
            name, change = max(
                (difference(before.costs, item.costs) for before in groups[-1]), key=lambda found: _size(found[1])
            )
            splits = _size(change) > LARGEST_DIFFERENCE
            steps.append({
                "from_tokens": groups[-1][-1].tokens, "to_tokens": item.tokens, "class": name,
                "change": exact_decimal(change, 6), "splits": splits,
            })  # fmt: skip
        if splits:
            groups.append([])
        groups[-1].append(item)
    contexts = contexts_of(group[-1].tokens for group in groups[:-1]) or (Context(0, None),)
    buckets = (Bucket(context, tuple(group), shared_costs(group)) for context, group in zip(contexts, groups, strict=True))
    return Buckets(tuple(buckets), tuple(steps))


def shared_costs(lengths: Sequence[MeasuredLength]) -> ClassCosts:
    """Return the mean of the costs, scaled so that a GPU-hour at each length recovers what its own costs would."""
    sums = (sum((getattr(item.costs, name) for item in lengths), Fraction(0)) for name in CLASSES)
    mean = ClassCosts(*(total / len(lengths) for total in sums))
    whole, got = (sum((item.recovered(costs or item.costs) for item in lengths), Fraction(0)) for costs in (None, mean))
    return mean.times(whole / got) if got else mean


def difference(shorter: ClassCosts, longer: ClassCosts) -> tuple[str, Fraction]:
    """Return the class whose cost differs most in either direction, and its ratio less 1.

    >>> costs = [ClassCosts(Fraction(price), Fraction(0), Fraction(8)) for price in (2, 3)]
    >>> difference(*costs), difference(*reversed(costs))
    (('input', Fraction(1, 2)), ('input', Fraction(-1, 3)))
    """
    pairs = ((name, getattr(shorter, name), getattr(longer, name)) for name in CLASSES)
    changes = [(name, new / old - 1 if old else Fraction(1 if new else 0)) for name, old, new in pairs]
    return max(changes, key=lambda found: _size(found[1]))


def _size(change: Fraction) -> Fraction:
    """Return the distance of two prices, symmetric in both: a fall of 1/3 is as far as a rise of 1/2."""
    # a fall to 0 has no inverse and counts as farther than any other
    return change if change >= 0 else 1 / (1 + change) - 1 if change > -1 else Fraction(LONGEST)


def runs_by_length(tests: Sequence[LoadTest]) -> list[list[tuple[int, LoadRun]]]:
    """Group runs, each with the number of its report, by mean prompt length.  Raises LoadPointError where a run has none."""
    runs = [(number, run) for number, test in enumerate(tests) for run in test.runs]
    groups: list[list[tuple[int, LoadRun]]] = []
    first = Fraction(0)
    for number, run in sorted(runs, key=lambda item: _length(item[1])):
        if not groups or _length(run) > first * SAME_LENGTH:
            groups.append([])
            first = _length(run)
        groups[-1].append((number, run))
    return groups


def _length(run: LoadRun) -> Fraction:
    """Return the mean input tokens of a request, cached included.  Raises LoadPointError."""
    point = run.point
    if not point.completed_rps:
        raise LoadPointError(Message("a run completed no request: how long its prompts were is not known"))
    length = point.input_tps / point.completed_rps
    if length > LONGEST:
        raise LoadPointError(Message(
            "a run has prompts of %(length)s tokens, must be at most %(most)s", length=exact_decimal(length, 0), most=LONGEST
        ))
    return length


def _measured(tests: Sequence[LoadTest], runs: Sequence[tuple[int, LoadRun]], terms: TokenTerms) -> MeasuredLength:
    tokens = ceil(max(_length(run) for _, run in runs))
    numbers = sorted({number for number, _ in runs})
    of_length = [
        replace(tests[number], runs=tuple(run for other, run in runs if other == number)) for number in numbers
    ]
    try:
        selected, costs = price_tokens(of_length, terms)
    except LoadPointError as error:
        raise LoadPointError(Message("prompts of %(tokens)s tokens: %(error)s", tokens=tokens, error=error)) from error
    return MeasuredLength(tokens, selected, costs, gpus_of(of_length, selected))
