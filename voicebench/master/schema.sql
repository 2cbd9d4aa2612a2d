-- A run on disk. Times are seconds since the run's start, unless a name says otherwise.
CREATE TABLE run (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1),
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    started_at TEXT NOT NULL,          -- UTC, ISO 8601
    head TEXT NOT NULL,                -- JSON: what the run is (plan with secrets redacted, limits, seed, clock)
    scenarios TEXT NOT NULL,           -- JSON: the plan's scenarios in order, each with its weight
    callers INTEGER NOT NULL,
    seed INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('running', 'ended')),
    duration_s REAL,
    verdict TEXT,
    exit_code INTEGER,
    complete INTEGER,
    summary TEXT,                      -- JSON: that of the report
    tail TEXT                          -- JSON: what is known at the end (signal, notes, what went wrong)
) STRICT;

CREATE TABLE workers (
    epoch INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    host TEXT NOT NULL,
    state TEXT NOT NULL,
    started INTEGER NOT NULL,          -- sessions it is known to have started
    maybe_started INTEGER NOT NULL,    -- at most so many more
    have INTEGER NOT NULL DEFAULT 0,   -- seq of its last result that is stored, and so are all before it
    facts TEXT NOT NULL                -- JSON: versions, when it came and went, CPU
) STRICT;

CREATE TABLE sessions (
    number INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL UNIQUE,
    epoch INTEGER NOT NULL REFERENCES workers (epoch),
    seq INTEGER,                       -- of its worker's results; NULL when lost
    scenario TEXT NOT NULL,
    started_s REAL,                    -- NULL: not known, its worker was lost
    warmup INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('finished', 'failed', 'cut', 'lost')),
    reason TEXT,
    detail TEXT,
    duration_s REAL NOT NULL,
    reliable INTEGER NOT NULL,
    frames_sent INTEGER NOT NULL,
    bundle TEXT,                       -- its recording, relative to the run's folder
    result TEXT,                       -- JSON: the whole result; NULL when lost
    UNIQUE (epoch, seq)
) STRICT;

CREATE TABLE turns (
    number INTEGER NOT NULL REFERENCES sessions (number),
    position INTEGER NOT NULL,
    id TEXT NOT NULL,
    expect TEXT NOT NULL,
    status TEXT NOT NULL,
    passed INTEGER NOT NULL,
    reliable INTEGER NOT NULL,
    error_ms REAL,
    response_latency_ms REAL,
    ttfa_ms REAL,
    talk_over INTEGER,
    stopped INTEGER,
    stop_ms REAL,
    false_barge_in INTEGER,
    spurious_response INTEGER,
    wer REAL,
    PRIMARY KEY (number, position)
) STRICT, WITHOUT ROWID;

CREATE INDEX turns_by_id ON turns (id, status);
CREATE INDEX sessions_by_state ON sessions (state, reason);

CREATE TABLE samples (                 -- one row a worker and second
    t_s REAL NOT NULL,
    epoch INTEGER NOT NULL REFERENCES workers (epoch),
    started INTEGER NOT NULL,
    live INTEGER NOT NULL,
    loop_age_s REAL NOT NULL,          -- how long ago the loop that holds its sessions was last seen to turn
    cpu_s REAL NOT NULL,
    loop_cpu_share REAL,               -- these and the next: the worst second since the row before; NULL: not known
    process_cpu_share REAL,
    waited_share REAL,                 -- of the time the loop waited for a CPU that others had
    throttled_ms REAL,                 -- added up
    steal_share REAL,
    widest_gap_ms REAL,
    worst_late_ms REAL,
    PRIMARY KEY (epoch, t_s)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    n INTEGER PRIMARY KEY,
    t_s REAL NOT NULL,
    event TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;
