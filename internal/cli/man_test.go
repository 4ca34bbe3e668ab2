package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Each command has a manual page, which man formats without a warning.
func TestManualPages(t *testing.T) {
	directory := t.TempDir()
	if code, _, stderr := command(t, "version", "--man", directory); code != exitOK {
		t.Fatal(stderr)
	}
	pages, err := filepath.Glob(filepath.Join(directory, "*.1"))
	if err != nil || len(pages) < 30 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	for name, wants := range map[string][]string{
		"councild.1": {".TH COUNCILD 1", "councild v1.2.3", ".SH COMMANDS", "Exit codes: 0 done", "LLM_COUNCIL_*", `.BR councild\-ask (1),`},
		"councild-report-bias.1": {
			`councild-report-bias \- Report what`, `.B councild report bias [flags]`, `\-\-fail\-on=`,
			".SH SEE ALSO\n.BR councild\\-report (1)\n",
		},
		"councild-completion.1": {".SH ARGUMENTS\n.TP\n.B <shell>\n", ".SH DESCRIPTION\nbash: put"},
	} {
		page, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil {
			t.Error(err)
		}
		for _, want := range wants {
			if !strings.Contains(string(page), want) {
				t.Errorf("%s: %q is missing: %s", name, want, page)
			}
		}
	}
	if _, err := exec.LookPath("groff"); err == nil {
		out, err := exec.CommandContext(t.Context(), "groff", append([]string{"-man", "-ww", "-z"}, pages...)...).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("groff: %v: %s", err, out)
		}
	}
	if code, _, stderr := command(t, "version", "--man", filepath.Join(directory, "none")); code != exitError {
		t.Errorf("exit %d: %s", code, stderr)
	}
	_, completed, _ := command(t, "completion", "bash")
	if strings.Contains(completed, "--man") {
		t.Error("completion has the hidden flag")
	}
}
