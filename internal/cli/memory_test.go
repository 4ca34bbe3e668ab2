package cli

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The limits belong to the whole process, so each case has one of its own.
func TestLimitMemory(t *testing.T) {
	if wanted, child := os.LookupEnv("COUNCILD_TEST_MEMORY"); child {
		var out bytes.Buffer
		limitMemory(slog.New(slog.NewTextHandler(&out, nil)))
		if said := out.String(); !strings.Contains(said, wanted) || wanted == "" && said != "" {
			t.Errorf("got %q, want %q", said, wanted)
		}
		want := 100
		if _, percent, ok := strings.Cut(wanted, "gogc="); ok {
			want, _ = strconv.Atoi(percent)
		}
		if got := debug.SetGCPercent(100); got != want {
			t.Errorf("GOGC is %d, want %d", got, want)
		}
		return
	}
	for _, env := range [][]string{
		{"GOMEMLIMIT=512MiB", "COUNCILD_TEST_MEMORY=limit_bytes=536870912 gogc=400"},
		{"GOMEMLIMIT=512MiB", "GOGC=50", "COUNCILD_TEST_MEMORY=limit_bytes=536870912 gogc=50"},
		{"AUTOMEMLIMIT=off", "COUNCILD_TEST_MEMORY="},
		{"AUTOMEMLIMIT=many", "COUNCILD_TEST_MEMORY=level=WARN"},
	} {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLimitMemory$")
		child.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
			return strings.HasPrefix(v, "GOGC=") || strings.HasPrefix(v, "GOMEMLIMIT=") || strings.HasPrefix(v, "AUTOMEMLIMIT=")
		}), env...)
		if out, err := child.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", env, err, out)
		}
	}
}
