package config

// Replaced is a variable of an earlier version. A start with it ends with an error that names the remedy.
type Replaced struct {
	Name   string // without the prefix LLM_COUNCIL_
	Remedy string // what to write instead
}

// ReplacedNames returns the variables of earlier versions, by their names.
func ReplacedNames() []Replaced {
	return []Replaced{
		{"CALIBRATION_STORE", moveTo("calibrations.jsonl")},
		{"EVENT_STORE", "move the files into LLM_COUNCIL_DATA_DIR, " + byDefault + ", as events-DAY.jsonl and events-intake-DAY.jsonl"},
		{"EVIDENCE_STORE", moveTo("evidence.jsonl") + orOff},
		{"SESSIONS_DIR", "move the directory into LLM_COUNCIL_DATA_DIR, " + byDefault + ", as sessions; instead of off, set " +
			"LLM_COUNCIL_DATA_DIR=off, or mount a tmpfs there"},
		{"SPEND_STORE", moveTo("spend.jsonl") + orOff},
	}
}

const (
	byDefault = "by default the directory of LLM_COUNCIL_BIAS_STORE"
	orOff     = "; instead of off, set LLM_COUNCIL_DATA_DIR=off"
)

func moveTo(file string) string {
	return "move the file into LLM_COUNCIL_DATA_DIR, " + byDefault + ", as " + file
}
