package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/councild/councild/internal/testkit/daemontest"
	"github.com/google/go-cmp/cmp"
)

// Records that were exported as a table are the same when they are imported.
func TestImportOfAnExport(t *testing.T) {
	daemontest.Setenv(t, nil)
	dir := t.TempDir()
	records, table, again := filepath.Join(dir, "records.jsonl"), filepath.Join(dir, "records.csv"), filepath.Join(dir, "again.jsonl")
	for _, args := range [][]string{
		{"store", "simulate", "--out", records, "--sessions", "3", "--category", "math"},
		{"store", "export", records, "--format", "csv", "--out", table},
	} {
		if code, _, stderr := command(t, args...); code != 0 {
			t.Fatal(stderr)
		}
	}
	code, stdout, stderr := command(t, "store", "import", "--from", "csv", "--in", table, "--out", again)
	if code != exitOK || !strings.Contains(stdout, "Accepted: 36 lines\nRejected: 0 lines\n") || stderr != "" {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	want := daemontest.Records(t, records)
	for i := range want {
		want[i].QuestionKey = nil // it is in no export below consent level 4
	}
	if diff := cmp.Diff(want, daemontest.Records(t, again)); diff != "" {
		t.Error(diff)
	}
}

func TestImport(t *testing.T) {
	daemontest.Setenv(t, nil)
	dir := t.TempDir()
	in := filepath.Join(dir, "in.csv")
	out := filepath.Join(dir, "out.jsonl")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(in, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("id,note\nq1,good\n")
	code, _, stderr := command(t, "store", "import", "--from", "csv", "--in", in, "--out", out)
	if code != exitUsage || !strings.Contains(stderr, `the column "note" is not known`) {
		t.Errorf("an unknown column: exit %d: %s", code, stderr)
	}
	if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file is left behind: %v", err)
	}
	write("id,score:a\nq1,1\nq2,2\nq1,0\n")
	code, stdout, stderr := command(t, "store", "import", "--from", "csv", "--in", in, "--out", out)
	if code != exitError || !strings.HasPrefix(stderr, "line 3: bad_field: score:a is \"2\"\nline 4: duplicate: ") ||
		!strings.Contains(stderr, "2 lines of "+in+" are not rows") ||
		stdout != "Accepted: 1 lines\nRejected: 2 lines\n"+out+": 1 graded rows\n" {
		t.Errorf("rejected lines: exit %d: %s%s", code, stdout, stderr)
	}
	rows, err := os.ReadFile(out)
	if want := `{"id":"q1","cluster":"q1","scores":{"a":1},"cost_usd":{}}` + "\n"; err != nil || string(rows) != want {
		t.Errorf("%v, rows %s", err, rows)
	}
	for name, args := range map[string][]string{
		"a file that is there": {"--from", "csv", "--in", in, "--out", out},
		"no input":             {"--from", "csv", "--in", in + "x", "--out", out + "x"},
		"an unknown format":    {"--from", "xml", "--in", in, "--out", out + "x"},
	} {
		if code, _, stderr := command(t, append([]string{"store", "import"}, args...)...); code != exitUsage {
			t.Errorf("%s: exit %d: %s", name, code, stderr)
		}
	}
}
