"""Writes of this package: cost sheets, drafts of price lists and their approval, published versions, policies."""

from billing.rates.services.commitments import CommitmentTerms, commitment_put
from billing.rates.services.drafts import (
    PriceDraftError,
    price_draft_approve,
    price_draft_create,
    price_draft_edit,
    price_draft_rebase,
    price_draft_reject,
    price_draft_submit,
    price_draft_withdraw,
)
from billing.rates.services.publishing import PriceVersionInput, price_version_publish
from billing.rates.services.sheets import RateError, cost_sheet_put, token_cost_sheet_put
from billing.rates.services.succession import carbon_factors_put, efficiency_policy_publish, rules_publish
from billing.rates.services.written import price_draft_write
