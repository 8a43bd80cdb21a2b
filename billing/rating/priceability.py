"""Whether everything that was used has an owner and a price, seen by the names of usage before anything is added up."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise

from billing.rating.reference_data import ReferenceData
from billing.usage.usage_keys import UsageKeys, dimensions, stretches
from metering.intervals import Interval
from pricing.contexts import contexts_of, priced_class
from pricing.rate_card import TOKEN_CLASSES, RateCard, UnpricedError


def all_owned_and_priced(
    reference_data: ReferenceData, devices: Sequence[Interval], tokens: Sequence[Interval], names: UsageKeys
) -> bool:
    """True only where no usage under these names can be left without owner or price.

    False where something may be: tokens are asked for a price of every class, also of one that nobody used.
    """
    return _devices_priced(reference_data, devices, names) and _tokens_priced(reference_data, tokens, names)


def _devices_priced(reference_data: ReferenceData, pieces: Sequence[Interval], names: UsageKeys) -> bool:
    priced: dict[tuple[int, str, str], bool] = {}
    for piece, cluster, namespace, accelerator, resource in names.devices:
        owner = reference_data.namespaces.owner(cluster, namespace, pieces[piece].start)
        if owner is None:
            return False
        asked = (piece, accelerator, resource)
        if not owner.platform and asked not in priced:
            priced[asked] = _gpu_priced(reference_data.card, pieces[piece], accelerator, resource)
    return all(priced.values())


def _gpu_priced(card: RateCard, piece: Interval, accelerator: str, resource: str) -> bool:
    try:
        card.gpu_price(accelerator, resource, piece.start)
    except UnpricedError:
        return False
    return True


def _tokens_priced(reference_data: ReferenceData, pieces: Sequence[Interval], names: UsageKeys) -> bool:
    if not names.tokens:
        return True
    bounds = [*stretches(pieces), pieces[-1].end]
    within = {start: _overlapping(pieces, start, end) for start, end in pairwise(bounds)}
    named, models = dimensions({dimension for _, dimension in names.tokens}), set()
    for start, dimension in names.tokens:
        source, consumer, model = named[dimension]
        for piece in within[start]:
            if reference_data.consumers.owner(source, consumer, piece.start) is None:
                return False
            models.add((model, piece))
    return all(_model_priced(reference_data.card, model, piece) for model, piece in models)


def _overlapping(pieces: Iterable[Interval], start: datetime, end: datetime) -> list[Interval]:
    return [piece for piece in pieces if piece.start < end and piece.end > start]


def _model_priced(card: RateCard, model: str, piece: Interval) -> bool:
    contexts = [str(context) for context in contexts_of(card.context_bounds(piece.start).get(model, ()))] or [""]
    try:
        for context in contexts:
            for name in TOKEN_CLASSES:
                card.token_price(model, priced_class(name, context), piece.start)
    except UnpricedError:
        return False
    return True
