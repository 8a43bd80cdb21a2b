"""Token classes of the contract from usage objects of the model APIs; no other module reads usage objects.

Every API counts differently: OpenAI's details are parts of its totals, Anthropic's input leaves both cache classes out,
vLLM and SGLang report no cache counts unless they are started so. `metering.usage_dialects` lists how each names and adds
its counts. Here they all become one shape, in which `input_tokens` is all input and `output_tokens` all output.

**Nothing is guessed.** A usage object is refused, for quarantine, unless one dialect explains all of it:

* each count is a whole number from 0; no text, no fraction, no flag;
* names of the same count state the same number, and no part is larger than the count that contains it;
* a stated total is the sum of the parts, to the token;
* a number of unknown name is refused, even if the total includes it: it may be a part that has a price of its own;
* an answer to an input of 0 tokens is refused: its server lost a count;
* missing output is zero only if the total proves it, or if the caller knows that the request makes none;
* a total alone is no usage, except of a request that the caller knows as a rerank or an embedding.

Missing counts are kept apart from zero: input whose cached part is unknown is priced as uncached, and the record says so
(`cache_counts: unknown`), so that a flag forgotten on an inference server can be found in the ledger.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from functools import lru_cache
from math import isfinite
from typing import Any, Final, Literal

import msgspec

from metering.messages import Message
from metering.record_checks import RecordError
from metering.records import MAX_COUNT, shown
from metering.usage_dialects import CACHE_BESIDE, CACHE_INSIDE, COMPACTED, DIALECTS, NOT_TOKENS, Dialect
from metering.usage_parts import ONE_WORD, PART_COUNTS, TEXTS, UNKNOWN, fitting_parts, stated_tier, usage_parts

UsageSource = Literal["provider", "gateway_estimate", "gateway_cache", "none"]
Values = Mapping[str, list[Any]]
"""Values of a usage object by path; all items of a list under one path."""

COMPACTION: Final = "compaction"
"""Type of an iteration: a text of a usage object that is read and kept."""
MAX_DEPTH: Final = 8
MAX_ITEMS: Final = 64
FIELD_NAME: Final = re.compile(r"[A-Za-z0-9_.\-]{1,80}\Z")
NUMBER_PATH: Final = re.compile(r"[A-Za-z0-9_.\-\[\]()]{1,160}\Z")
"""Pattern of the paths that `numbers_of_usage` produces, which it must accept when it reads its own output."""
NUMBER_TEXT: Final = re.compile(r"[-+]?[0-9]{1,20}(\.[0-9]{1,20})?\Z")
WHOLE_TEXT: Final = re.compile(r"[-+]?[0-9]{1,20}\Z")
SPEAKS_OF_USAGE: Final = re.compile(
    r"token|cach|audio|image|video|calls?(?![a-z])|tier|usage|thought|reasoning|withheld", re.IGNORECASE
)
"""Words in the path of a number that may be usage, in objects that hold other things too; "withheld" is our own word."""
WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
MEASURES: Final = frozenset({
    "id", "cost", "costs", "price", "fee", "ms", "latency", "time", "ttft", "first", "per", "rate", "ratio", "limit",
    "limits", "key", "name", "max", "maximum", "remaining", "quota", "index", "width", "height", "version", "ttl",
})  # fmt: skip
"""Words in the last name of a number that is no usage: amounts of money, times, rates, limits of a request."""


class TokenClasses(msgspec.Struct, frozen=True):
    """Token counts of one request; `input_tokens` contains both cache classes, `output_tokens` contains reasoning."""

    input_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int
    output_tokens: int
    reasoning_output_tokens: int
    cache_known: bool
    usage_source: UsageSource
    service_tier: str | None = None
    parts: dict[str, int] = {}
    """Finer counts, searches and tool calls as `metering.usage_parts` reads them."""

    def __post_init__(self) -> None:
        cached = self.cache_read_input_tokens + self.cache_creation_input_tokens
        if cached > self.input_tokens:
            raise RecordError(Message(
                "%(cached)s cached tokens are more than the %(input_tokens)s of all input",
                cached=cached, input_tokens=self.input_tokens,
            ))
        if self.reasoning_output_tokens > self.output_tokens:
            raise RecordError(Message(
                "%(reasoning_output_tokens)s reasoning tokens are more than the %(output_tokens)s of all output",
                reasoning_output_tokens=self.reasoning_output_tokens, output_tokens=self.output_tokens,
            ))

    @property
    def counts(self) -> dict[str, int]:
        """Return the five counts by the names of `TokenUsage`."""
        return {
            "input_tokens": self.input_tokens,
            "cache_read_input_tokens": self.cache_read_input_tokens,
            "cache_creation_input_tokens": self.cache_creation_input_tokens,
            "output_tokens": self.output_tokens,
            "reasoning_output_tokens": self.reasoning_output_tokens,
        }

    @property
    def details(self) -> dict[str, int | str]:
        """Return the optional fields of `TokenUsage` that the usage object states."""
        tier = {} if self.service_tier is None else {"service_tier": self.service_tier}
        return {**tier, **{name: count for name, count in self.parts.items() if count > 0}}

    @property
    def remarks(self) -> dict[str, str]:
        """Return the attributes that `TokenUsage` adds to these counts; none if a provider stated everything."""
        remarks = {} if self.cache_known else {"cache_counts": UNKNOWN}
        if -1 in self.parts.values():
            remarks[PART_COUNTS] = UNKNOWN
        return remarks if self.usage_source == "provider" else {**remarks, "usage_source": self.usage_source}

    def as_estimate(self) -> "TokenClasses":
        """Return the counts as a gateway's estimate: its statement about the cache is no knowledge."""
        return msgspec.structs.replace(self, cache_known=False, usage_source="gateway_estimate", parts={})


