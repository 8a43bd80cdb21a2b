-- What one person proposes another decides on: the states of a proposal, who decides, and a history that only grows.

-- A decision needs its step: makers take none, and what is decided is what was submitted.
CREATE OR REPLACE FUNCTION approvals_step_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    of approvals_proposal;
BEGIN
    SELECT * INTO STRICT of FROM approvals_proposal WHERE id = NEW.proposal_id FOR UPDATE;
    IF (NEW.revision, NEW.payload) IS DISTINCT FROM (of.revision, of.payload) THEN
        RAISE EXCEPTION 'a step of % % is kept with what was proposed then', of.kind, of.subject
            USING ERRCODE = 'restrict_violation';
    END IF;
    IF NEW.action IN ('created', 'edited', 'submitted') AND NEW.actor <> ALL (of.makers) THEN
        RAISE EXCEPTION '% % names its makers', of.kind, of.subject USING ERRCODE = 'restrict_violation';
    END IF;
    IF NEW.action IN ('approved', 'rejected', 'noted') THEN
        IF of.state <> 'submitted' THEN
            RAISE EXCEPTION '% % is %: it is decided as it was submitted', of.kind, of.subject, of.state
                USING ERRCODE = 'restrict_violation';
        END IF;
        IF EXISTS (SELECT 1 FROM unnest(of.makers) AS maker WHERE suanpan_same_person(maker, NEW.actor)) THEN
            RAISE EXCEPTION '% made % %: no maker decides on a proposal', NEW.actor, of.kind, of.subject
                USING ERRCODE = 'restrict_violation';
        END IF;
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER no_maker_decides BEFORE INSERT ON approvals_step
    FOR EACH ROW EXECUTE FUNCTION approvals_step_guard();
CREATE UNIQUE INDEX IF NOT EXISTS one_approval_of_a_proposal_per_person
    ON approvals_step (proposal_id, revision, suanpan_person(actor))
    WHERE action = 'approved';
SELECT suanpan_append_only('approvals_step', 'the history of a proposal only grows');

CREATE OR REPLACE FUNCTION approvals_proposal_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    refused text;
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.state = 'draft' AND cardinality(NEW.makers) = 1 THEN
            RETURN NEW;
        END IF;
        refused := 'begins as a draft of one maker';
    ELSIF TG_OP = 'DELETE' THEN
        refused := 'stays in the history';
    ELSIF OLD.state IN ('approved', 'withdrawn') THEN
        refused := 'is ' || OLD.state || ' and never changes';
    ELSIF (NEW.kind, NEW.created_at, NEW.makers[1]) IS DISTINCT FROM (OLD.kind, OLD.created_at, OLD.makers[1])
       OR NOT (OLD.makers <@ NEW.makers) THEN
        refused := 'keeps its kind and its makers';
    ELSIF NEW.state = 'draft' AND NEW.revision <= OLD.revision
       OR NEW.state <> 'draft' AND (NEW.subject, NEW.payload, NEW.revision)
                                   IS DISTINCT FROM (OLD.subject, OLD.payload, OLD.revision) THEN
        refused := 'changes only as a draft, with a new revision';
    ELSIF (OLD.state, NEW.state) NOT IN (
        ('draft', 'draft'), ('draft', 'submitted'), ('draft', 'withdrawn'), ('submitted', 'draft'), ('submitted', 'approved'),
        ('submitted', 'rejected'), ('submitted', 'withdrawn'), ('rejected', 'draft'), ('rejected', 'withdrawn')) THEN
        refused := format('is %s and does not become %s', OLD.state, NEW.state);
    ELSIF OLD.state <> 'draft' AND NEW.state <> 'draft'
          AND to_jsonb(NEW) - '{state,outcome}'::text[] <> to_jsonb(OLD) - '{state,outcome}'::text[] THEN
        refused := 'is decided as it was submitted';
    ELSIF NEW.state IN ('approved', 'rejected', 'withdrawn') AND NOT EXISTS (
        SELECT 1 FROM approvals_step s
        WHERE s.proposal_id = NEW.id AND s.revision = NEW.revision AND s.action = NEW.state) THEN
        refused := 'is decided by a step of its history';
    ELSE
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '% % %', COALESCE(NEW.kind, OLD.kind), COALESCE(NEW.subject, OLD.subject), refused
        USING ERRCODE = 'restrict_violation';
END $$;
CREATE OR REPLACE TRIGGER proposal_keeps_its_history BEFORE INSERT OR UPDATE OR DELETE ON approvals_proposal
    FOR EACH ROW EXECUTE FUNCTION approvals_proposal_guard();
SELECT suanpan_never_emptied('approvals_proposal', 'who proposed and who decided is never forgotten');
SELECT suanpan_audited('approvals_proposal', secret => 'payload');
