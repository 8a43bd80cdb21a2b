"""FOCUS 1.4 export: issued invoices as Cost and Usage, Invoice Detail and Billing Period.

The invoice is authoritative: each of its lines is split over the hours and jobs of its usage, and the parts add up to
the line to the cent. `columns` has the columns of the data sets, `hours` reads the usage of a line,
`cost_and_usage`, `billing_records` and `contract_commitments` build the rows, `conformance` refuses violations of the
specification, `files` writes.
"""
