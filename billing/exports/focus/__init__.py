"""FOCUS 1.4: issued invoices as Cost and Usage, Invoice Detail and Billing Period.

The invoice is the authority: each of its lines is split over the hours and jobs in which its usage lies, and the parts
add up to the line to the cent. `columns` has the columns of the data sets, `hours` reads the usage of a line,
`cost_and_usage`, `billing_records` and `contract_commitments` make the rows, `conformance` refuses what breaks the
specification, `files` writes.
"""
