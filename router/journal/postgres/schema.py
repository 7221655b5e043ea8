"""The tables of the store on PostgreSQL, and what each role may do with them.

    lease       one row a router: who leads, in which epoch, since when, when it last said so,
                where peers reach it (a JSON list, an entry for each listener of the file), and the
                secret of salts
    blocks      the journal's blocks, octet for octet: a row is a group that one commit made durable
    snapshots   what reclaim wrote; they stand for the segments up to theirs
    messages    the segments of the message store, if it is here: a row is what one flush made
                durable, and begins at an octet of the segment (``disk``)

``blocks``, ``snapshots`` and ``messages`` are partitioned by router, then by segment. A segment
goes by dropping its partition, never by DELETE: that would leave dead rows as large as the traffic.
Partitions are made and dropped by functions that run with their owner's rights, so the router's own
role may only read, insert, and update its lease.

``epoch`` is in a unique index, so an update of it is one of a key, and waits for everybody who
holds the row FOR KEY SHARE; an update of ``renewed`` does not. That is the fence: see ``log``.
"""

from collections.abc import Iterator
from typing import Final

VERSION: Final = 3
"""Of the tables; a router refuses any other."""

SCHEMA: Final = "router_journal"

LEASE_SECONDS: Final = 3.0
"""A lease that was not renewed for so long may be taken by another router."""

CREATE: Final = f"""
CREATE SCHEMA IF NOT EXISTS {SCHEMA};
REVOKE ALL ON SCHEMA {SCHEMA} FROM PUBLIC;

CREATE TABLE IF NOT EXISTS {SCHEMA}.version (number integer PRIMARY KEY);
INSERT INTO {SCHEMA}.version VALUES ({VERSION}) ON CONFLICT DO NOTHING;

CREATE TABLE IF NOT EXISTS {SCHEMA}.lease (
    router text PRIMARY KEY,
    number integer GENERATED ALWAYS AS IDENTITY,
    epoch bigint NOT NULL DEFAULT 0,
    holder text NOT NULL DEFAULT '',
    place text NOT NULL DEFAULT '',
    since timestamptz NOT NULL DEFAULT 'epoch',
    renewed timestamptz NOT NULL DEFAULT 'epoch',
    newest bigint NOT NULL DEFAULT 0,
    address text NOT NULL DEFAULT '[]',
    UNIQUE (router, epoch)
);
ALTER TABLE {SCHEMA}.lease ADD COLUMN IF NOT EXISTS address text NOT NULL DEFAULT '[]';
ALTER TABLE {SCHEMA}.lease ADD COLUMN IF NOT EXISTS login_key bytea;

CREATE TABLE IF NOT EXISTS {SCHEMA}.blocks (
    router text NOT NULL,
    segment bigint NOT NULL,
    commit bigint NOT NULL,
    octets bytea NOT NULL,
    PRIMARY KEY (router, segment, commit)
) PARTITION BY LIST (router);
ALTER TABLE {SCHEMA}.blocks ALTER COLUMN octets SET STORAGE EXTERNAL;

CREATE TABLE IF NOT EXISTS {SCHEMA}.snapshots (
    router text NOT NULL,
    segment bigint NOT NULL,
    part bigint NOT NULL,
    octets bytea NOT NULL,
    PRIMARY KEY (router, segment, part)
) PARTITION BY LIST (router);
ALTER TABLE {SCHEMA}.snapshots ALTER COLUMN octets SET STORAGE EXTERNAL;

CREATE TABLE IF NOT EXISTS {SCHEMA}.messages (
    router text NOT NULL,
    segment bigint NOT NULL,
    place bigint NOT NULL,
    octets bytea NOT NULL,
    PRIMARY KEY (router, segment, place)
) PARTITION BY LIST (router);
ALTER TABLE {SCHEMA}.messages ALTER COLUMN octets SET STORAGE EXTERNAL;

CREATE OR REPLACE FUNCTION {SCHEMA}.begin_partition(kind text, router_id text, segment bigint)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = {SCHEMA}, pg_temp AS $$
DECLARE
    known integer;
    leaf text;
BEGIN
    IF kind NOT IN ('blocks', 'snapshots', 'messages') THEN
        RAISE EXCEPTION 'no table of partitions: %', kind;
    END IF;
    SELECT number INTO STRICT known FROM lease WHERE router = router_id;
    -- A router that was taken over may be making the same one just now.
    PERFORM pg_advisory_xact_lock(hashtextextended('{SCHEMA}/begin/' || router_id, 0));
    leaf := format('%s_%s_%s', kind, known, segment);
    IF to_regclass(format('{SCHEMA}.%I', leaf)) IS NULL THEN
        -- Attaching does not wait for readers of the parent, as PARTITION OF does.
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', leaf, kind);
        EXECUTE format(
            'ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)',
            format('%s_%s', kind, known), leaf, segment, segment + 1);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION {SCHEMA}.drop_partition(kind text, router_id text, segment bigint)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = {SCHEMA}, pg_temp AS $$
DECLARE
    known integer;
BEGIN
    IF kind NOT IN ('blocks', 'snapshots', 'messages') THEN
        RAISE EXCEPTION 'no table of partitions: %', kind;
    END IF;
    SELECT number INTO STRICT known FROM lease WHERE router = router_id;
    EXECUTE format('DROP TABLE IF EXISTS %I', format('%s_%s_%s', kind, known, segment));
END $$;

REVOKE ALL ON FUNCTION {SCHEMA}.begin_partition(text, text, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION {SCHEMA}.drop_partition(text, text, bigint) FROM PUBLIC;
"""

