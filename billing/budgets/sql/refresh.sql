-- Counts up with every refresh of the budgets, so that a reader knows which figures are newer.
CREATE SEQUENCE IF NOT EXISTS budget_refresh;
