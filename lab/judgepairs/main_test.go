package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Two judges agree on the first pair. On the second, one judge keeps to the first place and the other is missing.
func TestRun(t *testing.T) {
	var records strings.Builder
	add := func(judge, pair, first, preferred string) {
		for position, answer := range []string{good, bad} {
			if first == bad {
				position = 1 - position
			}
			score := 0
			if answer == preferred {
				score = 1
			}
			fmt.Fprintf(&records, `{"session_id":"%s-%s","block_id":%[1]q,"reviewer_id":%[3]q,"model_id":%q,"position":%d,"score_value":%d}`+"\n",
				pair, first, judge, answer, position, score)
		}
	}
	for _, first := range []string{good, bad} {
		add("lab/a", "1", first, good)
		add("lab/b", "1", first, good)
		add("lab/a", "2", first, first)
	}
	file := filepath.Join(t.TempDir(), "pairs.jsonl")
	if err := os.WriteFile(file, []byte(records.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := run(t.Context(), file, &out); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "1 right, 0 wrong, 1 undecided"); n != 2 {
		t.Error(out.String())
	}
}
