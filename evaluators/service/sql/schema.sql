-- Tables of the queue. Times are seconds since 1970 by the server's clock.

-- One row per distinct request: task, kernel, precision, evaluator version and device class.
-- state: new (its kernel is not in the lake yet), queued, claimed (by the judges), answered (rows
-- that are not in the lake yet), done, fault (not judged, for a reason of ours), cancelled.
CREATE TABLE IF NOT EXISTS judgements (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    judgement_id TEXT NOT NULL UNIQUE,
    task_id TEXT NOT NULL,
    kernel_id TEXT NOT NULL,
    device_class TEXT NOT NULL,
    policy TEXT, -- the precision, by the name that it has in /v1
    state TEXT NOT NULL,
    kernel TEXT,                 -- JSON row of kernels, until the judgment ends
    "case" TEXT,                 -- JSON case, while it is queued or claimed
    answer TEXT,                 -- JSON of a judge's accepted rows, until they are in the lake
    verdict TEXT,                -- JSON
    reason TEXT,                 -- of a fault
    message TEXT,
    submitted_at REAL NOT NULL,
    queue_limit_s REAL NOT NULL,
    judge_limit_s REAL NOT NULL,
    started_at REAL,             -- when a judge began with it
    finished_at REAL,
    read_at REAL,                -- when the verdict was last read from the lake
    judged_s REAL,
    fresh INTEGER NOT NULL DEFAULT 0,
    tries INTEGER NOT NULL DEFAULT 0,    -- answers that were faults of the evaluator
    losses INTEGER NOT NULL DEFAULT 0,   -- servers that were killed while they judged it
    charged_to TEXT,
    charged_s REAL NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX IF NOT EXISTS judgements_by_state ON judgements (state, device_class, sequence);

-- Who asked for a judgment. The last one to withdraw cancels it.
CREATE TABLE IF NOT EXISTS requests (
    judgement_id TEXT NOT NULL REFERENCES judgements (judgement_id) ON DELETE CASCADE,
    client TEXT NOT NULL,
    priority INTEGER NOT NULL,
    PRIMARY KEY (judgement_id, client)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS requests_by_client ON requests (client);

-- Seconds of judging that each client has been charged. The lowest is served first.
CREATE TABLE IF NOT EXISTS shares (
    client TEXT NOT NULL,
    device_class TEXT NOT NULL,
    used_s REAL NOT NULL,
    PRIMARY KEY (client, device_class)
) STRICT, WITHOUT ROWID;

-- Devices that have judged or judge, with their row of the lake's table.
CREATE TABLE IF NOT EXISTS devices (
    device_id TEXT PRIMARY KEY,
    device_class TEXT NOT NULL,
    "row" TEXT NOT NULL,
    recorded INTEGER NOT NULL DEFAULT 0, -- whether the lake has the row
    is_here INTEGER NOT NULL DEFAULT 0,  -- whether the service has a judge on it now
    quarantine TEXT              -- why it takes no kernels; NULL where it does
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS tokens (
    token_id TEXT PRIMARY KEY,
    client TEXT NOT NULL UNIQUE,
    scopes TEXT NOT NULL,        -- separated by blanks
    hash TEXT NOT NULL,          -- sha256 of the token
    created_at REAL NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS counters (
    name TEXT PRIMARY KEY,
    value REAL NOT NULL
) STRICT, WITHOUT ROWID;