_LEASED: Final = "epoch, holder, place, since, renewed, newest, address, login_key"
_PARTITION: Final = "(text, text, bigint)"

RIGHTS: Final = (
    ("USAGE", "schema", "", ""),
    ("SELECT", "table", "version", ""),
    ("SELECT", "table", "lease", ""),
    ("UPDATE", "table", "lease", _LEASED),
    *(
        (right, "table", table, "")
        for table in ("blocks", "snapshots", "messages")
        for right in ("SELECT", "INSERT")
    ),
    ("EXECUTE", "function", f"begin_partition{_PARTITION}", ""),
    ("EXECUTE", "function", f"drop_partition{_PARTITION}", ""),
)
"""What a router needs and ``init`` grants: the right, the kind of object, its name in the schema
(empty: the schema itself), and the columns (empty: all)."""


def _named(name: str) -> str:
    return f"{SCHEMA}.{name}" if name else SCHEMA


GRANTS: Final = "".join(
    f"GRANT {right}{f' ({columns})' if columns else ''} ON {kind} {_named(name)} TO {{role}};\n"
    for right, kind, name, columns in RIGHTS
)


def _asked(right: str, kind: str, name: str, columns: str) -> Iterator[tuple[str, str]]:
    """Yields the questions for a right, and what each is about."""
    shown = _named(name)
    if not columns:
        yield f"has_{kind}_privilege('{shown}', '{right}')", f"{right} on {kind} {shown}"
    for column in filter(None, columns.split(", ")):
        question = f"has_column_privilege('{shown}', '{column}', '{right}')"
        yield question, f"{right} ({column}) on {kind} {shown}"


MISSING_RIGHTS: Final = "SELECT name FROM (VALUES {}) AS rights (number, name, given)".format(
    ", ".join(
        f"({number}, '{name}', {question})"
        for number, (question, name) in enumerate(
            each for right in RIGHTS for each in _asked(*right)
        )
    )
) + (" WHERE given IS NOT TRUE ORDER BY number")
"""Names what the role of the connection may not do."""

ADD_ROUTER: Final = f"""
INSERT INTO {SCHEMA}.lease (router) VALUES (%s) ON CONFLICT DO NOTHING
"""

