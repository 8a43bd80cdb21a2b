"""PURE: decimals of amounts by currency. Source: ISO 4217:2015, list one (without funds and metals)."""

import re
from typing import Final

from metering.messages import Message, UserError

CODE: Final = re.compile("[A-Z]{3}")
WITH_CENTS: Final = frozenset(CODE.findall("""
    AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CNY COP CRC CUP
    CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR
    KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN
    PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD
    TZS UAH USD UYU UZS VED VES WST XCD XCG YER ZAR ZMW ZWG
"""))
WHOLE: Final = frozenset(CODE.findall("BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF"))
FINER: Final = {**dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3), "CLF": 4, "UYW": 4}


class CurrencyError(UserError, ValueError):
    """Currency in which amounts cannot be billed."""

    code = "currency"


def decimals_of(currency: str) -> int:
    """Return the decimals of an amount in a currency.  Raises CurrencyError unless it has 0 or 2.

    >>> decimals_of("CNY"), decimals_of("JPY")
    (2, 0)
    """
    if currency in WITH_CENTS:
        return 2
    if currency in WHOLE:
        return 0
    if currency in FINER:
        raise CurrencyError(Message(
            "%(currency)s has %(n)s decimals: amounts are billed in currencies of 0 or 2",
            currency=currency, n=FINER[currency],
        ))
    raise CurrencyError(Message("%(currency)s is no currency of ISO 4217, such as CNY", currency=repr(currency)))
