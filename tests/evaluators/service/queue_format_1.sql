CREATE TABLE IF NOT EXISTS judgements (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    judgement_id TEXT NOT NULL UNIQUE,
    task_id TEXT NOT NULL,
    kernel_id TEXT NOT NULL,
    device_class TEXT NOT NULL,
    policy TEXT,
    state TEXT NOT NULL,
    kernel TEXT,
    "case" TEXT,
    answer TEXT,
    verdict TEXT,
    reason TEXT,
    message TEXT,
    submitted_at REAL NOT NULL,
    queue_limit_s REAL NOT NULL,
    judge_limit_s REAL NOT NULL,
    started_at REAL,
    finished_at REAL,
    read_at REAL,
    judged_s REAL,
    fresh INTEGER NOT NULL DEFAULT 0,
    tries INTEGER NOT NULL DEFAULT 0,
    losses INTEGER NOT NULL DEFAULT 0,
    worker_id TEXT,
    lease TEXT,
    lease_until REAL,
    charged_to TEXT,
    charged_s REAL NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX IF NOT EXISTS judgements_by_state ON judgements (state, device_class, sequence);
CREATE TABLE IF NOT EXISTS requests (
    judgement_id TEXT NOT NULL REFERENCES judgements (judgement_id) ON DELETE CASCADE,
    client TEXT NOT NULL,
    priority INTEGER NOT NULL,
    PRIMARY KEY (judgement_id, client)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS requests_by_client ON requests (client);
CREATE TABLE IF NOT EXISTS shares (
    client TEXT NOT NULL,
    device_class TEXT NOT NULL,
    used_s REAL NOT NULL,
    PRIMARY KEY (client, device_class)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS workers (
    worker_id TEXT PRIMARY KEY,
    token TEXT NOT NULL,
    host TEXT NOT NULL,
    device_class TEXT NOT NULL,
    seen_at REAL NOT NULL,
    refused INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS devices (
    device_id TEXT PRIMARY KEY,
    device_class TEXT NOT NULL,
    "row" TEXT NOT NULL,
    recorded INTEGER NOT NULL DEFAULT 0,
    worker_id TEXT,
    quarantine TEXT
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tokens (
    token_id TEXT PRIMARY KEY,
    client TEXT NOT NULL UNIQUE,
    scopes TEXT NOT NULL,
    hash TEXT NOT NULL,
    created_at REAL NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counters (
    name TEXT PRIMARY KEY,
    value REAL NOT NULL
) STRICT, WITHOUT ROWID;
PRAGMA user_version = 1;
INSERT INTO workers VALUES ('w', 'serve', 'host', 'laptop', 1.0, 0);
INSERT INTO devices VALUES ('d', 'laptop', '{"device_id": "d", "name": "laptop", "kind": "cpu"}', 1, 'w', NULL);
INSERT INTO tokens VALUES ('000000000000', 'gpu-host-2', 'worker', 'hash', 1.0);
INSERT INTO judgements (
    judgement_id, task_id, kernel_id, device_class, state, kernel, "case", answer, verdict,
    submitted_at, queue_limit_s, judge_limit_s, worker_id, lease, lease_until, started_at
) VALUES
('waits', 't', 'k1', 'laptop', 'queued', '{}', '{}', NULL, NULL, 1.0, 9e9, 60.0, NULL, NULL, NULL, NULL),
('claimed', 't', 'k2', 'laptop', 'claimed', '{}', '{}', NULL, NULL, 1.0, 9e9, 60.0, 'w', 'x', 9e9, 2.0),
('answered', 't', 'k3', 'laptop', 'answered', '{}', '{}', '{}', NULL, 1.0, 9e9, 60.0, 'w', 'x', 9e9, 2.0),
('done', 't', 'k4', 'laptop', 'done', NULL, NULL, NULL, '{}', 1.0, 9e9, 60.0, NULL, NULL, NULL, 2.0);