NOTHING: Final = TokenClasses(0, 0, 0, 0, 0, cache_known=False, usage_source="none")
"""Classes of a request without any stated usage: no tokens, and the remark that nothing was counted."""
REPEATED: Final = TokenClasses(0, 0, 0, 0, 0, cache_known=True, usage_source="gateway_cache")
"""Classes of an answer from a gateway's own cache: no model worked, whatever counts the answer still states."""


def token_classes(usage: Mapping[str, Any] | None, *, input_only: bool = False) -> TokenClasses:
    """Return the classes of a usage object of any known API, recognised by field names; NOTHING if it states none.

    `input_only`: the caller knows that the request makes no output (embedding, rerank).
    Raises RecordError if no dialect explains the object, or if several do with different counts.

    >>> vllm = token_classes({"prompt_tokens": 100, "completion_tokens": 30, "prompt_tokens_details": None})
    >>> vllm.input_tokens, vllm.output_tokens, vllm.cache_known
    (100, 30, False)
    >>> anthropic = token_classes({"input_tokens": 10, "cache_read_input_tokens": 80,
    ...                            "cache_creation_input_tokens": 10, "output_tokens": 5})
    >>> anthropic.input_tokens, anthropic.cache_read_input_tokens
    (100, 80)
    >>> token_classes({"prompt_tokens": 12, "completion_tokens": 20, "total_tokens": 40})
    Traceback (most recent call last):
    metering.record_checks.RecordError: OpenAI chat: total 40 is not input 12 + output 20
    """
    apart = _apart(usage or {})
    classes = _explained(_values(apart), (*READERS, RERANK) if input_only else READERS, input_only)
    return with_parts(classes, apart)


def with_parts(classes: TokenClasses, usage: Mapping[str, Any]) -> TokenClasses:
    """Return the classes with the tier, finer counts, searches and tool calls that a usage object states.

    Raises RecordError if two names of one count contradict each other.
    """
    if not (classes.input_tokens or classes.output_tokens):
        return classes
    values: dict[str, list[Any]] = {}
    for path, value in _leaves(usage, "", MAX_DEPTH):
        if value is not None:
            values.setdefault(path, []).append(value)
    tier, parts = stated_tier(values), fitting_parts(usage_parts(values), classes.counts)
    return msgspec.structs.replace(classes, service_tier=tier, parts=parts) if tier or parts else classes


