"""A stream's sequence has no gap: the database refuses any number but the next (3.9, R-518).

The unique constraint refuses a repeat; this trigger refuses a gap. The next number is one above the highest that is
there, or the root's `stream_floor` when the sweep has removed every row.
"""

from typing import Any

from django.db import migrations

_POSTGRESQL = """
CREATE FUNCTION helix_stream_has_no_gap() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE expected bigint;
BEGIN
    SELECT sequence + 1 INTO expected FROM helix_streamevent WHERE root_id = NEW.root_id ORDER BY sequence DESC LIMIT 1;
    IF expected IS NULL THEN
        SELECT stream_floor INTO expected FROM helix_session WHERE id = NEW.root_id;
    END IF;
    IF NEW.sequence <> coalesce(expected, 1) THEN
        RAISE EXCEPTION 'helix_event_gap: event % of % is not the next (%)', NEW.sequence, NEW.root_id, expected
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER helix_event_gap BEFORE INSERT ON helix_streamevent
    FOR EACH ROW EXECUTE FUNCTION helix_stream_has_no_gap();
"""
_SQLITE = """
CREATE TRIGGER helix_event_gap BEFORE INSERT ON helix_streamevent
WHEN NEW.sequence <> coalesce(
    (SELECT max(sequence) + 1 FROM helix_streamevent WHERE root_id = NEW.root_id),
    (SELECT stream_floor FROM helix_session WHERE id = NEW.root_id),
    1)
BEGIN
    SELECT raise(ABORT, 'helix_event_gap: an event is not the next of its stream');
END;
"""


def forbid_gaps(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        # psycopg reads % as a placeholder only when parameters are given.
        schema_editor.execute(_POSTGRESQL, params=None)
    else:
        schema_editor.execute(_SQLITE, params=None)


def allow_gaps(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("DROP TRIGGER helix_event_gap ON helix_streamevent", params=None)
        schema_editor.execute("DROP FUNCTION helix_stream_has_no_gap()", params=None)
    else:
        schema_editor.execute("DROP TRIGGER helix_event_gap", params=None)


class Migration(migrations.Migration):
    dependencies = [("helix", "0001_initial")]

    operations = [migrations.RunPython(forbid_gaps, allow_gaps)]
