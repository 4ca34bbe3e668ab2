package config

// Replaced is a variable of an earlier version. If it is set, Load returns an error with the remedy.
type Replaced struct {
	Name   string // without the prefix LLM_COUNCIL_
	Remedy string // says what to do instead, or which value is fixed now
}

// ReplacedNames returns the variables of earlier versions, sorted by name.
func ReplacedNames() []Replaced {
	return []Replaced{
		{"BIAS_FSYNC_INTERVAL", "with LLM_COUNCIL_BIAS_FSYNC=interval, records are synced within 1s of the answer"},
		{"BIAS_ROTATE_BYTES", "the record file becomes a segment at 64 MiB"},
		{"CALIBRATION_STORE", moveTo("calibrations.jsonl")},
		{"CHAIRMAN_FALLBACKS", inRoster("fallbacks", "council")},
		{"DEGRADED_NOTE", inRoster("degraded_note", "council")},
		{"DEMOGRAPHICS_BACKEND", "write its value into LLM_COUNCIL_DEMOGRAPHICS, where off replaces false and lexicon true"},
		{"DIAL_TIMEOUT", "connecting to a provider may take 5s"},
		{"EVENTS_MIN_ORGS", "a row of the board needs 5 organisations"},
		{"EVENT_STORE", "move the files into LLM_COUNCIL_DATA_DIR, " + byDefault +
			", as events-DAY.jsonl and events-intake-DAY.jsonl"},
		{"EVIDENCE_STORE", moveTo("evidence.jsonl") + orOff},
		{"IDLE_TIMEOUT", inRoster("idle_timeout_seconds", "provider")},
		{"LEASE", "when a daemon is silent for 20s, the others take over its sessions"},
		{"LOG_FORMAT", "the log is text on a terminal, and JSON elsewhere"},
		{"MAX_BODY_BYTES", "a body may have four times as many bytes as LLM_COUNCIL_MAX_QUERY_BYTES allows, and at least 1 MiB"},
		{"MAX_CALLS_PER_PROVIDER", inRoster("max_calls", "provider")},
		{"MAX_MESSAGES", "a conversation may have 1000 messages"},
		{"MAX_SESSIONS_PER_TOKEN", inRoster("max_sessions", "token")},
		{"MAX_SESSION_BYTES", "a session may hold 64 MiB"},
		{"MAX_UPSTREAM_BYTES", "a reply may have 8 MiB"},
		{"MCP", "/mcp is always served, and gives no more rights than /v1; a proxy can refuse the path"},
		{"RATE_LIMIT", inRoster("rate_limit", "token")},
		{"REVIEWERS", inRoster("reviewers", "council")},
		{"SESSIONS_DIR", "move the directory into LLM_COUNCIL_DATA_DIR, " + byDefault + ", as sessions; instead of off, set " +
			"LLM_COUNCIL_DATA_DIR=off, or mount a tmpfs there"},
		{"SESSIONS_KEPT_BYTES", "finished sessions may take 256 KiB for each of LLM_COUNCIL_SESSIONS_KEPT, and at least 256 MiB"},
		{"SIDE_REQUESTS", inRoster("side_requests", "council")},
		{"SPEND_STORE", moveTo("spend.jsonl") + orOff},
		{"TOOLS", inRoster("tools", "council")},
	}
}

const (
	byDefault = "by default the directory of LLM_COUNCIL_BIAS_STORE"
	orOff     = "; instead of off, set LLM_COUNCIL_DATA_DIR=off"
)

func moveTo(file string) string {
	return "move the file into LLM_COUNCIL_DATA_DIR, " + byDefault + ", as " + file
}

func inRoster(key, of string) string {
	return "write " + key + " for the " + of + " in a roster, which LLM_COUNCIL_ROSTER names (docs/roster.md)"
}