def _apart(usage: Mapping[str, Any]) -> Mapping[str, Any]:
    """Separate Anthropic's compactions from the counts that leave them out, and drop a raw copy of another usage object."""
    iterations = usage.get("iterations")
    if isinstance(iterations, list) and all(isinstance(item, Mapping) for item in iterations):
        apart = [item for item in iterations if item.get("type") == COMPACTION]
        others = [item for item in iterations if item.get("type") != COMPACTION]
        if apart and all(_sums_up(usage, others, name) for name in ("input_tokens", "output_tokens")):
            usage = {**usage, "iterations": others, COMPACTED.removesuffix("[]"): apart}
    if isinstance(usage.get("inputTokenDetails"), Mapping):
        usage = {name: value for name, value in usage.items() if name != "raw"}
    return usage


def _sums_up(usage: Mapping[str, Any], items: Sequence[Mapping[str, Any]], name: str) -> bool:
    """Return True if the count of a usage object is the sum of these items' counts."""
    counts = [item.get(name) or 0 for item in items]
    return all(isinstance(count, int) for count in counts) and usage.get(name) == sum(counts)


def classes_by_name(
    counts: Mapping[str, int | None], *, cache_beside: bool = False, input_only: bool = False
) -> TokenClasses:
    """Return the classes of counts that a mapping found one by one, under the names of the contract and `total_tokens`.

    `cache_beside`: input_tokens leaves the cached tokens out; a stated total decides instead.  Raises RecordError.

    >>> classes_by_name({"input_tokens": 10, "cache_read_input_tokens": 80, "output_tokens": 5, "total_tokens": 95}
    ...                 ).input_tokens
    90
    """
    readers = _BESIDE if cache_beside else _INSIDE
    return _explained(_values(counts), (*readers, RERANK) if input_only else readers, input_only)


def without_texts(usage: Any, depth: int = MAX_DEPTH) -> Any:
    """Return the usage object for quarantine: numbers under their names, and of texts only those written as numbers, the
    type `compaction`, and words that state a tier, a modality or a lifetime.

    Every other value stays visible as the number -1, which no dialect accepts, or as an empty text.

    >>> without_texts({"prompt_tokens": "10", "note": "a prompt", "details": [{"tokens": 3}], "what I asked": 5})
    {'prompt_tokens': '10', 'note': '', 'details': [{'tokens': 3}], '(withheld 3)': 5}
    """
    if isinstance(usage, Mapping | list) and (not depth or len(usage) > MAX_ITEMS):
        return -1
    if isinstance(usage, Mapping):
        named = {
            str(name) if FIELD_NAME.match(str(name)) else f"(withheld {place})": value
            for place, (name, value) in enumerate(usage.items())
        }
        return {
            name: value if name in TEXTS and isinstance(value, str) and ONE_WORD.match(value)
            else without_texts(value, depth - 1)
            for name, value in named.items()
        }  # fmt: skip
    if isinstance(usage, list):
        return [without_texts(value, depth - 1) for value in usage]
    if isinstance(usage, str):
        return usage if NUMBER_TEXT.match(usage) or usage == COMPACTION else ""
    return usage if usage is None or isinstance(usage, int | float) else -1


def numbers_of_usage(
    fields: Mapping[str, Any], *, known: Collection[str] = (), opened: Collection[str] = (), left_out: Collection[str] = ()
) -> dict[str, Any]:
    """Return the numbers of an open object (the data of an event, a line of a log) that may be usage, by path; no text.

    `known`: paths of numbers and texts that are read already.  `opened`: names of texts that are searched if they hold JSON.
    `left_out`: names or paths of values that hold no usage or are read already.  Zeros state nothing and are left out.

    >>> given = {"input_tokens": 9, "cached_tokens": "4", "cache_cost": 7, "note": "hi", "usage": {"in": 3}, "n": 1}
    >>> numbers_of_usage(given, known=("input_tokens",))
    {'cached_tokens': '4', 'usage.in': 3}
    """
    found: dict[str, Any] = {}
    waiting: list[tuple[str, str, Any]] = [("", "", fields)]
    while waiting and len(found) < MAX_ITEMS:
        path, name, value = waiting.pop()
        if isinstance(value, str) and name in opened:
            value = json_object(value)
        if isinstance(value, Mapping):
            # Reversed, so that the stack yields fields in the order of the object.
            steps = [(str(key), _step(str(key), place), item) for place, (key, item) in enumerate(value.items())]
            inner = [(f"{path}.{step}" if path else step, key, item) for key, step, item in steps if key not in left_out]
            waiting += [item for item in inner if item[0] not in left_out][::-1]
        elif isinstance(value, list):
            waiting += [(f"{path}[{place}]", name, item) for place, item in enumerate(value)][::-1]
        elif path not in known and _is_number(value) and _is_not_zero(value) and may_be_usage(path):
            found[path] = value if _is_finite(value) else -1
    return {**found, "(withheld)": -1} if waiting else found


