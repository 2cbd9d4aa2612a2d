/* What the master gives: docs/page.md, in types. */

export type Kind = "good" | "accent" | "mute" | "warn" | "bad" | "info";

/** A column of the timeline. A null is a gap. */
export type Column = (number | null)[];

export interface Timeline {
  window_s: number;
  t_s: number[];
  live: Column;
  starts_per_s: Column;
  p50_ms: Column;
  p90_ms: Column;
  p95_ms: Column;
  p99_ms: Column;
  ttfa_p95_ms: Column;
  missed: Column;
  barge_in_failed: Column;
  false_barge_ins: Column;
  failed: Column;
  missed_rate: Column;
  barge_in_success_rate: Column;
}

/** The end of a timeline: what it says replaces everything from index `from` on. */
export interface Points extends Timeline {
  from: number;
}

export interface Distribution {
  count: number;
  p50: number | null;
  p90: number | null;
  p95: number | null;
  p99: number | null;
}

export interface Summary {
  response_latency_ms: Distribution;
  ttfa_ms: Distribution;
  barge_in_stop_ms: Distribution;
  missed_responses: number;
  talk_overs: number;
  barge_in_turns: number;
  barge_in_success_rate: number | null;
  noise_turns: number;
  false_barge_ins: number;
  spurious_responses: number;
  mean_wer: number | null;
  pooled_wer: number | null;
  unreliable_turns: number;
  unreliable_turn_rate: number | null;
  failed_session_rate: number | null;
}

export interface Phase {
  name: string;
  from_s: number;
  to_s: number | null;
  calls: number;
}

export interface Run {
  id: string;
  name: string;
  started_at: string | null;
  scenarios: { name: string; adapter: string }[];
  sessions: number | null;
  run_time_s: number | null;
  limits: { name: string; limit: number; scenario: string | null }[];
  phases: Phase[];
  join: string | null;
}

export interface Assertion {
  name: string;
  limit: number;
  actual: number | null;
  actual_reliable: number | null;
  scenario: string | null;
  state: "passing" | "failing" | "open" | "cant_tell";
}

export interface Worker {
  name: string;
  host: string;
  state: string;
  kind: Kind;
  why: string | null;
  calls: number;
  cpu_percent: number | null;
  loop_cpu_percent: number | null;
  lag_ms: number | null;
  frame_late_p99_ms: number | null;
  unreliable_turns: number;
  judged_turns: number;
  beat_age_s: number | null;
}

export interface RunEvent {
  n: number;
  t_s: number;
  event: string;
  detail: string;
  kind: Kind;
}

export interface Pill {
  text: string;
  kind: Kind;
  live: boolean;
}

export interface Banner {
  kind: "bad" | "warn" | "info";
  what: string;
  title: string;
  text: string;
}

export interface Account {
  started: number;
  live: number;
  finished: number;
  failed: number;
  cut: number;
  lost: number;
  missing: number;
  maybe_started: number;
}

export interface Result {
  verdict: string;
  exit_code: number;
  complete: boolean;
  reasons: string[];
  directory: string | null;
  files: string[];
}

export interface Snapshot {
  version: number;
  seq: number;
  run_id: string;
  at_s: number;
  state: "idle" | "ramping" | "steady" | "stopping" | "done";
  pill: Pill;
  banners: Banner[];
  can: { start: boolean; stop: boolean };
  elapsed_s: number;
  left_s: number | null;
  progress: number | null;
  calls: { live: number; wanted: number; starts_per_s: number | null; started: number; to_place: number | null };
  account: Account;
  reasons: { reason: string; n: number; detail: string | null }[];
  trusted: boolean;
  summary: Summary;
  frame_lateness_ms: { count: number; p50: number | null; p99: number | null; max: number | null };
  assertions: Assertion[];
  workers: Worker[];
  n_workers: number;
  points: Points | null;
  reload: boolean;
  new_events: RunEvent[];
  result: Result | null;
}

export interface TurnRow {
  scenario: string;
  id: string;
  position: number;
  expect: "respond" | "stop" | "ignore";
  audio: string;
  text: string | null;
  limit_ms: number | null;
  played: number;
  good: number;
  missed: number;
  false_barge_ins: number;
  spurious_responses: number;
  times_ms: Distribution | null;
  ttfa_p95_ms: number | null;
  mean_wer: number | null;
  p95_over_time: Column | null;
  over: string[];
}

export interface Turns {
  rows: TurnRow[];
}

/** `GET /api/run` */
export interface History {
  version: number;
  csrf: string;
  run: Run;
  turns: Turns;
  timeline: Timeline | null;
  events: RunEvent[];
  snapshot: Snapshot;
}

/** How the page hears of the master: by the stream, by asking every 2 s, or not at all for 3 s. */
export type Link = "connecting" | "live" | "polling" | "down";

/** All that is drawn. */
export interface View {
  link: Link;
  /** Seconds since the last news, or since the page began to wait for the first. */
  age_s: number;
  run: Run | null;
  snapshot: Snapshot | null;
  timeline: Timeline | null;
  events: RunEvent[];
  turns: TurnRow[];
  /** Counts up whenever `timeline`, `events` or `turns` are others, so that nothing is drawn twice. */
  edition: { timeline: number; events: number; turns: number };
}