NUMBER_OF_ROUTER: Final = f"SELECT number FROM {SCHEMA}.lease WHERE router = %s"

INSERT_BLOCKS: Final = f"""
INSERT INTO {SCHEMA}.blocks (router, segment, commit, octets)
SELECT $1::text, $2::bigint, $3::bigint, $4::bytea FROM {SCHEMA}.lease
WHERE router = $1::text AND epoch = $5::bigint FOR KEY SHARE
ON CONFLICT DO NOTHING
"""
"""No row: another epoch has begun, or the row was there: ``LOOK`` tells."""

INSERT_MESSAGES: Final = f"""
INSERT INTO {SCHEMA}.messages (router, segment, place, octets)
SELECT %(router)s, %(segment)s::bigint, %(place)s::bigint, %(octets)b FROM {SCHEMA}.lease
WHERE router = %(router)s AND epoch = %(epoch)s FOR KEY SHARE
ON CONFLICT DO NOTHING
"""

NOT_FENCED: Final = f"""
SELECT FROM {SCHEMA}.lease WHERE router = %(router)s AND epoch = %(epoch)s FOR KEY SHARE
"""

TOUCH: Final = f"""
UPDATE {SCHEMA}.lease SET renewed = renewed WHERE router = %(router)s AND epoch = %(epoch)s
"""
"""A commit that waits for the synchronous standby, for the reason that ``LOOK`` has."""

LOOK: Final = f"""
UPDATE {SCHEMA}.lease SET renewed = renewed WHERE router = $1::text AND epoch = $2::bigint
RETURNING (EXISTS (SELECT 1 FROM {SCHEMA}.blocks
    WHERE router = $1::text AND segment = $3::bigint AND commit = $4::bigint))::int
"""
"""An update, because its commit waits for the synchronous standby, which then has the row, too: a
commit whose backend was ended while it waited for the standby is seen here before it is safe."""

RENEW: Final = f"""
UPDATE {SCHEMA}.lease SET renewed = clock_timestamp(), newest = greatest(newest, $3::bigint)
WHERE router = $1::text AND epoch = $2::bigint AND renewed > 'epoch' RETURNING 1
"""
"""What was released stays so: a renewal that was on its way then may be carried out later."""

_RENEWED: Final = "(extract(epoch FROM renewed) * 1000000)::bigint"
_LEADER: Final = f"""json_build_object('epoch', epoch, 'holder', holder, 'place', place,
    'since', extract(epoch FROM since), 'age', extract(epoch FROM clock_timestamp() - renewed),
    'renewed', {_RENEWED}, 'address', address::json, 'newest', newest)::text"""
"""One value; ``lease.Leader.of`` reads it."""

TAKE: Final = f"""
UPDATE {SCHEMA}.lease SET epoch = greatest(epoch + 1, %(now_ns)s::bigint), holder = %(holder)s,
    place = %(place)s, address = %(address)s, since = clock_timestamp(),
    renewed = clock_timestamp()
WHERE router = %(router)s AND (holder = %(holder)s
    OR epoch = %(seen)s::bigint AND {_RENEWED} = %(seen_renewed)s::bigint
    OR %(seen)s::bigint IS NULL
        AND renewed < clock_timestamp() - make_interval(secs => {LEASE_SECONDS}))
RETURNING {_LEADER}
"""
"""A router that has watched the lease takes what it has seen unchanged for long by its own clock,
whatever the database's clock does; one that has not goes by that clock."""

WHO_LEADS: Final = f"SELECT {_LEADER} FROM {SCHEMA}.lease WHERE router = %s"
WHO_LEADS_NOW: Final = f"SELECT {_LEADER} FROM {SCHEMA}.lease WHERE router = $1::text"
"""The same for a ``pipe.Pipe``."""

RELEASE: Final = f"""
UPDATE {SCHEMA}.lease SET renewed = 'epoch' WHERE router = %s AND epoch = %s
"""