def may_be_usage(path: str) -> bool:
    """Return True if a number of this path may be usage: its path speaks of it, its name of no amount, time, rate or limit.

    >>> [may_be_usage(path) for path in ("usage.cached", "cache_ttl", "imageTokens", "max_tokens", "score", "toolCalls")]
    [True, False, True, False, False, True]
    """
    name = path.rpartition(".")[2].partition("[")[0]
    if not SPEAKS_OF_USAGE.search(path) or name in NOT_TOKENS:
        return False
    return MEASURES.isdisjoint(word.lower() for word in WORD.findall(name))


def json_object(text: Any) -> Any:
    """Decode a text that holds a JSON object; return anything else as it is."""
    if isinstance(text, str) and text.startswith("{"):
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return text
    return text


def refuse_unread(
    fields: Mapping[str, Any], *, known: Collection[str], opened: Collection[str] = (), left_out: Collection[str] = ()
) -> None:
    """Raise RecordError that names the first number of `numbers_of_usage`, which no reader reads."""
    for name, value in numbers_of_usage(fields, known=known, opened=opened, left_out=left_out).items():
        raise RecordError(Message("%(name)s %(n)s is not known", name=name[:80], n=value), name)


class _Reader:
    """Reader of usage objects by one dialect."""

    def __init__(self, dialect: Dialect, prefix: str) -> None:
        def parsed(text: str) -> _Count:
            cached = text in (dialect.cache_read, dialect.cache_creation)
            return _Count(text, prefix=prefix, zeros_say_nothing=cached)

        self._name = dialect.name
        self._open = dialect.open
        self._needs = [parsed(text) for text in dialect.needs]
        self._input = _Side([parsed(text) for text in dialect.input])
        self._output = _Side([parsed(text) for text in dialect.output])
        self._read, self._written = parsed(dialect.cache_read), parsed(dialect.cache_creation)
        self._reasoning, self._total = parsed(dialect.reasoning), parsed(dialect.total)
        self._shares = [[parsed(text) for text in texts] for texts in (dialect.within_input, dialect.within_output)]
        # Where writes to the cache are a part of their own, the cache is known only if they are stated too.
        self._written_beside = bool(dialect.cache_creation) and dialect.cache_creation in dialect.input
        counts = (*self._input.parts, *self._output.parts, self._read, self._written, self._reasoning, self._total)
        self._not_tokens = frozenset(prefix + name for name in dialect.not_tokens)
        self._known = self._not_tokens.union(*(count.paths for count in (*counts, *self._shares[0], *self._shares[1])))
        self._unknown: list[str] = []

    def applies(self, paths: frozenset[str]) -> bool:
        """Return True if these paths include every count that the dialect needs."""
        return all(need.paths & paths for need in self._needs)

    def narrowed(self, paths: frozenset[str]) -> "_Reader":
        """Return the reader for objects of exactly these paths, without lookups of names that they lack."""
        reader = copy(self)
        reader._input, reader._output = self._input.narrowed(paths), self._output.narrowed(paths)
        reader._read, reader._written = self._read.narrowed(paths), self._written.narrowed(paths)
        reader._reasoning, reader._total = self._reasoning.narrowed(paths), self._total.narrowed(paths)
        reader._shares = [[share.narrowed(paths) for share in shares if share.paths & paths] for shares in self._shares]
        reader._unknown = sorted(name for name in paths - self._known if self._is_usage(name))
        return reader

    def __call__(self, values: Values, input_only: bool) -> TokenClasses:
        """Return the classes.  Raises RecordError if the dialect does not explain the object."""
        (given, given_stated), (produced, produced_stated) = self._input(values), self._output(values)
        total, read, written = self._total(values), self._read(values), self._written(values)
        if total is not None and total != given + produced:
            raise self._error(Message(
                "total %(total)s is not input %(input)s + output %(output)s",
                total=total, input=given, output=produced,
            ))
        if not given_stated:
            raise self._error(Message("input is not stated"))
        if not (produced_stated or total is not None or input_only):
            raise self._error(Message("output is not stated"))
        self._check_shares(values, given, produced)
        self._refuse_unknown(values)
        return TokenClasses(
            given, read or 0, written or 0, produced, self._reasoning(values) or 0,
            cache_known=read is not None and (written is not None or not self._written_beside), usage_source="provider",
        )  # fmt: skip

    def _check_shares(self, values: Values, given: int, produced: int) -> None:
        for shares, whole in zip(self._shares, (given, produced), strict=True):
            for share in shares:
                count = share(values)
                if count is not None and count > whole:
                    raise self._error(Message(
                        "%(name)s %(n)s is more than the %(whole)s that it is a share of",
                        name=share.text, n=count, whole=whole,
                    ))

    def _refuse_unknown(self, values: Values) -> None:
        """Raise RecordError that names a number of unknown name: it may be a part that has a price of its own."""
        for name in self._unknown:
            if count := _unknown_count(values[name]) or (may_be_usage(name) and _fraction(values[name])):
                raise self._error(Message("%(name)s %(n)s is not known", name=name[:80], n=count))

    def _is_usage(self, name: str) -> bool:
        return not self._open or may_be_usage(name)

    def _error(self, what: Message) -> RecordError:
        return RecordError(Message("%(field)s: %(text)s", field=self._name, text=what))


