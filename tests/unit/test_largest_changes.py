"""What a page lists as changed most: only what changed, the largest first."""

from decimal import Decimal

from billing.portal.bridge import Bridge, ItemChange


def item(sku: str, before: str, after: str) -> ItemChange:
    change = Decimal(after) - Decimal(before)
    return ItemChange("nlp", "gpu", sku, "", Decimal(before), Decimal(after), Decimal(0), change)


def test_what_did_not_change_is_not_listed() -> None:
    items = [item("same", "5", "5"), item("less", "9", "2"), item("none", "0", "0"), item("more", "1", "4")]
    bridge = Bridge(Decimal(15), Decimal(11), [], items)

    assert [found.sku for found in bridge.largest(8)] == ["less", "more"]
    assert [found.sku for found in bridge.largest(1)] == ["less"]
    assert Bridge(Decimal(5), Decimal(5), [], items[:1]).largest(8) == []
