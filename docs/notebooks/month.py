# %% [markdown]
# # What a month cost, and whether it adds up
#
# Reads the files of two commands and nothing else:
#
#     manage.py export_focus 2026-11 --out exports
#     manage.py export_invoices 2026-11 --out exports/invoices
#
# The same for the month before gives the comparison. Open this file as a notebook (VS Code does it, Jupyter with Jupytext),
# or run it: `FOLDER=exports MONTH=2026-11 .venv/bin/python docs/notebooks/month.py`. Amounts are exact decimals throughout.

# %%
import os
from decimal import Decimal
from pathlib import Path

import pandas

FOLDER = Path(os.environ.get("FOLDER", "exports"))
MONTH = os.environ.get("MONTH", "2026-11")
ZERO = Decimal("0.00")


def focus_file(month: str) -> Path:
    """Cost and Usage of a month: a row per invoice line, hour and job; amounts are decimals in the file already."""
    return FOLDER / f"focus-cost-and-usage-{month}.parquet"


def read_focus(month: str) -> pandas.DataFrame:
    """The columns used here, amounts as decimals."""
    columns = ["BillingAccountId", "BillingCurrency", "BilledCost", "InvoiceId", "InvoiceDetailId", "x_ModelId"]
    return pandas.read_parquet(focus_file(month), columns=columns)


def read_invoices(month: str) -> pandas.DataFrame:
    """The lines of all invoices and notes of a month: everything as text, then the amounts as decimals."""
    files = sorted((FOLDER / "invoices").glob("*.csv"))
    if not files:
        raise FileNotFoundError(f"no invoices in {FOLDER / 'invoices'}: manage.py export_invoices writes them")
    tables = [pandas.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig") for path in files]
    lines = pandas.concat(tables, ignore_index=True).query("billing_period == @month")
    detail = lines.invoice_number + "-" + lines.position.str.zfill(4)
    return lines.assign(InvoiceDetailId=detail, amount=lines.amount.map(Decimal))


# %% [markdown]
# ## The files
# Rows of FOCUS get the kind and the SKU of their invoice line. Amounts in two currencies cannot be added.

# %%
lines = read_invoices(MONTH)
focus = read_focus(MONTH).merge(
    lines[["InvoiceDetailId", "kind", "sku"]], on="InvoiceDetailId", how="left", validate="many_to_one"
)
currencies = {*focus.BillingCurrency, *lines.currency}
if len(currencies) != 1:
    raise ValueError(f"{MONTH} has amounts in {sorted(currencies)}")
(currency,) = currencies
print(f"{MONTH}: {len(focus):,} rows of FOCUS, {lines.invoice_number.nunique():,} invoices and notes, in {currency}\n")

# %% [markdown]
# ## FOCUS adds up to the invoices
# Line by line, in both directions: a line that only one of the two has counts as different.

# %%
sums = focus.groupby("InvoiceDetailId").BilledCost.sum().rename("focus")
differing = lines.set_index("InvoiceDetailId")[["amount"]].join(sums, how="outer").query("amount != focus")
if not differing.empty:
    raise ValueError(f"FOCUS of {MONTH} differs from the invoices:\n{differing.to_string()}")
print(
    f"FOCUS adds up to the invoices: {len(sums)} lines of {lines.invoice_number.nunique()} documents, "
    f"{sum(sums, ZERO)} {currency}\n"
)

# %% [markdown]
# ## By team and kind

# %%
by_team = focus.pivot_table(index="BillingAccountId", columns="kind", values="BilledCost", aggfunc="sum", fill_value=ZERO)
by_team["total"] = by_team.sum(axis="columns")
by_team.loc["all"] = by_team.sum()
print(by_team.to_string(), "\n")

# %% [markdown]
# ## By model and by accelerator
# Idle time, efficiency and credits count for the accelerator (or the slice with a price of its own) of their line.

# %%
by_model = focus.dropna(subset="x_ModelId").groupby("x_ModelId").BilledCost.sum()
by_accelerator = focus[focus.x_ModelId.isna()].groupby("sku").BilledCost.sum()
print(by_model.to_string(), "\n")
print(by_accelerator.to_string(), "\n")

# %% [markdown]
# ## Against the month before

# %%
before = str(pandas.Period(MONTH, freq="M") - 1)
if focus_file(before).exists():
    past = read_focus(before)
    if set(past.BillingCurrency) != currencies:
        raise ValueError(f"{before} is in {sorted(set(past.BillingCurrency))}, {MONTH} in {currency}")
    compared = pandas.DataFrame(
        {"before": past.groupby("BillingAccountId").BilledCost.sum(), "now": by_team.total.drop("all")}, dtype=object
    ).fillna(ZERO)
    compared.loc["all"] = compared.sum()
    compared["change"] = compared.now - compared.before
    compared["percent"] = [
        (100 * row.change / row.before).quantize(Decimal("0.1")) if row.before else None for row in compared.itertuples()
    ]
    print(compared.to_string())
else:
    compared = None
    print(f"no {focus_file(before).name}: nothing to compare with")