class _Side:
    """Input or output: disjoint parts, the main one first."""

    def __init__(self, parts: Sequence["_Count"]) -> None:
        self.parts = parts

    def narrowed(self, paths: frozenset[str]) -> "_Side":
        """Return the main part and the parts whose names are there."""
        return _Side([part.narrowed(paths) for part in self.parts if part is self.parts[0] or part.paths & paths])

    def __call__(self, values: Values) -> tuple[int, bool]:
        """Return the sum of all parts, and True if the main part is stated, without which the others mean little."""
        counts = [part(values) for part in self.parts]
        return sum(count or 0 for count in counts), bool(counts) and counts[0] is not None


class _Count:
    """Count of a dialect: a sum of paths, or several such sums, which must agree.

    `zeros_say_nothing`: gateways fill names of this count that they do not know with 0.
    """

    def __init__(self, text: str, *, prefix: str, zeros_say_nothing: bool = False) -> None:
        self.text = text
        self._zeros_say_nothing = zeros_say_nothing
        names = [[prefix + path.strip() for path in sum_.split("+")] for sum_ in text.split("|")] if text else []
        self._sums = {" + ".join(paths): paths for paths in names}
        self.paths = frozenset(path for paths in names for path in paths)

    def narrowed(self, paths: frozenset[str]) -> "_Count":
        """Return the count, restricted to the names that are there."""
        count = copy(self)
        kept = {name: [path for path in summands if path in paths] for name, summands in self._sums.items()}
        count._sums = {name: summands for name, summands in kept.items() if summands}
        return count

    def __call__(self, values: Values) -> int | None:
        """Return the count, None if no name states it.  Raises RecordError for an invalid count, or if names disagree."""
        stated: dict[str, int] = {}
        for name, paths in self._sums.items():
            stated[name] = sum(_whole(value, path) for path in paths for value in values[path])
        if self._zeros_say_nothing and any(stated.values()):
            stated = {name: count for name, count in stated.items() if count}
        if len(set(stated.values())) > 1:
            raise RecordError(Message(
                "%(counts)s contradict each other", counts=" and ".join(f"{name} {count}" for name, count in stated.items())
            ))
        return next(iter(stated.values()), None)


@lru_cache(maxsize=512)
def _applying(readers: tuple[_Reader, ...], paths: frozenset[str]) -> tuple[_Reader, ...]:
    """Return the readers for objects of these paths, cached: a gateway sends the same few shapes over and over."""
    return tuple(reader.narrowed(paths) for reader in readers if reader.applies(paths))


def _explained(values: Values, readers: tuple[_Reader, ...], input_only: bool) -> TokenClasses:
    """Return the classes on which all readers agree.  Raises the first reader's RecordError."""
    found: list[TokenClasses] = []
    refused: list[RecordError] = []
    for reader in _applying(readers, frozenset(values)):
        try:
            found.append(reader(values, input_only))
        except RecordError as error:
            refused.append(error)
    if not found and refused:
        raise refused[0]
    if not found:
        return _nothing(values)
    if len({tuple(item.counts.values()) for item in found}) > 1:
        raise RecordError(Message(
            "usage that can be read in %(best)s ways: %(values)s", best=len(found), values=_numbers(values)
        ))
    # The counts are equal; the reader that found cache counts is the better witness.
    return _answered(max(found, key=lambda item: item.cache_known))


def _answered(classes: TokenClasses) -> TokenClasses:
    """Return the classes, or raise RecordError for output without input: the server lost the count of its prompt."""
    if classes.output_tokens and not classes.input_tokens:
        raise RecordError(Message("input 0 of an answer with output %(output)s", output=classes.output_tokens))
    return classes


def _nothing(values: Values) -> TokenClasses:
    """Return NOTHING, or raise RecordError if the object has numbers."""
    if numbers := _numbers(values):
        raise RecordError(Message("usage of no known API: %(numbers)s", numbers=numbers))
    return NOTHING


def _numbers(values: Values) -> str:
    return ", ".join(sorted(name for name in values if _unknown_count(values[name])))[:200]


def _values(usage: Mapping[str, Any]) -> Values:
    """Return every value that may count tokens, by its path.  Raises RecordError if two places have one path."""
    values: dict[str, list[Any]] = {}
    for path, value in _leaves(usage, "", MAX_DEPTH):
        if value is None or path.rpartition(".")[2] in NOT_TOKENS:
            continue
        if path in values and "[]" not in path:
            raise RecordError(Message("%(path)s is in two places", path=path), path)
        values.setdefault(path, []).append(value)
    return values


def _leaves(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping | list):
        yield path, value
    elif not depth:
        raise RecordError(Message("usage is nested deeper than %(most)s", most=MAX_DEPTH))
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, f"{path}[]", depth - 1)
    else:
        for name, item in value.items():
            yield from _leaves(item, f"{path}.{name}" if path else str(name), depth - 1)


def _step(name: str, place: int) -> str:
    """Return a field's name as part of a path; a name that may hold content is withheld, marked if it speaks of usage."""
    if NUMBER_PATH.match(name):
        return name
    return f"(withheld-{place})" if SPEAKS_OF_USAGE.search(name) else f"({place})"


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return NUMBER_TEXT.match(value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_not_zero(value: Any) -> bool:
    """Return True if a number is not zero; an integer of a thousand digits does not fit a float."""
    return bool(value if isinstance(value, int) else float(value))


def _is_finite(value: Any) -> bool:
    return isinstance(value, str | int) or isfinite(value)


def _unknown_count(values: list[Any]) -> int:
    """Sum values of unknown name that may be counts: 0 for texts, flags, fractions and zeros, -1 if one is negative."""
    read = [int(value) if isinstance(value, str) and WHOLE_TEXT.match(value) else value for value in values]
    counts = [int(value) for value in read if _is_whole(value)]
    return -1 if any(count < 0 for count in counts) else sum(counts)


def _fraction(values: list[Any]) -> Any:
    """Return the first number that is no whole one; 0 if there is none."""
    return next((value for value in values if _is_number(value) and not _is_whole(value) and float(value)), 0)


def _is_whole(value: Any) -> bool:
    return not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))


def _whole(value: Any, name: str) -> int:
    """Return a count as int.  Raises RecordError for an invalid count."""
    if not _is_whole(value) or not 0 <= value <= MAX_COUNT:
        raise RecordError(Message(
            "%(name)s must be a whole number from 0 to %(most)s, not %(value)s",
            name=name, value=shown(value), most=MAX_COUNT,
        ), name)
    return int(value)


def _readers(dialects: Sequence[Dialect]) -> tuple[_Reader, ...]:
    return tuple(_Reader(dialect, prefix) for dialect in dialects for prefix in dialect.prefixes)


READERS: Final = _readers(DIALECTS)
RERANK: Final = _Reader(Dialect("rerank", needs=("total_tokens",), input=("total_tokens",), output=()), "")
_INSIDE: Final = _readers(CACHE_INSIDE)
_BESIDE: Final = _readers(CACHE_BESIDE)
